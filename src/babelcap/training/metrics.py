"""What a run writes down. `metrics.jsonl` holds one line a step and only what the step computed, so that two runs of
one configuration agree to the byte; how long things took goes to `timing.jsonl`. A resumed run cuts both back to its
checkpoint.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from babelcap.errors import UserError
from babelcap.storage import write_text


class JsonLines:
    """Appends one JSON object a line; `rewind` drops the lines after a step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def rewind(self, step: int) -> None:
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] > step:
                    continue
            except (json.JSONDecodeError, KeyError):
                break  # a line cut short by a kill; the steps behind it are computed again
            kept.append(line + "\n")
        write_text(self.path, "".join(kept))

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
