"""What a system answered, in a folder named by the hash of all that decides it.

    <benchmark>-<part>-<system>-<hash>/
        prediction.json      what it is: system, settings, benchmark, hash of items and pictures; with its own checksum
        items.jsonl          the items that were asked, with their references
        answers.jsonl        a line an item, appended by batches, which depend on nothing but the above; each with the
                             checksum `sum`: a line that is damaged is no answer, and is asked for again
        scores.json, item_scores.jsonl       of a complete one, by `eval score`

Three parts: captions, translations, and the losses of a right and of a wrong answer.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.benchmarks.item_file import item_values, read_item_rows
from babelcap.records import first_problem
from babelcap.storage import (
    atomic_file,
    file_sha256,
    locked,
    parse_json,
    read_json_object,
    sealed,
    text_sha256,
    unsealed,
    write_json,
)

CAPTION, TRANSLATION, LOSSES = PARTS = ("caption", "translation", "losses")
OWN, SHUFFLED = "own", "shuffled"
VERSION = 2  # raised whenever the code changes what is asked or written
DESCRIPTION, ITEMS, ANSWERS = "prediction.json", "items.jsonl", "answers.jsonl"
SCORES, ITEM_SCORES = "scores.json", "item_scores.jsonl"
HASH_LENGTH = 12
BEGINNING = ".begin.lock"
SUM, SECONDS = "sum", "seconds"  # of a line of answers


@dataclass(frozen=True)
class AskedItem:
    """An item of the benchmark, and the picture that the system was shown: its own, or another one's."""

    item: Item
    picture_sha256: str  # of its own
    shown: Path


@dataclass(frozen=True)
class Description:
    """All that decides the answers. `given` is how it was asked for, and decides nothing."""

    benchmark: str
    part: str
    system: Mapping[str, str | int | float | bool | None]
    batch_size: int
    pictures: str  # own | shuffled
    dataset_sha256: str  # of the items, their references and their own pictures
    num_items: int
    num_references: int
    given: Mapping[str, Any]

    @property
    def hash(self) -> str:
        names = ("benchmark", "part", "batch_size", "pictures", "dataset_sha256")
        values = {name: getattr(self, name) for name in names}
        return text_sha256(values | {"system": dict(self.system), "version": VERSION})[:HASH_LENGTH]

    @property
    def pair_hash(self) -> str:
        """Equal for the same system on the same items, whichever pictures it was shown."""
        return text_sha256([self.benchmark, self.part, dict(self.system), self.batch_size, self.dataset_sha256])

    @property
    def folder(self) -> str:
        name = re.sub(r"[^A-Za-z0-9.]+", "-", str(self.system.get("name", "system"))).strip("-.")[:40] or "system"
        return f"{self.benchmark}-{self.part}-{name}-{self.hash}"

    def values(self) -> dict[str, Any]:
        return {**vars(self), "system": dict(self.system), "given": dict(self.given), "version": VERSION}


_DESCRIPTION, _FIELDS = TypeAdapter(Description), tuple(Description.__dataclass_fields__)


def dataset_sha256(items: Iterable[AskedItem]) -> str:
    """By content: where the benchmark lies has no part in it, and every reference and every picture has."""
    return text_sha256([item_values(asked.item) | {"image": asked.picture_sha256} for asked in items])


def begin(output: Path, description: Description, items: Sequence[AskedItem]) -> Path:
    """The prediction's folder, made where it is not there. What it is about is written last."""
    folder = output / description.folder
    with locked(folder / BEGINNING):  # two processes may begin at once, with pictures in two places
        if not (folder / DESCRIPTION).is_file():
            _write_items(folder / ITEMS, items)
            values = description.values() | {"hash": description.hash, "items_sha256": file_sha256(folder / ITEMS)}
            write_json(folder / DESCRIPTION, sealed(values))
    return folder


def _write_items(path: Path, items: Sequence[AskedItem]) -> None:
    with atomic_file(path) as partial, partial.open("w", encoding="utf-8") as file:
        for asked in items:
            other = {} if asked.shown == asked.item.image else {"shown": str(asked.shown.absolute())}
            row = item_values(asked.item) | {"picture_sha256": asked.picture_sha256} | other
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


class Prediction:
    """One that lies on disk, whole or in part."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        path = self.folder / DESCRIPTION
        values = read_json_object(path)
        if values.get("version") != VERSION:
            raise UserError(f"{path}: version {values.get('version')!r} is not {VERSION}; predict anew")
        try:
            self.description = _DESCRIPTION.validate_python({name: values.get(name) for name in _FIELDS})
        except ValidationError as error:
            raise UserError(f"{path} is not a prediction's ({first_problem(error)}); predict anew") from None
        values = unsealed(values, path, advice="remove its folder and predict anew")
        self._items_sha256 = values.get("items_sha256")
        if values.get("hash") != self.description.hash:
            raise UserError(f"{path}: its hash is not that of its settings; it was changed, predict anew")

    @cached_property
    def asked(self) -> list[AskedItem]:
        path = self.folder / ITEMS
        found = []
        for item, row in read_item_rows(path):
            digest, shown = row.get("picture_sha256"), row.get("shown")
            found.append(AskedItem(item, str(digest), item.image if shown is None else Path(str(shown))))
        is_same = file_sha256(path) == self._items_sha256
        if not is_same or dataset_sha256(found) != self.description.dataset_sha256:
            raise UserError(f"{path}: its items are not those that were asked; it was changed, predict anew")
        return found

    @cached_property
    def items(self) -> dict[str, Item]:
        return {asked.item.id: asked.item for asked in self.asked}

    def answers(self) -> dict[str, dict[str, Any]]:
        """Item -> its line, in the order of the items; an incomplete prediction is refused."""
        found = {row["id"]: row for row, _ in read_lines(self.folder / ANSWERS)}
        missing = [key for key in self.items if key not in found]
        if missing:
            raise UserError(
                f"{self.folder}: {len(missing)} of {len(self.items)} answers are missing; "
                "run the same `babelcap eval predict` again, it goes on where it was"
            )
        return {key: found[key] for key in self.items}


def find_predictions(places: Sequence[str | Path]) -> list[Prediction]:
    """Those below the folders, or the folders themselves, in the order of their names."""
    found: dict[Path, Prediction] = {}
    for place in map(Path, places):
        if not place.is_dir():
            raise UserError(f"{place}: no such folder; name one that `babelcap eval predict -o` was given")
        paths = sorted(place.rglob(DESCRIPTION))
        if not paths:
            raise UserError(f"{place}: no prediction in it; make one with `babelcap eval predict SYSTEM BENCHMARK`")
        found |= {path.parent.resolve(): Prediction(path.parent) for path in paths}
    return list(found.values())


def read_lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Whole lines with the place each ends at; nothing behind the first that is torn or no answer."""
    if not path.is_file():
        return
    end = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            try:
                row = parse_json(line, path)
            except UserError:
                return
            if not _is_answer(row) or row.get(SUM) != line_sum(row):
                return
            end += len(line)
            yield row, end


def _is_answer(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        return False
    if "text" in row:
        return isinstance(row["text"], str)
    return all(
        isinstance(losses, list) and losses and all(isinstance(loss, int | float) for loss in losses)
        for losses in (row.get("right"), row.get("wrong"))
    )


def line_sum(row: Mapping[str, Any]) -> str:
    """Of all that a line says but how long it took."""
    return text_sha256({name: value for name, value in row.items() if name not in (SUM, SECONDS)})[:HASH_LENGTH]


def keep_whole_batches(path: Path, batches: Sequence[Sequence[Item]]) -> int:
    """How many batches the file has, from the first on. What is behind them, torn or of others, is cut off."""
    lines, num_done, end = read_lines(path), 0, 0
    for batch in batches:
        rows = [row for row in (next(lines, None) for _ in batch) if row is not None]
        if [row["id"] for row, _ in rows] != [item.id for item in batch]:
            break
        num_done, end = num_done + 1, rows[-1][1]
    if path.is_file() and path.stat().st_size > end:
        os.truncate(path, end)
    return num_done


def answer_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
