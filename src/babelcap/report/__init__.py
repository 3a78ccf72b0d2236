"""What a reader sees of a study: figures, tables and a page. Imports without torch."""

from pathlib import Path


def build_report(study_folder: Path, output: Path | None = None) -> Path:
    """Builds the report from a study's runs.jsonl, gallery.json, study.json and timing.json; returns its index.html.

    It goes to `output`, or to the folder `report` in the study's.
    """
    from babelcap.report.build import build

    study_folder = Path(study_folder)
    return build(study_folder, Path(output) if output is not None else study_folder / "report")
