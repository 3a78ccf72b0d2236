"""A corpus out of tars that exist already: one Parquet a tar, made shard by shard, then the manifest.

The tars are linked to, not copied and never written to. A shard that was made from the same inputs by the same settings
is skipped, so a stopped command goes on where it was. Until `corpus.json` is there, the folder is not a corpus, and
`.parts/` has the checksum of each Parquet as it was written: one that is another by now is made again.
"""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import numpy as np
import pyarrow.parquet as pq

from babelcap.coverage import Coverage
from babelcap.data.store.format import ANNOTATIONS, IMAGES, SHARD_METADATA, BareImages, ImageRow, parquet_name
from babelcap.data.store.manifest import (
    DERIVED,
    MANIFEST,
    Manifest,
    Shard,
    make_manifest,
    read_corpus_manifest,
    write_corpus_manifest,
)
from babelcap.data.store.store import Corpus, is_key, with_versions, write_shard
from babelcap.data.store.tar import TarMember, TarScan, scan_tar
from babelcap.errors import UserError
from babelcap.jobs.shards import map_shards
from babelcap.storage import atomic_file, file_sha256, locked, parquet_errors, read_bytes, write_text

PARTS = ".parts"
PLAIN_IMAGE = re.compile(r"([A-Za-z0-9_/-]+)\.(?:jpe?g|png|webp)")  # what most images are called, told at a glance
PLAIN_IMAGES = re.compile(rf"^{PLAIN_IMAGE.pattern}$", re.MULTILINE)


class ShardMaker(Protocol):
    """What an importer does: the rows of one tar. It is sent to worker processes, so it holds settings, not data."""

    def make_rows(self, scan: TarScan, skipped: Counter[str]) -> list[ImageRow] | BareImages:
        """The rows of a tar's images; what is left out is counted by reason."""
        ...

    def made_from(self, tar: Path) -> dict[str, Any]:
        """The settings and files that the rows depend on: when they change, the shard is made again."""
        ...


@dataclass(frozen=True)
class Assembly:
    """How a corpus is put together. `with_checksum` reads every byte of the tars."""

    provenance: dict[str, Any]
    coverage: Coverage = field(default_factory=Coverage)
    num_workers: int = 1
    copy: bool = False  # the tars, instead of linking to them
    with_checksum: bool = False
    images_only: bool = False  # that there are no texts is meant


class _Job(NamedTuple):
    maker: ShardMaker
    tar: Path
    folder: Path
    with_checksum: bool
    known_sha256: str | None  # of the Parquet as it was written, where it was


def assemble_corpus(folder: str | Path, tars: Sequence[Path], maker: ShardMaker, options: Assembly) -> Corpus:
    """Makes or finishes the corpus in `folder` and opens it."""
    folder = Path(folder)
    provenance = options.provenance | ({"images_only": True} if options.images_only else {})
    _check_tars(tars)
    _check_output(folder, provenance)
    with locked(folder / PARTS / ".lock", refuse=f"{folder}: another process makes this corpus; wait for it"):
        return _assemble(folder, tars, maker, options, provenance)


def _assemble(
    folder: Path, tars: Sequence[Path], maker: ShardMaker, options: Assembly, provenance: dict[str, Any]
) -> Corpus:
    is_finished = _check_output(folder, provenance)  # again: another process may have finished it just now
    known = _known_checksums(folder, is_finished)
    (folder / ANNOTATIONS).mkdir(parents=True, exist_ok=True)
    (folder / IMAGES).mkdir(exist_ok=True)
    jobs = [_Job(maker, tar, folder, options.with_checksum, known.get(parquet_name(tar))) for tar in tars]
    if is_finished and any(_finished_shard(job) is None for job in jobs):
        reopen_corpus(folder)
    shards = map_shards(_make_shard, jobs, options.num_workers, "Indexing tars")
    if not options.images_only:
        _require_texts(shards)
    reject_duplicate_keys(folder, shards)
    for tar in tars:
        _place_tar(tar, folder / IMAGES / tar.name, options.copy)
    manifest = make_manifest(shards, options.coverage, with_versions(provenance))
    write_corpus_manifest(folder, manifest)
    shutil.rmtree(folder / PARTS, ignore_errors=True)
    return Corpus(folder, manifest)


def reopen_corpus(folder: Path) -> None:
    """Makes a finished corpus an unfinished one, until all its shards are renewed."""
    for shard in read_corpus_manifest(folder).shards:
        write_text(folder / PARTS / shard.annotations, shard.annotations_sha256)
    (folder / MANIFEST).unlink()


def _known_checksums(folder: Path, is_finished: bool) -> dict[str, str]:
    if is_finished:
        return {shard.annotations: shard.annotations_sha256 for shard in read_corpus_manifest(folder).shards}
    written = (path for path in (folder / PARTS).glob("*.parquet") if path.is_file())
    return {path.name: read_bytes(path).decode("ascii", "replace") for path in written}


def _require_texts(shards: list[Shard]) -> None:
    if any(shard.num_annotations for shard in shards):
        return
    skipped = sum((Counter(shard.skipped) for shard in shards), Counter[str]())
    reasons = ", ".join(f"{reason}: {number}" for reason, number in skipped.most_common(3))
    raise UserError(
        f"{sum(shard.num_images for shard in shards)} images and not one text for them"
        f"{f' (left out: {reasons})' if reasons else ''}; name their texts, or say that there are none (--images-only)"
    )


def image_members(scan: TarScan, skipped: Counter[str]) -> dict[str, TarMember]:
    """The images of a tar by their key; of two with the same key the first is kept."""
    skipped.update(scan.problems)
    images: dict[str, TarMember] = {}
    for member in scan.members:
        plain = PLAIN_IMAGE.fullmatch(member.name)
        if plain is None and not member.is_image:
            continue
        key = plain[1] if plain is not None else member.key
        if plain is None and not is_key(key):
            skipped["unsafe member name"] += 1
        elif key in images:
            skipped["duplicate key"] += 1
        elif member.length == 0:
            skipped["empty image"] += 1
        else:
            images[key] = member
    return images


def bare_images(scan: TarScan, skipped: Counter[str], split: str) -> BareImages:
    """The images of a tar without texts; all names at once where every member is plainly an image."""
    keys = PLAIN_IMAGES.findall("\n".join(scan.names))
    if len(keys) == len(scan.names) == len(set(keys)) and all(scan.lengths):
        skipped.update(scan.problems)
        return BareImages(keys, scan.path.name, scan.offsets, scan.lengths, split)
    images = image_members(scan, skipped)
    offsets = [member.offset for member in images.values()]
    lengths = [member.length for member in images.values()]
    return BareImages(list(images), scan.path.name, offsets, lengths, split)


def file_state(path: Path) -> list[Any]:
    """Tells whether a file changed, without reading it."""
    state = path.stat()
    return [path.name, state.st_size, state.st_mtime_ns]


def reject_duplicate_keys(folder: Path, shards: list[Shard]) -> None:
    """Compares 64-bit hashes, eight bytes a key, and looks at the keys themselves only where two hashes agree."""
    keys = {shard.tar: _read_keys(folder, shard) for shard in shards if len(shards) > 1}
    hashes = [np.fromiter(map(hash, keys[tar]), dtype=np.int64, count=len(keys[tar])) for tar in keys]
    values, counts = np.unique(np.concatenate(hashes or [np.zeros(0, np.int64)]), return_counts=True)
    suspects = set(values[counts > 1].tolist())
    seen: dict[str, str] = {}
    for tar, tar_keys in keys.items() if suspects else ():
        for key in tar_keys:
            if hash(key) in suspects:
                if key in seen:
                    raise UserError(f"key '{key}' is in {seen[key]} and in {tar}; keys are unique in a corpus")
                seen[key] = tar


def _read_keys(folder: Path, shard: Shard) -> list[str]:
    path = folder / ANNOTATIONS / shard.annotations
    with parquet_errors(path):
        return pq.read_table(path, columns=["key"]).column("key").to_pylist()


def _make_shard(job: _Job) -> Shard:
    made_from = _made_from(job)
    done = _finished_shard(job)
    if done is None:
        scan = scan_tar(job.tar)
        skipped: Counter[str] = Counter()
        rows = job.maker.make_rows(scan, skipped)
        done = write_shard(job.folder, rows, scan, skipped=dict(sorted(skipped.items())), made_from=made_from)
        write_text(job.folder / PARTS / done.annotations, done.annotations_sha256)
    if job.with_checksum:
        done = done.model_copy(update={"tar_sha256": file_sha256(job.tar)})
    return done


def _made_from(job: _Job) -> dict[str, Any]:
    made_from = {"tar": file_state(job.tar), **job.maker.made_from(job.tar)}
    return json.loads(json.dumps(made_from))  # as it comes back from the Parquet's metadata


def _finished_shard(job: _Job) -> Shard | None:
    path = job.folder / ANNOTATIONS / parquet_name(job.tar)
    if not path.is_file():
        return None
    with suppress(Exception):  # whatever is wrong with it, it is made again
        metadata = json.loads(pq.read_schema(path).metadata[SHARD_METADATA])
        digest = file_sha256(path)
        if metadata["made_from"] == _made_from(job) and digest == job.known_sha256:
            return Shard.model_validate(metadata["shard"]).model_copy(update={"annotations_sha256": digest})
    return None


def _check_tars(tars: Sequence[Path]) -> None:
    if not tars:
        raise UserError("no tars were given; name them or the folder they are in")
    names = Counter(tar.name for tar in tars)
    for name, number in names.items():
        if number > 1:
            raise UserError(f"{number} tars are called {name}; a corpus needs their names to differ")
        if not name.endswith(".tar"):
            raise UserError(f"{name}: the name of a tar ends in .tar; unpack compressed tars first")


def _check_output(folder: Path, provenance: dict[str, Any]) -> bool:
    """An unfinished corpus is gone on with and a finished one made the same way is renewed; anything else is kept.

    Returns whether it is a finished one.
    """
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; the output of a corpus is a folder")
    if (folder / MANIFEST).exists():
        before: Manifest = read_corpus_manifest(folder)
        if {**before.provenance, "versions": None} != {**json.loads(json.dumps(provenance)), "versions": None}:
            raise UserError(f"{folder} holds a corpus made with other settings; choose another output or remove it")
        return True
    strange = {path.name for path in folder.iterdir()} - {IMAGES, ANNOTATIONS, PARTS} - DERIVED
    if strange:
        raise UserError(f"{folder} holds other files ({sorted(strange)[0]}); choose an empty or new folder")
    return False


def _place_tar(tar: Path, place: Path, copy: bool) -> None:
    if place.exists() and place.samefile(tar):
        if not (copy and place.is_symlink()):
            return
    elif place.exists() and not place.is_symlink():
        raise UserError(f"{place} exists and is another file than {tar}; choose another output")
    if copy:
        with atomic_file(place) as partial:
            shutil.copyfile(tar, partial)
        return
    link = place.with_name(f".{place.name}.{uuid4().hex[:8]}")
    link.symlink_to(tar.resolve())
    os.replace(link, place)
