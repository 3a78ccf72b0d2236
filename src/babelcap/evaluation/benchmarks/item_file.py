"""Items as JSON lines: a benchmark of one's own, and the copy that lies beside every prediction.

    {"id": "de/7", "image": "pictures/7.jpg", "language": "de", "task": "caption", "references": ["Ein Hund."]}

`style`, `source` and `contrast` where an item has them. A relative path of a picture is seen from the file's folder.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks.items import Item
from babelcap.storage import read_json_lines

SUFFIX = ".jsonl"
TASKS = ("caption", "translation")
_ADAPTER = TypeAdapter(Item)
_FIELDS = frozenset(Item.__dataclass_fields__)


def read_item_file(path: str | Path) -> list[Item]:
    """The items of a file; one line where it holds none, or something else."""
    items = [item for item, _ in read_item_rows(path)]
    if not items:
        raise UserError(f"{path}: found 0 items; give one a line, as docs/benchmarks.md shows")
    return items


def read_item_rows(path: str | Path) -> list[tuple[Item, dict[str, Any]]]:
    """Items with the whole line each came from."""
    path, found, seen = Path(path), [], set()
    for line in read_json_lines(path):
        where = f"{path}:{line.number}"
        if line.error is not None or not isinstance(line.value, dict):
            raise UserError(f"{where}: {line.error or 'expected an object'}")
        item = _item(line.value, where, path.parent)
        if item.id in seen:
            raise UserError(f"{where}: id '{item.id}' comes twice; an item's id is its own")
        seen.add(item.id)
        found.append((item, line.value))
    return found


def item_values(item: Item) -> dict[str, Any]:
    """What a line has of an item; its picture by its whole path."""
    values = {name: getattr(item, name) for name in sorted(_FIELDS)}
    return values | {"image": str(item.image.absolute()), "references": list(item.references)}


def _item(values: dict[str, Any], where: str, folder: Path) -> Item:
    try:
        item = _ADAPTER.validate_python({name: value for name, value in values.items() if name in _FIELDS})
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if item.task not in TASKS:
        raise UserError(f"{where}: task is '{item.task}'; it must be {' or '.join(TASKS)}")
    if item.task == "translation" and not (item.source or "").strip():
        raise UserError(f"{where}: source is missing; a translation needs one")
    if not any(text.strip() for text in item.references):
        raise UserError(f"{where}: references: found {len(item.references)}, none with text; give at least 1")
    return replace(item, image=folder / item.image)
