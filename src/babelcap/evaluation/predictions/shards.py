"""A prediction by several processes or by Ray: shards of batches as a stage, put together in the batches' order.

A shard keeps its lines in a journal while it is made, so that a killed one goes on; a stage's receipt says it is made.
"""

import json
import shutil
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from babelcap.errors import UserError
from babelcap.evaluation.predictions.folder import (
    ANSWERS,
    DESCRIPTION,
    ITEMS,
    Prediction,
    answer_lines,
    keep_whole_batches,
    read_lines,
)
from babelcap.evaluation.predictions.predict import PredictOptions, SystemSource, answer, plan_batches, writing
from babelcap.jobs.engines import LocalEngine, RayEngine
from babelcap.jobs.receipts import JOURNAL, ShardOutput
from babelcap.jobs.stages import Shard, Stage, run_stage, stage_outputs

if TYPE_CHECKING:
    from babelcap.evaluation.systems import System

SHARD_BATCHES = 8  # small enough to keep workers busy to the end; not a function of how many there are
SHARDS = "shards"
ENTRY = "babelcap.evaluation.predictions.shards:predict_shard"


def predict_on_engine(prediction: Prediction, source: SystemSource, options: PredictOptions) -> None:
    """What is missing of a prediction, by as many workers as asked for."""
    folder, work = prediction.folder, prediction.folder / SHARDS
    with writing(prediction):
        batches = plan_batches(prediction)
        num_done = keep_whole_batches(folder / ANSWERS, batches)
        stage = _stage(prediction, source)
        starts = range(num_done - num_done % SHARD_BATCHES, len(batches), SHARD_BATCHES)
        inputs = {"items": folder / ITEMS, "description": folder / DESCRIPTION}
        shards = [Shard(f"{start:06d}", inputs, {"start": start}) for start in starts]
        with _engine(options, work) as engine:
            result = run_stage(stage, shards, work, engine)
        if result.set_aside:
            name, why = next(iter(result.set_aside.items()))
            raise UserError(
                f"{folder}: {len(result.set_aside)} of {len(shards)} shards failed; of the one at batch {int(name)}: "
                f"{why}; the same command goes on with what is missing"
            )
        outputs = stage_outputs(stage, shards, work)
        _put_together(folder / ANSWERS, [outputs[shard.name] for shard in shards], num_done % SHARD_BATCHES, prediction)
        shutil.rmtree(work, ignore_errors=True)


def _stage(prediction: Prediction, source: SystemSource) -> Stage:
    devices = str(source.options.get("device") or "")
    return Stage(
        "predict",
        ENTRY,
        {"hash": prediction.description.hash},
        resources={"name": source.name, "options": dict(source.options), "opener": source.opener},
        holds_model=True,
        gpus_per_worker=1.0 if devices.startswith("cuda") else 0.0,
    )


def _engine(options: PredictOptions, work: Path) -> LocalEngine | RayEngine:
    if options.engine == "ray":
        return RayEngine(options.num_workers, options.address)
    return LocalEngine(options.num_workers, work / "logs")


def _put_together(path: Path, shards: list[Path], num_skipped: int, prediction: Prediction) -> None:
    """The lines of the shards in their order; of the first, not the batches that are there already."""
    size = prediction.description.batch_size
    with path.open("a", encoding="utf-8") as file:
        for number, shard in enumerate(shards):
            lines = pq.read_table(shard)["line"].to_pylist()
            file.write("".join(lines[num_skipped * size if number == 0 else 0 :]))


@lru_cache(maxsize=1)
def _opened(name: str, options: str, opener: str) -> "System":
    return SystemSource(name, json.loads(options), opener).open()


def predict_shard(inputs: dict[str, Path], settings: dict[str, Any]) -> ShardOutput:
    """In a worker: some batches of the prediction whose folder the inputs lie in."""
    prediction = Prediction(inputs["items"].parent)
    description = prediction.description
    system = _opened(settings["name"], json.dumps(settings["options"], sort_keys=True), settings["opener"])
    if dict(system.identity) != dict(description.system):
        raise UserError(f"{settings['name']}: the system is not the one that the prediction was begun with")
    start = int(settings["start"])
    batches = plan_batches(prediction)[start : start + SHARD_BATCHES]
    journal = Path(settings["output"]).with_suffix(JOURNAL)
    # Again, since a worker of a killed process may live a moment longer and write a batch that this one writes too.
    while (num_done := keep_whole_batches(journal, batches)) < len(batches):
        with journal.open("a", encoding="utf-8") as file:
            for batch in batches[num_done:]:
                file.write(answer_lines(answer(system, description.part, batch)))
                file.flush()
    lines = [answer_lines([row]) for row, _ in read_lines(journal)]
    return ShardOutput(pa.table({"line": pa.array(lines, pa.string())}), len(lines), len(lines))
