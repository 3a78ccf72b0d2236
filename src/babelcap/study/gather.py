"""Records, laws and report of the runs that have ended, whoever launched them; the last job of a study on a cluster."""

from pathlib import Path

from babelcap.errors import UserError
from babelcap.storage import locked
from babelcap.study.config import StudyConfig
from babelcap.study.estimate import write_timing
from babelcap.study.finish import finish_study
from babelcap.study.grid import study_graph
from babelcap.study.local import LOCK


def gather_study(config: StudyConfig) -> tuple[Path, list[str]]:
    """The report, and the names of the runs that are not in it because they have not ended."""
    study = config.output.resolve()
    graph = study_graph(config)
    done = {step.hash: entry for step in graph.steps if (entry := step.done(study)) is not None}
    ended = [run for run in graph.runs if all(step.hash in done for step in run.ends)]
    if not ended:
        raise UserError(f"{study}: none of its {len(graph.runs)} runs has ended yet")
    with locked(study / LOCK):
        write_timing(study, done.values(), None)
        report = finish_study(graph.with_runs(ended), study)
    return report, [run.name for run in graph.runs if run not in ended]
