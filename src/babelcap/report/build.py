"""Builds the report of a study's folder: index.html, and every figure as PNG and SVG and table as CSV beside it."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from babelcap.report.claims import caption_claims
from babelcap.report.downstream import downstream_table
from babelcap.report.drawings import make_drawings
from babelcap.report.figures.style import save
from babelcap.report.law_claims import law_claims
from babelcap.report.loss_claims import loss_claims
from babelcap.report.page import render_page
from babelcap.report.photograph_claims import has_photographs, photograph_claims
from babelcap.report.skill import skill_claims, skill_table
from babelcap.report.study_folder import Study
from babelcap.report.study_laws import StudyLaws, fit_study_laws
from babelcap.report.tables import (
    Table,
    captions_table,
    claims_table,
    languages_table,
    laws_table,
    runs_table,
    timing_table,
)
from babelcap.report.trials import trials_table
from babelcap.report.verdicts import Claim, Condition
from babelcap.storage import write_text

PAGE = "index.html"
# The order of the page: what emerges, by what law, and what it rests on.
ORDER = (
    "emergence", "prefix", "relations", "law-conditioned", "law-prefix_given", "law-raw", "uc-exponents",
    "st-exponents", "sc-exponents", "parts", "wording", "overconfidence", "predicted", "skill", "content-law",
    "translations", "finetuning", "loss-content", "image", "ambiguity", "holdout",
)  # fmt: skip


def make_claims(study: Study, laws: StudyLaws) -> list[Claim]:
    main = study.headline()
    of_captions = (
        photograph_claims(study, main) if main is not None and has_photographs(main) else caption_claims(study)
    )
    found = [*of_captions, *law_claims(study, laws), *loss_claims(study, laws), *skill_claims(study, laws)]
    return sorted(found, key=lambda claim: ORDER.index(claim.key))


def make_tables(study: Study, claims: list[Claim], laws: StudyLaws) -> dict[str, Table]:
    tables = [
        claims_table(claims),
        captions_table(study),
        downstream_table(study),
        languages_table(study),
        runs_table(study),
        laws_table(laws),
        skill_table(study, laws),
        trials_table(study),
        timing_table(study),
    ]
    return {table.name: table for table in tables}


@dataclass(frozen=True)
class Report:
    """All that is said of a study; its laws are fitted once, here."""

    study: Study
    laws: StudyLaws
    claims: list[Claim]

    @classmethod
    def of(cls, study: Study) -> "Report":
        laws = fit_study_laws(study)
        return cls(study, laws, make_claims(study, laws))

    def write(self, output: Path) -> Path:
        """The page is written last, so that it never names a file that is not there."""
        tables = make_tables(self.study, self.claims, self.laws)
        for table in tables.values():
            write_text(output / f"{table.name}.csv", table.to_csv())
        drawings = make_drawings(self.study, self.laws)
        pngs = {
            drawing.name: save(drawing.figure, output, drawing.name)[0].read_bytes()
            for drawing in drawings
            if drawing.figure is not None
        }
        write_text(output / PAGE, render_page(self.study, self.claims, self.laws, drawings, pngs, tables))
        return output / PAGE

    def summary(self) -> dict[str, Any]:
        """The verdicts and their conditions, for a script to read."""
        return {
            "study": self.study.name,
            "num_runs": len(self.study.records),
            "claims": [
                {
                    "key": claim.key,
                    "claim": claim.title,
                    "verdict": claim.verdict,
                    "conditions": [_condition_values(condition) for condition in claim.conditions],
                    "notes": list(claim.notes),
                }
                for claim in self.claims
            ],
        }


def _condition_values(condition: Condition) -> dict[str, Any]:
    measured = None if condition.measured is None else _finite(asdict(condition.measured))
    if measured is not None:
        del measured["seeds"]
    return {
        "what": condition.what,
        "measured": measured,
        "needs": condition.needs,
        "holds": condition.holds,
        "deciding": condition.is_deciding,
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no infinity: what has no bound becomes null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }
