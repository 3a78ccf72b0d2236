"""The commands that are killed: training, the dataset pipeline, predictions and a study, in tiny."""

import itertools
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import planted
from babelcap.storage import write_json
from tiny_build import SmallBuilds, make_source
from tiny_study import tiny_values
from tiny_training import make_corpus, save_model, train_values
from torture.kills import Subject

CLOCKS = {"seconds", "cpu_seconds", "sha256"}  # of JSON: what a clock said, and the checksum over it
# Logs, who held a lock, marks of files by their times, and the times themselves.
NOT_COMPARED = {
    "logs",
    "locks",
    "attempts",
    "checksums.json",
    ".checksums.json",
    "timing.json",
    "timing.jsonl",
    "whole.json",
    "tars-0-of-1.json",
}


def without_clocks(value: Any) -> Any:
    """The same JSON without what a clock said, nor the checksums over it."""
    if isinstance(value, dict):
        return {name: without_clocks(item) for name, item in value.items() if name not in CLOCKS}
    return [without_clocks(item) for item in value] if isinstance(value, list) else value


def content_of(path: Path) -> bytes:
    if path.suffix in (".json", ".jsonl"):
        rows = path.read_text(encoding="utf-8").splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        return json.dumps([without_clocks(json.loads(row)) for row in rows]).encode()
    return path.read_bytes()


def files_of(folder: Path, left_out: Iterable[str] = ()) -> dict[str, bytes]:
    """Every file below a folder by its name; a file that is half written would be one too many."""
    names = NOT_COMPARED | set(left_out)
    return {
        str(path.relative_to(folder)): content_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.suffix != ".lock"
        and path.name != ".lock"
        and not names & set(path.relative_to(folder).parts)
    }


def training(folder: Path) -> Subject:
    """With its features: two legs, a checkpoint every second step, all that lies in its folder compared."""
    model, corpus = save_model("bart", folder / "model"), make_corpus(folder / "corpus")
    place = folder / "run"
    settings: dict[str, Any] = {
        "checkpoint__every_steps": 2,
        "checkpoint__keep": 3,
        "data__image_features": "cache",
        "dropout": 0.1,
        "budgets": [8, 16],
    }
    settings |= {"batch_size": 4, "parallel__micro_batch_size": 4}
    write_json(folder / "train.json", train_values(model, corpus, place, **settings))

    def reset() -> None:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(corpus / "features", ignore_errors=True)

    def outcome() -> dict[str, bytes]:
        return files_of(place) | {f"features/{name}": it for name, it in files_of(corpus / "features").items()}

    return Subject("training", ["train", str(folder / "train.json")], reset, outcome, folder)


def pipeline(folder: Path) -> Subject:
    """Every stage of `data build`, from parallel text to the corpus and its page."""
    place = SmallBuilds(make_source(folder / "world"), folder).write(folder / "build")

    def reset() -> None:
        for name in ("out", "work"):
            shutil.rmtree(place / name, ignore_errors=True)

    def outcome() -> dict[str, bytes]:
        return {f"{name}/{file}": it for name in ("out", "work") for file, it in files_of(place / name).items()}

    arguments = ["data", "build", str(place / "build.json")]
    return Subject("dataset pipeline", arguments, reset, outcome, folder, has_workers=True)


def predictions(folder: Path) -> Subject:
    """Two workers ask a captioner about each picture in three languages."""
    model = Path(shutil.copytree(micro(), folder / "model"))
    benchmark = planted.make_benchmark(folder / "data", 4, ("en", "de", "zh"))
    arguments = ["eval", "predict", str(model), str(benchmark), "--batch-size", "1", "--num-beams", "2"]
    arguments += ["--max-new-tokens", "8", "--workers", "2", "-o", str(folder / "out")]

    def reset() -> None:
        shutil.rmtree(folder / "out", ignore_errors=True)

    return Subject("eval predict", arguments, reset, lambda: files_of(folder / "out"), folder, has_workers=True)


def study(folder: Path, whole_every: int = 4) -> Subject:
    """From a world and base models over a training and its evaluation to the report."""
    place = folder / "study"
    grid = [{"sizes": ["micro-gemma-s"], "budgets": [2], "seeds": [0]}]
    world = {"num_images": 24, "num_eval_images": 6, "num_holdout_images": 2, "num_text_lines": 10}
    write_json(folder / "study.json", tiny_values(place, grid=grid, world=world, finetune=[]))
    arguments = ["study", "run", str(folder / "study.json")]

    resets = itertools.count()

    def reset() -> None:
        """Three times of four the world and the base models stay: what takes longest would take all kills."""
        kept = {"world", "bases", "models"} if next(resets) % whole_every else set()
        for path in place.iterdir() if place.is_dir() else ():
            if path.name not in kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for features in place.glob("world/*/features"):
            shutil.rmtree(features)

    return Subject("study", arguments, reset, lambda: files_of(place, ["report"]), folder, has_workers=True)


def micro() -> Path:
    """The captioner that comes with babelcap."""
    import babelcap.models.shipped as shipped

    return Path(shipped.__file__).parent / "micro"


SUBJECTS = {"training": training, "pipeline": pipeline, "predict": predictions, "study": study}
MODULES = (
    "babelcap.training.run", "babelcap.generate.build", "babelcap.generate.clean", "babelcap.generate.unique",
    "babelcap.generate.search", "babelcap.generate.text_sources", "babelcap.generate.backends.world",
    "babelcap.evaluation.predictions.predict", "babelcap.models.inference", "babelcap.study.local",
    "babelcap.study.steps", "babelcap.report.build", "torch.distributed.checkpoint",
)  # fmt: skip
