"""RunRecords of a study, put together from what its steps left: the training's numbers, losses and captions.

`runs.jsonl` is rebuilt from these whenever a study is run; nothing is added to it by hand or in passing.
"""

from pathlib import Path

from babelcap.measures import CHANCE, EVAL, UNSEEN
from babelcap.records import EvalResult, RunRecord, initial_losses, write_run_records
from babelcap.study.graph import RESULTS
from babelcap.study.grid import GridRun, StudyGraph
from babelcap.training.record import read_record, read_results

RUNS = "runs.jsonl"
OF_CHANCE = f"/{CHANCE}"


def collect_records(graph: StudyGraph, study: Path) -> list[RunRecord]:
    """One record a run, in the order of their names."""
    return [collect_record(run, graph.config.name, study) for run in graph.runs]


def collect_record(run: GridRun, study_name: str, study: Path) -> RunRecord:
    trained = read_record(study / run.train.folder / run.leg)
    initial = read_results(study / run.initial.folder / RESULTS)
    results = read_results(study / run.loss.folder / RESULTS)
    if run.captions is not None:
        results += read_results(study / run.captions.folder / RESULTS)
    extra = {name: trained.extra[name] for name in ("samples_by_pair", "bad_samples") if name in trained.extra}
    return trained.model_copy(
        update={
            "run": run.name,
            "study": study_name,
            "kind": run.kind,
            "trial": run.trial,
            "started_from": run.started_from,
            "family": run.family,
            "size": run.size,
            "base": run.base,
            "seed": run.seed,
            "T": initial_losses(initial),
            "initial": initial,
            "results": results,
            "config_hash": run.train.hash,
            "extra": extra | {"chance": chance_of(results)},
        }
    )


def chance_of(results: list[EvalResult]) -> dict[str, float]:
    """What blind captions reach, by measure: language, objects, ..."""
    return {
        result.measure.removesuffix(OF_CHANCE).rpartition("/")[2]: result.per_split[UNSEEN]
        for result in results
        if result.measure.endswith(OF_CHANCE) and UNSEEN in result.per_split and result.split == EVAL
    }


def write_records(graph: StudyGraph, study: Path) -> list[RunRecord]:
    records = collect_records(graph, study)
    write_run_records(study / RUNS, records)
    return records
