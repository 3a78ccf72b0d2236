"""What tables are made of: rows of scored predictions, with names for systems that tell them apart.

A number that cannot be compared with the first of its column and language says why.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from babelcap.evaluation.metrics.score import COMPARABLE, compare
from babelcap.evaluation.predictions.folder import (
    CAPTION,
    LOSSES,
    OWN,
    SHUFFLED,
    TRANSLATION,
    Prediction,
    dataset_sha256,
)
from babelcap.evaluation.predictions.score import read_scores

SAME_SHUFFLED = "same system, pictures shuffled"
# In the order of the columns. Other names, such as CIDEr by a convention, follow the one they begin with.
COLUMNS = {
    CAPTION: (
        "CIDEr", "Bleu_4", "ROUGE_L", "METEOR", "CLIPScore", "multilingual CLIPScore", "chrF", "fidelity",
        "fidelity of references", "gated CIDEr", "gated chrF",
    ),
    TRANSLATION: ("BLEU", "chrF", "COMET-22", "METEOR", "fidelity", "fidelity of references", "gated chrF"),
    LOSSES: ("accuracy", "pair accuracy", "ties"),
}  # fmt: skip
OF_HUNDRED = ("BLEU", "chrF", "gated chrF")  # all others are from 0 to 1 and are shown times 100
HASHES_SHOWN = 8


@dataclass(frozen=True)
class Cell:
    """A number as it is shown, from 0 to 100 as a rule."""

    value: float
    low: float | None = None
    high: float | None = None
    note: str | None = None  # why it cannot be compared
    signature: str = ""


@dataclass(frozen=True)
class Row:
    system: str
    language: str
    cells: Mapping[str, Cell]
    pictures: str = OWN
    num_items: int | None = None
    num_empty: int | None = None
    is_published: bool = False


@dataclass
class Table:
    title: str
    columns: Sequence[str]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    benchmark: str = ""

    def name_of(self, row: Row) -> str:
        """A row of shuffled pictures stands below that of its own system, and is called so."""
        if row.pictures == OWN:
            return row.system
        own = any(other.system == row.system and other.pictures == OWN for other in self.rows)
        return SAME_SHUFFLED if own else f"{row.system}, pictures shuffled"


First = dict[tuple[str, str], tuple[str, str]]  # (language, metric) -> (signature, hash of items)


def score_rows(prediction: Prediction, labels: Mapping[str, str], first: First) -> Iterable[Row]:
    """A row a language; what stands first in a column is what the others are compared with."""
    found: dict[str, dict[str, Cell]] = {}
    counts: dict[str, tuple[int, int]] = {}
    items = {
        language: dataset_sha256(asked for asked in prediction.asked if asked.item.language == language)
        for language in {asked.item.language for asked in prediction.asked}
    }
    for record in read_scores(prediction):
        language, name = record["language"], record["name"]
        own = (record["signature"], items[language])
        note = _note(*own, *first.setdefault((language, name), own))
        factor = 1 if name in OF_HUNDRED else 100
        value, low, high = (factor * record[key] for key in ("value", "low", "high"))
        found.setdefault(language, {})[name] = Cell(value, low, high, note, record["signature"])
        counts.setdefault(language, (record["num_items"], record["num_empty"]))
    pictures = prediction.description.pictures
    for language, cells in found.items():
        yield Row(label_of(prediction, labels), language, cells, pictures, *counts[language])


def _note(signature: str, items: str, first_signature: str, first_items: str) -> str | None:
    verdict = compare(signature, first_signature)
    if verdict == COMPARABLE and items != first_items:
        verdict = f"not comparable: items {items[:HASHES_SHOWN]} against {first_items[:HASHES_SHOWN]}"
    return None if verdict == COMPARABLE else verdict


def is_shuffled_there(prediction: Prediction, predictions: Iterable[Prediction]) -> bool:
    wanted = prediction.description.pair_hash
    others = (other.description for other in predictions)
    return any(other.pair_hash == wanted and other.pictures == SHUFFLED for other in others)


def order_columns(names: Iterable[str], part: str) -> list[str]:
    """Names by the part's list, variants behind what they are variants of; names of no list are left out."""
    wanted = COLUMNS[part]
    placed = ((wanted.index(base), name) for name in names if (base := name.partition(" (")[0]) in wanted)
    return [name for _, name in sorted(placed)]


def system_labels(predictions: Iterable[Prediction]) -> dict[str, str]:
    """System -> a name for it that no other system here has: its model's, and the settings in which those differ."""
    systems = {_system_key(one): one for one in predictions}
    by_name: dict[str, dict[str, Prediction]] = {}
    for key, one in systems.items():
        by_name.setdefault(_short_name(str(one.description.given.get("system", ""))), {})[key] = one
    labels = {}
    for name, alike in by_name.items():
        settings = {key: _settings(one) for key, one in alike.items()}
        names = dict.fromkeys(field for values in settings.values() for field in values)
        differing = [field for field in names if len({str(values.get(field)) for values in settings.values()}) > 1]
        for key, values in settings.items():
            told = ", ".join(f"{field.replace('_', ' ')} {_brief(values.get(field))}" for field in differing)
            labels[key] = f"{name} ({told})" if told else name
    return labels


def _settings(prediction: Prediction) -> dict[str, Any]:
    return {**prediction.description.system, "batch_size": prediction.description.batch_size}


def _brief(value: object) -> str:
    text = str(value)
    is_hash = len(text) > 2 * HASHES_SHOWN - 1 and all(letter in "0123456789abcdef" for letter in text)
    return text[:HASHES_SHOWN] if is_hash else text


def _short_name(given: str) -> str:
    """The end of a path, from the last part on that says something."""
    parts = PurePath(given).parts
    tail = [part for part in parts if part not in ("model", "/")]
    return "/".join(tail[-2:] if tail and tail[-1].startswith("budget-") else tail[-1:]) or given


def _system_key(prediction: Prediction) -> str:
    return repr(sorted((name, repr(value)) for name, value in _settings(prediction).items()))


def label_of(prediction: Prediction, labels: Mapping[str, str]) -> str:
    return labels[_system_key(prediction)]


def shuffle_command(prediction: Prediction) -> str:
    """What makes the same prediction with shuffled pictures."""
    given = prediction.description.given
    words = ["babelcap", "eval", "run", str(given["system"]), str(given["benchmark"])]
    words += ["-o", str(prediction.folder.parent)]
    options = {"data": given["data"], "language": given["languages"], "limit": given["limit"], **given["options"]}
    for name, value in options.items():
        if value is True:
            words.append(f"--{name.replace('_', '-')}")
        elif value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*words, "--shuffle-images"])
