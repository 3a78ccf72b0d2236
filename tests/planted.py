"""A system without a model, opened by name in any process; and a small benchmark to ask it."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.predictions.folder import Prediction
from babelcap.evaluation.predictions.predict import PredictOptions, SystemSource, predict
from babelcap.evaluation.predictions.tasks import Selection, Task, read_tasks
from babelcap.evaluation.systems import Answer, SystemOptions
from babelcap.storage import SEAL, sealed

NUM_PICTURES = 7
NAMES = ("dog", "cat", "horse", "boat", "house", "tree", "car")
GERMAN = ("Hund", "Katze", "Pferd", "Boot", "Haus", "Baum", "Auto")


def told(item: Item) -> str:
    number = int(item.image.stem)
    name = GERMAN[number] if item.language == "de" else NAMES[number]
    return f"Hier steht ein {name} auf der Wiese." if item.language == "de" else f"Here is a {name} on the grass."


class Planted:
    """Says what is true of the picture that it is shown, or what it was given to say."""

    def __init__(
        self, options: SystemOptions, answers: Mapping[str, str] | None = None, losses: Mapping[str, Any] | None = None
    ) -> None:
        self.options, self.answers, self.losses = options, answers or {}, losses or {}
        self.asked: list[list[Item]] = []

    @property
    def identity(self) -> dict[str, str | int | float | bool | None]:
        return {"name": "planted", "prefix": self.options.prefix, "num_beams": self.options.num_beams}

    @property
    def batch_size(self) -> int:
        return self.options.batch_size or 3

    def caption(self, items: Sequence[Item]) -> list[Answer]:
        time.sleep(float(os.environ.get("PLANTED_SECONDS", "0")))
        self.asked.append(list(items))
        texts = [self.answers.get(item.id, told(item)) for item in items]
        return [Answer(f"<s>{text}</s>", text) for text in texts]

    translate = caption

    def token_losses(self, items: Sequence[Item], answers: Sequence[str]) -> list[list[float]]:
        return [list(self.losses[answer]) for answer in answers]


def open_planted(name: str, options: SystemOptions) -> Planted:
    if name == "lost":
        raise RuntimeError("the model is lost")
    return Planted(options)


def make_benchmark(folder: Path, num_pictures: int = NUM_PICTURES, languages: Sequence[str] = ("en", "de")) -> Path:
    """Captions of pictures in several languages, as a file of items."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(num_pictures):
        image = folder / "pictures" / f"{number}.png"
        Image.new("RGB", (16, 12), (30 * number, 90, 200 - 20 * number)).save(image)
        for language in languages:
            item = Item(f"{language}/{number}", image, language, "caption")
            rows.append(
                {
                    "id": item.id,
                    "image": f"pictures/{number}.png",
                    "language": language,
                    "task": "caption",
                    "references": [told(item), told(item).replace("Wiese", "Weide").replace("grass", "lawn")],
                }
            )
    return write_items(folder / "trial.jsonl", rows)


def write_items(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def read_file(path: Path, **selection: Any) -> list[Task]:
    missing: list[str] = []
    tasks = read_tasks([str(path)], Selection(path.parent, **selection), missing.append)
    assert missing == []
    return tasks


def planted_source(options: Mapping[str, Any] | None = None) -> SystemSource:
    return SystemSource("planted", options or {}, "planted:open_planted")


def predict_planted(
    tasks: Sequence[Task], output: Path, options: Mapping[str, Any] | None = None, **how: Any
) -> list[Prediction]:
    return predict(tasks, planted_source(options), PredictOptions(output, **how))


def predict_with(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[SystemOptions], Planted], tasks: Sequence[Task], output: Path
) -> list[Prediction]:
    """Predictions of a system that this process makes."""
    monkeypatch.setattr(sys.modules["planted"], "open_planted", lambda name, options: make(options))
    return predict_planted(tasks, output)


def reseal(path: Path) -> None:
    """As one would who changed a file on purpose."""
    values = json.loads(path.read_text())
    path.write_text(json.dumps(sealed({name: value for name, value in values.items() if name != SEAL})))


def without_seconds(path: Path) -> list[bytes]:
    """The lines, but for what a clock said."""
    lines = []
    for line in path.read_bytes().splitlines():
        before, _, _ = line.rpartition(b', "seconds": ')
        assert before
        lines.append(before)
    return lines
