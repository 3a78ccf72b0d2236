"""Checksums: of files, of folders, and remembered ones. What a result depends on is covered by one of them.

    manifest.json   {"files": {name: {"bytes": ..., "sha256": ..., "blocks": [...]}}, "sha256": of all that}

A manifest is written last, so a folder that has one is whole. `blocks` are short hashes of pieces of a large file, by
which a sample of it is checked where reading all of it would take longer than loading it.
"""

import hashlib
import json
import os
import random
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from babelcap.errors import UserError
from babelcap.storage.atomic import write_json
from babelcap.storage.reading import read_json_object

MANIFEST = "manifest.json"
SEAL = "sha256"  # in a JSON object: of all else that it says
BLOCK_BYTES = 4 * 2**20
CHECKED_WHOLE_BYTES = 64 * 2**20  # a file up to this size is always checked whole
NUM_SAMPLED_BLOCKS = 8
SETTLED_NANOSECONDS = 10**9


def file_sha256(path: str | Path) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_sha256(value: Any) -> str:
    """Of a JSON value, whatever the order of its keys."""
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def describe_file(path: Path) -> dict[str, Any]:
    """Bytes, SHA-256 and, of a large file, the hashes of its blocks; read once."""
    whole, blocks, size = hashlib.sha256(), [], 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            whole.update(block)
            blocks.append(_block_hash(block))
            size += len(block)
    described: dict[str, Any] = {"bytes": size, "sha256": whole.hexdigest()}
    return described | ({"blocks": blocks} if size > CHECKED_WHOLE_BYTES else {})


def sealed(values: dict[str, Any]) -> dict[str, Any]:
    """Values to be written, with the checksum of all that they say."""
    return {**values, SEAL: text_sha256(values)}


def unsealed(
    values: dict[str, Any], where: str | Path, *, advice: str = "make it again", required: bool = True
) -> dict[str, Any]:
    """What was sealed, without its checksum; one clear line where it is not what was written.

    Where it is not `required`, values without a checksum, of an earlier version or made by hand, are taken as they are.
    """
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected an object, found a {type(values).__name__}; it may be of another kind")
    if not required and SEAL not in values:
        return values
    values = dict(values)
    if values.pop(SEAL, None) != text_sha256(values):
        raise UserError(f"{where} is damaged or was changed: its contents are not those of its checksum; {advice}")
    return values


def write_manifest(
    folder: str | Path, names: Iterable[str] | None = None, described: Mapping[str, dict[str, Any]] | None = None
) -> None:
    """Covers the named files, or every file below the folder; the last thing that is written into it.

    `described` holds what `describe_file` gave for some of them, where several processes shared the reading.
    """
    folder, described = Path(folder), described or {}
    names = list_files(folder) if names is None else names
    _write(folder, {name: described.get(name) or describe_file(folder / name) for name in names})


def list_files(folder: Path) -> list[str]:
    """All that a manifest of the folder can cover: every file below it but the manifest."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return [path.relative_to(folder).as_posix() for path in paths]


def update_manifest(folder: str | Path, patterns: Iterable[str]) -> None:
    """Covers the files below the folder that match a pattern; what is said of others, of another writer, stays."""
    folder, patterns = Path(folder), tuple(patterns)
    files: dict[str, Any] = {}
    if has_manifest(folder):
        with suppress(UserError):  # a damaged one vouches for nothing
            files = _read(folder)
    kept = {name: described for name, described in files.items() if not _matches(name, patterns)}
    _write(folder, kept | {name: describe_file(folder / name) for name in _names_below(folder, patterns)})


def _names_below(folder: Path, patterns: Iterable[str]) -> list[str]:
    """Hidden files, which desktops and editors leave behind, match no pattern."""
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    names = (path.relative_to(folder) for path in found if path.name != MANIFEST)
    return sorted(name.as_posix() for name in names if not any(part.startswith(".") for part in name.parts))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _write(folder: Path, files: dict[str, Any]) -> None:
    write_json(folder / MANIFEST, {"files": files, SEAL: text_sha256(files)})


def _read(folder: Path) -> dict[str, Any]:
    values = read_json_object(folder / MANIFEST)
    files = values.get("files")
    if not isinstance(files, dict) or values.get("sha256") != text_sha256(files):
        raise UserError(f"{folder / MANIFEST} is damaged")
    if outside := [name for name in files if not is_inside(folder, name)]:
        raise UserError(f"{folder / MANIFEST}: '{outside[0]}' lies outside the folder")
    return files


def has_manifest(folder: str | Path) -> bool:
    return (Path(folder) / MANIFEST).is_file()


def check_manifest(
    folder: str | Path, *, full: bool = False, only: Iterable[str] = ("*",), share: tuple[int, int] = (0, 1)
) -> list[str]:
    """What is wrong with the folder's files, one line each; nothing where all is well.

    Sizes always; contents whole of small files, and of large ones a random sample of blocks unless `full`. With `only`,
    of the files that match a pattern, and then all such files must be covered: one that was added could be read too.
    `share` (i, n) looks at every n-th file from the i-th on: n processes then check the folder together.
    """
    folder, only = Path(folder), tuple(only)
    try:
        files = _read(folder)
    except UserError as error:
        return [str(error)]
    covered = {name: files[name] for name in list(files)[share[0] :: share[1]] if _matches(name, only)}
    problems = [problem for name, described in covered.items() if (problem := _problem(folder, name, described, full))]
    if covered and "*" not in only:
        added = (name for name in _names_below(folder, only) if name not in covered)
        problems += [f"{folder / name} is not in the folder's {MANIFEST}" for name in added]
    return problems


def _problem(folder: Path, name: str, described: Any, full: bool) -> str | None:
    path = folder / name
    if not isinstance(described, dict):
        return f"{folder / MANIFEST}: '{name}' is not described"
    if not path.is_file():
        return f"{path} is missing"
    if path.stat().st_size != described.get("bytes"):
        return f"{path} has {path.stat().st_size} bytes, its manifest says {described.get('bytes')}"
    if not _contents_are(path, described, full):
        return f"{path} is damaged: its contents are not those of its manifest"
    return None


def require_manifest(
    folder: str | Path, *, full: bool = False, advice: str = "get it again", only: Iterable[str] = ("*",)
) -> None:
    """One clear line where a file is damaged; nothing where there is no manifest, as in folders of others."""
    if has_manifest(folder) and (problems := check_manifest(folder, full=full, only=only)):
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(f"{problems[0]}{more}; {advice}")


def is_inside(folder: Path, name: str) -> bool:
    """Whether a relative path that a file names stays below the folder."""
    return bool(name) and not os.path.isabs(name) and ".." not in Path(name).parts and "\0" not in name


def _contents_are(path: Path, described: dict[str, Any], full: bool) -> bool:
    blocks = described.get("blocks")
    if full or not isinstance(blocks, list) or not blocks:
        return file_sha256(path) == described.get("sha256")
    # The first and the last are always among them: headers and cut ends are the likeliest damage.
    inner = random.sample(range(len(blocks)), min(NUM_SAMPLED_BLOCKS, len(blocks)))
    with path.open("rb") as file:
        for number in sorted({0, len(blocks) - 1, *inner}):
            file.seek(number * BLOCK_BYTES)
            if _block_hash(file.read(BLOCK_BYTES)) != blocks[number]:
                return False
    return True


def _block_hash(block: bytes) -> str:
    return hashlib.blake2b(block, digest_size=8).hexdigest()


class RememberedChecksums:
    """SHA-256 of files, computed again only where size, time of change or inode differ. Kept in a JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, Any] = {}
        if path.is_file():
            with suppress(UserError):  # a damaged memory is no memory
                self._known = read_json_object(path)
        self._changed = False

    def sha256(self, path: Path) -> str:
        state = path.stat()
        marks = [state.st_size, state.st_mtime_ns, state.st_ino]
        name = os.path.realpath(path)
        known = self._known.get(name)
        if isinstance(known, dict) and known.get("marks") == marks and isinstance(known.get("sha256"), str):
            return str(known["sha256"])
        digest = file_sha256(path)
        # A file that was written just now may be written again within the same tick of the file system's clock.
        if abs(time.time_ns() - state.st_mtime_ns) > SETTLED_NANOSECONDS:
            self._known[name] = {"marks": marks, "sha256": digest}
            self._changed = True
        return digest

    def save(self) -> None:
        """Without a word where it may not be written: the next one computes again."""
        if self._changed:
            try:
                write_json(self.path, self._known)
            except (OSError, UserError):
                return
            self._changed = False
