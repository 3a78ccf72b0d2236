"""`babelcap study predict`: what the runs that have ended say of those that have not, written before they are run.

Of a run to come its base model is made and measured first: P, F and T are known before any training.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from babelcap.errors import UserError
from babelcap.laws.ahead import Prediction, predict_runs
from babelcap.laws.runs import MAIN
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.sizing.freezing import apply_policy
from babelcap.records import RunRecord, compute_macs, initial_losses, record_values
from babelcap.storage import sealed, text_sha256, write_json
from babelcap.study.config import StudyConfig
from babelcap.study.graph import RESULTS, all_steps
from babelcap.study.grid import GridRun, StudyGraph, study_graph
from babelcap.study.local import claimed, num_workers_of, run_steps
from babelcap.study.records import collect_record
from babelcap.training.config import TrainConfig
from babelcap.training.record import model_numbers, read_results

PREDICTIONS = "predictions"


def predict_study(config: StudyConfig, output: Path | None = None, others: Sequence[RunRecord] = ()) -> Path:
    """The file of the prediction; refused where there is nothing left to predict, and never written over.

    `others` are records of another study of the same world, which are fitted beside this one's own.
    """
    study = config.output.resolve()
    graph = study_graph(config.model_copy(update={"stage": "all"}))
    with claimed(study):
        own, missing = _divide(graph, study, alone=not others)
        records = [*others, *own]
        _check_unmeasured(missing, others)
        prepare = replace(graph, steps=all_steps(run.initial for run in missing))
        run_steps(prepare, study, num_workers_of(config))
        planned = [_planned(run, study) for run in missing]
        prediction = Prediction(
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            records_sha256=text_sha256([record.model_dump(mode="json") for record in records]),
            runs=tuple(run.run for run in planned),
            predicted=tuple(predict_runs(records, planned)),
        )
        if not prediction.predicted:
            raise UserError(f"{study}: {len(records)} runs have ended, too few to predict the other {len(planned)}")
        path = output or study / PREDICTIONS / f"{prediction.records_sha256[:12]}.json"
        if path.exists():
            raise UserError(f"{path} is there already; a prediction is not written over, name another file with -o")
        write_json(path, sealed(record_values(prediction)))
    return path


def _divide(graph: StudyGraph, study: Path, alone: bool) -> tuple[list[RunRecord], list[GridRun]]:
    """The records that exist, and the main runs that have none. What is partly measured is neither."""
    done = {step.hash for step in graph.steps if step.done(study) is not None}
    main = [run for run in graph.runs if run.kind == MAIN]
    ended = [run for run in main if all(step.hash in done for step in run.ends)]
    missing = [run for run in main if run.loss.hash not in done]
    if not missing:
        raise UserError(f"{study}: all {len(main)} main runs have records; a prediction is made before they are run")
    if alone and not ended:
        raise UserError(f"{study}: none of its {len(main)} main runs has ended; run some of them first")
    return [collect_record(run, graph.config.name, study) for run in ended], missing


def _check_unmeasured(missing: Sequence[GridRun], others: Sequence[RunRecord]) -> None:
    measured = {record.run for record in others} & {run.name for run in missing}
    if measured:
        raise UserError(
            f"the records given have {len(measured)} of the runs to predict, {min(measured)} first; leave them out, "
            "as by --where 'size!=NAME'"
        )


def _planned(run: GridRun, study: Path) -> RunRecord:
    """The record of a run to come: everything but what only the run can tell."""
    settings = TrainConfig.model_validate(run.train.resources["config"])
    model = load_model(run.train.inputs["model"].place(study))
    apply_policy(model, settings.policy)
    numbers = model_numbers(model, settings)
    num_samples = int(run.leg.removeprefix("budget-")) * settings.batch_size
    initial = read_results(study / run.initial.folder / RESULTS)
    return RunRecord(
        run=run.name, study=study.name, kind=run.kind, family=run.family, size=run.size, base=run.base, seed=run.seed,
        num_steps=num_samples // settings.batch_size, batch_size=settings.batch_size,
        P=numbers["P"], Pt=numbers["Pt"], F=numbers["F"], S=num_samples,
        C=compute_macs(num_samples, numbers["F"], numbers["P"], numbers["Pt"]),
        T=initial_losses(initial), initial=initial,
    )  # fmt: skip
