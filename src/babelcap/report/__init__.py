"""What a reader sees of a study: figures, tables and a page. Imports without torch."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from babelcap.report.build import Report


def read_report(study_folder: str | Path) -> "Report":
    """What runs.jsonl, gallery.json, study.json and timing.json of a study's folder say: laws, claims, verdicts."""
    from babelcap.report.build import Report
    from babelcap.report.study_folder import read_study

    return Report.of(read_study(Path(study_folder)))


def build_report(study_folder: str | Path, output: str | Path | None = None) -> Path:
    """Builds the report of a study's folder; returns its index.html.

    It goes to `output`, or to the folder `report` in the study's.
    """
    return read_report(study_folder).write(Path(output) if output is not None else Path(study_folder) / "report")
