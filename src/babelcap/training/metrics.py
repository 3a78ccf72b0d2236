"""What a run writes down. `metrics.jsonl` holds one line a step and only what the step computed, so that two runs of
one configuration agree to the byte; how long things took goes to `timing.jsonl`. A resumed run cuts both back to its
checkpoint.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from babelcap.errors import UserError
from babelcap.storage import read_json_lines, write_text
from babelcap.training.progress import say


class JsonLines:
    """Appends one JSON object a line; `rewind` drops the lines after a step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def rewind(self, step: int) -> None:
        """Keeps every good line up to the step. A damaged one is reported: nothing computes it again."""
        if not self.path.exists():
            return
        kept, damaged, last = [], [], (0, 0)
        for line in read_json_lines(self.path):
            found = line.value.get("step") if isinstance(line.value, dict) else None
            if not isinstance(found, int):
                damaged.append(line.number)
            elif found <= step:
                kept.append(json.dumps(line.value, ensure_ascii=False) + "\n")
                last = (line.number, found)
        write_text(self.path, "".join(kept))
        # One behind the last that is kept was cut short by a kill, and stood for a step that is taken again.
        lost = [number for number in damaged if number < last[0] or last[1] < step]
        if lost:
            numbers = ", ".join(map(str, lost[:5])) + (", ..." if len(lost) > 5 else "")
            say(f"{self.path}: damaged and left out: line {numbers}; all others up to step {step} are kept")

    def append(self, values: dict[str, Any]) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8")
        self._file.write(json.dumps(values, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Trackers:
    """The dashboards that were asked for. TensorBoard comes with babelcap; the others only where they are installed."""

    def __init__(self, names: Iterable[str], folder: Path, run: str, config: dict[str, Any], first_step: int) -> None:
        self._tensorboard: Any = None
        self._others: list[Any] = []
        for name in names:
            if name == "tensorboard":
                from torch.utils.tensorboard import SummaryWriter

                self._tensorboard = SummaryWriter(str(folder), purge_step=first_step)
            else:
                try:
                    tracker = __import__(name)
                except ImportError:
                    raise UserError(
                        f"log.trackers: {name} is not installed; pip install {name}, or leave it out"
                    ) from None
                tracker.init(project="babelcap", name=run, config=config)
                self._others.append(tracker)

    def log(self, step: int, values: dict[str, float]) -> None:
        if self._tensorboard is not None:
            for name, value in values.items():
                self._tensorboard.add_scalar(name, value, step)
        for tracker in self._others:
            tracker.log(values, step=step)

    def close(self) -> None:
        if self._tensorboard is not None:
            self._tensorboard.close()
        for tracker in self._others:
            tracker.finish()


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """Nested numbers under slashed names, as dashboards want them."""
    flat: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "step":
            flat[f"{prefix}{name}"] = float(value)
    return flat
