"""Which picture a file is, by its name: ids of COCO, Flickr, Visual Genome, DOCCI, Open Images and CoMMuTE.

    COCO_val2014_000000000285.jpg   000000000285.jpg        coco:285
    9138147604_c6225224b8_z.jpg     flickr30k/9138147604    flickr:9138147604
    VG_100K/2345.jpg                                        visual genome:2345

One picture may have several: half of Visual Genome is of COCO, and both are of Flickr. Files that say so are read by
`read_aliases`. A name that no such dataset would give, a running number say, is no id: only its picture is compared.
"""

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from babelcap.data.distributed.files import MAX_JSON_BYTES
from babelcap.errors import UserError
from babelcap.storage import read_json

COCO, FLICKR, VISUAL_GENOME, DOCCI, OPEN_IMAGES, COMMUTE = (
    "coco", "flickr", "visual genome", "docci", "open images", "commute",
)  # fmt: skip
# The nearest folder of these names says whose names they are.
FOLDERS = {
    "coco": COCO, "train2014": COCO, "val2014": COCO, "train2017": COCO, "val2017": COCO,
    "multi30k": FLICKR, "flickr30k": FLICKR,
    "vg_100k": VISUAL_GENOME, "vg_100k_2": VISUAL_GENOME, "image_paragraphs": VISUAL_GENOME,
    "docci": DOCCI, "xm3600": OPEN_IMAGES, "commute": COMMUTE,
}  # fmt: skip
COCO_NAME = re.compile(r"(?:coco_)?(?:train|val|test)20\d\d_(\d{12})|(\d{12})")
FLICKR_NAME = re.compile(r"([1-9]\d{2,10})_[0-9a-f]{8,12}(?:_[a-z0-9]{1,2})?")
DOCCI_NAME = re.compile(r"(?:train|test|qual_dev|qual_test)_\d{5}")
OPEN_IMAGES_NAME = re.compile(r"[0-9a-f]{16}")
PLAIN_FLICKR = re.compile(r"[1-9]\d{4,10}")  # Flickr30k's names; fewer digits may be anyone's running number
MAX_VISUAL_GENOME_DIGITS = 7
Aliases = dict[str, frozenset[str]]  # an id -> all ids of that picture, itself too


def image_ids(name: str | Path, aliases: Aliases | None = None) -> frozenset[str]:
    """All ids of a picture by the path or key of its file; none where the name says nothing."""
    path = PurePosixPath(name)
    found = _own_ids(path.name.partition(".")[0].lower(), _family(path))
    return found.union(*((aliases or {}).get(one, frozenset()) for one in found))


def _family(path: PurePosixPath) -> str | None:
    return next((FOLDERS[part.lower()] for part in reversed(path.parts[:-1]) if part.lower() in FOLDERS), None)


def _own_ids(stem: str, family: str | None) -> frozenset[str]:
    if coco := COCO_NAME.fullmatch(stem):
        return frozenset({f"{COCO}:{int(coco[1] or coco[2])}"})
    if flickr := FLICKR_NAME.fullmatch(stem):
        return frozenset({f"{FLICKR}:{flickr[1]}"})
    if stem.isdecimal() and family in (COCO, FLICKR, VISUAL_GENOME):
        return frozenset({f"{family}:{int(stem)}"})
    if DOCCI_NAME.fullmatch(stem) and family in (DOCCI, None):
        return frozenset({f"{DOCCI}:{stem}"})
    if OPEN_IMAGES_NAME.fullmatch(stem):
        return frozenset({f"{OPEN_IMAGES}:{stem}"})
    if family in (DOCCI, COMMUTE):
        return frozenset({f"{family}:{stem}"})
    if PLAIN_FLICKR.fullmatch(stem):  # without a folder that tells, it may be Visual Genome's as well
        owners = [FLICKR, VISUAL_GENOME] if len(stem) <= MAX_VISUAL_GENOME_DIGITS else [FLICKR]
        return frozenset(f"{owner}:{int(stem)}" for owner in owners)
    return frozenset()


def read_aliases(paths: Iterable[Path]) -> Aliases:
    """From Visual Genome's image_data.json (image_id, coco_id, flickr_id), and from COCO's annotation files or the like
    (id or image_id, with the address of the photo on Flickr).
    """
    groups: Aliases = {}
    for path in paths:
        values = read_json(path, MAX_JSON_BYTES)
        rows = values.get("images") if isinstance(values, dict) else values
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise UserError(f"{path}: expected Visual Genome's image_data.json, or COCO's annotations with images")
        for row in rows:
            _join(groups, _row_ids(row))
    return groups


def _row_ids(row: dict[str, Any]) -> frozenset[str]:
    found = set()
    if "coco_id" in row or "flickr_id" in row:  # Visual Genome's
        given = {VISUAL_GENOME: row.get("image_id"), COCO: row.get("coco_id"), FLICKR: row.get("flickr_id")}
        found = {f"{family}:{number}" for family, number in given.items() if isinstance(number, int) and number > 0}
    else:
        number = row.get("id", row.get("image_id"))
        address = row.get("flickr_url", row.get("source"))
        if isinstance(number, int) and isinstance(address, str):
            stem = PurePosixPath(address).name.partition(".")[0].lower()
            flickr = FLICKR_NAME.fullmatch(stem)
            found = {f"{COCO}:{number}", *([f"{FLICKR}:{flickr[1]}"] if flickr else [])}
    return frozenset(found)


def _join(groups: Aliases, ids: frozenset[str]) -> None:
    if len(ids) > 1:
        together = ids.union(*(groups.get(one, frozenset()) for one in ids))
        for one in together:
            groups[one] = together
