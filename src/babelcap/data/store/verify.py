"""What is read is what was written: files of a corpus against their recorded checksums, each once, then remembered.

Remembered by size, time of change and inode, in `index/checksums.json` or, where the corpus cannot be written to, in
the cache. Deleting that file costs only the time to read the files again.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from babelcap.data.store.format import ANNOTATIONS
from babelcap.data.store.manifest import INDEX, MANIFEST, Manifest, Shard
from babelcap.errors import UserError
from babelcap.storage import RememberedChecksums, file_sha256

CACHE_VARIABLE = "BABELCAP_CACHE"
MEMORY = "checksums.json"


def require_annotations(folder: Path, shards: Iterable[Shard]) -> None:
    """One clear line where the texts of a shard are not those of the manifest."""
    memory = remembered(folder)
    for shard in shards:
        if shard.annotations_sha256:  # not in every manifest that others wrote
            _require(folder / ANNOTATIONS / shard.annotations, shard.annotations_sha256, memory)
    memory.save()


def require_file(folder: Path, manifest: Manifest, name: str) -> Path:
    """The path of a file that lies beside images and annotations, once it is known to be that of the manifest."""
    path = folder / name
    if name in manifest.files:
        memory = remembered(folder)
        _require(path, manifest.files[name].sha256, memory)
        memory.save()
    return path


def remembered(folder: Path) -> RememberedChecksums:
    if os.access(folder, os.W_OK):
        return RememberedChecksums(folder / INDEX / MEMORY)
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    return RememberedChecksums(cache_folder() / "checksums" / f"{name}.json")


def matches(path: Path, expected: str, memory: RememberedChecksums | None) -> bool:
    """Looked at again before it is called damaged: the memory may be what is."""
    return (memory is not None and memory.sha256(path) == expected) or file_sha256(path) == expected


def cache_folder() -> Path:
    if os.environ.get(CACHE_VARIABLE):
        return Path(os.environ[CACHE_VARIABLE])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "babelcap"


def _require(path: Path, expected: str, memory: RememberedChecksums) -> None:
    if not path.is_file():
        raise UserError(f"{path}: no such file; the corpus is incomplete")
    if not matches(path, expected, memory):
        raise UserError(
            f"{path} is damaged: its contents are not those of {MANIFEST}; get it again or make the corpus again"
        )
