"""The world's twins, as `babelcap world benchmarks` writes them: world/{captioning,translation,ambiguity}.jsonl,
world/images/*. In the ambiguity test items are in pairs, as CoMMuTE's.
"""

from pathlib import Path

from babelcap.data.distributed.files import field_error, need_json_lines
from babelcap.errors import UserError
from babelcap.evaluation.benchmarks.items import Item
from babelcap.world.realise import LANGUAGE_CODES

ORIGIN = "`babelcap world benchmarks -o ROOT`"
CAPTION_LANGUAGES = LANGUAGE_CODES
TRANSLATION_LANGUAGES = tuple(code for code in LANGUAGE_CODES if code != "en")


def read_world(root: Path, kind: str) -> list[Item]:
    path = root / "world" / f"{kind}.jsonl"
    items = []
    for row in need_json_lines(path, ORIGIN):
        try:
            image, references = path.parent / row["image"], tuple(map(str, row["references"]))
            items.append(Item(**(row | {"image": image, "references": references})))
        except (KeyError, TypeError) as error:
            raise field_error(path, error) from None
    if not items:
        raise UserError(f"{path} has no items; make it anew with {ORIGIN}")
    return items
