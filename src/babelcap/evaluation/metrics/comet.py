"""COMET-22 in a process and an environment of its own: its pins (transformers below 5, numpy below 2) exclude ours.

`setup_comet(FOLDER)` makes the environment and fetches the weights; `comet(...)` then speaks JSON lines with it. The
folder is given, or in the variable BABELCAP_COMET.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from babelcap.errors import UserError
from babelcap.evaluation.metrics.inputs import check_count, check_items, count_empty
from babelcap.evaluation.metrics.score import Items, Score, signature
from babelcap.storage import parse_json, write_json

VARIABLE = "BABELCAP_COMET"
MODEL = "Unbabel/wmt22-comet-da"
PACKAGE = "unbabel-comet>=2.2,<3"
READY = "ready.json"  # written last: a setup that was stopped is begun again
DOWNLOAD = "import sys, comet; print(comet.download_model(sys.argv[1], saving_directory=sys.argv[2]))"
# Runs in the other environment, which does not have babelcap: items in, scores out, a line each.
RUNNER = """
import json, sys, importlib.metadata
from comet import load_from_checkpoint
model = load_from_checkpoint(sys.argv[1])
items = [json.loads(line) for line in sys.stdin]
found = model.predict(items, batch_size=int(sys.argv[2]), gpus=int(sys.argv[3]), progress_bar=False)
print(json.dumps({"version": importlib.metadata.version("unbabel-comet")}))
for score in found.scores:
    print(json.dumps({"score": float(score)}))
"""


def setup_comet(folder: str | Path, python: str = sys.executable) -> Path:
    """The environment with COMET and its weights; nothing is done where it is there already."""
    folder = Path(folder)
    if (folder / READY).is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    _run([python, "-m", "venv", str(folder / "venv")], "make an environment")
    interpreter = str(folder / "venv" / "bin" / "python")
    _run([interpreter, "-m", "pip", "install", "--quiet", PACKAGE], f"install {PACKAGE}")
    printed = _run([interpreter, "-c", DOWNLOAD, MODEL, str(folder / "model")], f"fetch {MODEL}")
    write_json(folder / READY, {"python": interpreter, "checkpoint": printed.strip().splitlines()[-1], "model": MODEL})
    return folder


def comet(
    sources: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    hypotheses: Mapping[str, str],
    folder: str | Path | None = None,
    batch_size: int = 16,
    num_gpus: int = 0,
) -> Score:
    """Its own scale, about 0 to 1; one reference an item. An empty hypothesis scores 0 and is not asked about."""
    ids = check_items(references, hypotheses)
    check_count(references, 1)
    if missing := [key for key in ids if key not in sources]:
        raise UserError(f"COMET: found {len(sources)} sources for {len(ids)} items; '{missing[0]}' has none")
    ready = _ready(folder)
    asked = [key for key in ids if hypotheses[key].strip()]
    lines = [{"src": sources[key], "mt": hypotheses[key], "ref": references[key][0]} for key in asked]
    command = [ready["python"], "-c", RUNNER, ready["checkpoint"], str(batch_size), str(num_gpus)]
    printed = _run(command, "score", "".join(json.dumps(line) + "\n" for line in lines)).splitlines()
    answers = [parse_json(line, "COMET's answer") for line in printed if line.startswith("{")]
    if len(answers) != len(asked) + 1:
        raise UserError(f"COMET: expected {len(asked)} scores, found {max(0, len(answers) - 1)}")
    found = dict(zip(asked, (float(answer["score"]) for answer in answers[1:]), strict=True))
    device = "gpu" if num_gpus else "cpu"
    text = signature("COMET", {"model": ready["model"], "version": answers[0]["version"], "device": device})
    values = np.array([found.get(key, 0.0) for key in ids])
    return Score("COMET-22", text, Items(ids, values, count_empty(hypotheses.values())))


def _ready(folder: str | Path | None) -> dict[str, str]:
    place = folder or os.environ.get(VARIABLE)
    if not place:
        made = "make one with: babelcap eval setup-comet FOLDER"
        raise UserError(f"COMET: no environment; {made}; and set {VARIABLE} to that folder")
    path = Path(place) / READY
    if not path.is_file():
        raise UserError(f"COMET: {place} is not set up; run: babelcap eval setup-comet {place}")
    found = parse_json(path.read_text(encoding="utf-8"), path)
    return {key: str(found[key]) for key in ("python", "checkpoint", "model")}


def _run(command: Sequence[str], what: str, given: str | None = None) -> str:
    try:
        done = subprocess.run(command, input=given, capture_output=True, encoding="utf-8", check=False)
    except OSError as error:
        raise UserError(f"COMET: cannot {what} ({error})") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"COMET: cannot {what} ({last[:300]})")
    return done.stdout
