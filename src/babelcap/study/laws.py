"""laws.json: the laws of a study with their intervals and held-out errors, as the report fits them from the records."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from babelcap.report.reading import read_study
from babelcap.report.study_laws import StudyLaw, fit_study_laws
from babelcap.storage import write_json

LAWS = "laws.json"


def write_laws(study: Path) -> list[dict[str, Any]]:
    """One entry for each family, reading (raw or conditioned), test split and form: the fit, or why there is none."""
    entries = [_entry(law) for law in fit_study_laws(read_study(study)).laws]
    write_json(study / LAWS, entries)
    return entries


def _entry(law: StudyLaw) -> dict[str, Any]:
    named = {"family": law.family, "reading": law.reading, "target": law.target, "form": law.form}
    if law.fitted is None:
        return named | {"refused": law.refused}
    return named | {
        "fit": law.fitted.to_record().model_dump(mode="json"),
        "largest_budget": None if law.largest_budget is None else asdict(law.largest_budget),
        "one_model": None if law.one_model is None else asdict(law.one_model),
    }
