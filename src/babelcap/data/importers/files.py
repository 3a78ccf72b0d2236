"""Files, folders of files and glob patterns, as a user names them -> files."""

import os
from collections.abc import Iterable
from pathlib import Path

from babelcap.data.store.tar import is_safe_name
from babelcap.errors import UserError

MAX_NAME_BYTES = 255  # of a file or folder: what file systems take


def is_file_below(folder: Path, name: str) -> bool:
    """Whether a name that a foreign file tells is that of a file below the folder."""
    parts = name.split("/")
    return (
        is_safe_name(name)
        and all(len(part.encode()) <= MAX_NAME_BYTES for part in parts)
        and len(parts) < MAX_NAME_BYTES
        and (folder / name).is_file()
    )


def key_and_extension(name: str) -> tuple[str, str]:
    """Of an image's path below a folder. A key ends at the first dot of its last part, so dots before the last go."""
    stem, _, extension = name.rpartition(".")
    parent, slash, file = stem.rpartition("/")
    return parent + slash + file.replace(".", "_"), extension


class ImageKeys:
    """The keys of images by their paths below a folder, each once."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.names: dict[str, str] = {}

    def add(self, name: str) -> tuple[str, str]:
        """Key and extension. Two names that become one key are named both."""
        key, extension = key_and_extension(name)
        if (other := self.names.setdefault(key, name)) != name:
            raise UserError(
                f"{self.where}: '{other}' and '{name}' would both get the key '{key}', and keys are unique in a "
                "corpus; rename one of them, or leave it out"
            )
        return key, extension


def find_files(places: Iterable[str | Path], ending: str) -> list[Path]:
    """Each file once, by name. Folders are searched with the folders that they hold or link to."""
    found: dict[Path, None] = {}
    for place in map(Path, places):
        if place.is_dir():
            paths = sorted(path for path in files_below(place) if path.name.endswith(ending))
        elif any(sign in str(place) for sign in "*?["):
            root = Path(place.anchor or ".")
            paths = sorted(root.glob(str(place.relative_to(place.anchor) if place.anchor else place)))
        else:
            paths = [place]
        if not paths:
            raise UserError(f"{place}: no {ending} files there")
        for path in paths:
            if not path.is_file():
                raise UserError(f"{path}: no such file")
            found[path] = None
    return sorted(found, key=lambda path: (path.name, str(path)))


def files_below(folder: Path) -> Iterable[Path]:
    """Through links to folders too, each folder once: a link may lead back to where it came from."""
    seen: set[str] = set()
    for name, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        real = os.path.realpath(name)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(name) / file for file in files)
