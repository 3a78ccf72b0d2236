"""The end of a study: records from what the steps left, laws from the records, the gallery, and the report."""

import hashlib
from pathlib import Path

from babelcap.config import content_hash
from babelcap.errors import UserError
from babelcap.storage import read_json, write_json
from babelcap.study.config import StudyConfig
from babelcap.study.gallery import write_gallery
from babelcap.study.grid import StudyGraph
from babelcap.study.records import RUNS, write_records

FINISHED = "finished.json"
LAWS = "laws.json"
REPORT = Path("report") / "index.html"


def finish_study(graph: StudyGraph, study: Path) -> Path:
    """Does nothing where nothing has changed since it was done. Returns the path of the report."""
    marker, report = study / FINISHED, study / REPORT
    what = _digest([step.hash for step in graph.steps], graph.config)
    if marker.is_file() and report.is_file() and read_json(marker).get("hash") == what:
        return report
    write_records(graph, study)
    write_gallery(graph, study)
    build_page(study)
    write_json(marker, {"hash": what, "report": str(REPORT)})
    return report


def build_page(study: Path) -> Path:
    """laws.json and the report, from runs.jsonl, gallery.json and timing.json of the study's folder."""
    if not (study / RUNS).is_file():
        raise UserError(f"{study} has no {RUNS}; run the study first (babelcap study run)")
    from babelcap.report import read_report
    from babelcap.report.study_laws import law_entries

    report = read_report(study)
    write_json(study / LAWS, law_entries(report.laws))
    return report.write((study / REPORT).parent)


def _digest(hashes: list[str], config: StudyConfig) -> str:
    settings = [config.name, content_hash(config.report)]
    return hashlib.sha256("\n".join([*hashes, *settings]).encode()).hexdigest()[:16]
