"""What the page shows, as plain values: `page.html.jinja` lays them out and escapes them.

Every number comes from the study's records.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from babelcap.coverage import TRANSLATION
from babelcap.jobs.progress import duration
from babelcap.measures import EVAL, HOLDOUT
from babelcap.pages import render
from babelcap.report.answers import answers
from babelcap.report.cards import picture_cards
from babelcap.report.drawings import Drawing
from babelcap.report.figures.style import number
from babelcap.report.formatting import decimal, estimate
from babelcap.report.statistics import Estimate
from babelcap.report.study_folder import KIND_NAMES, TRIAL, WORLD, Study
from babelcap.report.study_laws import StudyLaws
from babelcap.report.tables import Table, Value, laws_shown
from babelcap.report.verdicts import HOLDS, VERDICTS, Claim, Condition

TEMPLATE = "report/page.html.jinja"
LARGE = {"P", "Pt", "S", "C"}
PERCENT = {"error, largest budget left out", "error, one size left out"}
EXPONENTS = {"exponent of P", "exponent of S", "exponent of T", "exponent of C", "R²"}
PREDICTIONS = ("predicted", "skill", "held_out")  # figures of a section of their own
WIDE_INCHES = 6.5  # a figure of more is not shrunk to a phone's width
ONE_DECIMAL = ("CIDEr", "gated CIDEr", "BLEU", "chrF")  # columns that begin so: 0 to 100 and more
SIGNS = {True: ("✓", "holds", "yes"), False: ("✗", "does-not", "no"), None: ("–", "not-measured", "not measured")}


def render_page(
    study: Study,
    claims: Sequence[Claim],
    laws: StudyLaws,
    drawings: Sequence[Drawing],
    pngs: Mapping[str, bytes],
    tables: Mapping[str, Table],
) -> str:
    return render(
        TEMPLATE,
        study=study.name,
        lead=_lead(study, claims),
        verdicts=[(verdict, _class(verdict), sum(c.verdict == verdict for c in claims)) for verdict in VERDICTS],
        shown_model=_shown_model(study),
        claims=[claim_values(claim) for claim in claims],
        answers=answers(study, laws),
        figures=[_figure(drawing, pngs) for drawing in drawings],
        gallery=picture_cards(study),
        law_family=laws.family if laws.laws else "none",
        tables={
            "captions": page_table(_of_split(tables["captions"], EVAL)),
            "holdout": page_table(_of_split(tables["captions"], HOLDOUT)),
            "downstream": page_table(tables["downstream"]),
            "laws": page_table(laws_shown(tables["laws"], laws), hidden=() if laws.laws else ("family",)),
            "skill": page_table(tables["skill"]),
            "trials": page_table(tables["trials"]),
            "runs": page_table(tables["runs"]),
            "languages": page_table(tables["languages"]),
            "timing": page_table(tables["timing"]),
        },
        run=_run(study),
    )


def _lead(study: Study, claims: Sequence[Claim]) -> dict[str, Any]:
    unseen = study.unseen_languages
    return {
        "captioned": _names(study, [code for code in study.caption_languages if code not in unseen]),
        "source": _names(study, [study.coverage.source_language]),
        "translated": _names(study, [pair.language for pair in study.coverage.pairs_of(TRANSLATION, seen=True)]),
        "unseen": _names(study, unseen),
        "num_runs": len(study.records),
        "num_claims": len(claims),
        "num_held": sum(claim.verdict == HOLDS for claim in claims),
        "has_world": study.config.get("source", WORLD) == WORLD and isinstance(study.config.get(WORLD), dict),
    }


def _names(study: Study, codes: Sequence[str]) -> str:
    names = [study.language_name(code) for code in dict.fromkeys(codes)]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "no language"


def _class(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _shown_model(study: Study) -> dict[str, Any] | None:
    main = study.headline()
    if main is None:
        return None
    return {
        "size": main.key.size,
        "base": main.key.base,
        "parameters": number(main.records[0].P),
        "samples": number(main.key.S),
        "num_seeds": len(main.records),
    }


def claim_values(claim: Claim) -> dict[str, Any]:
    return {
        "key": claim.key,
        "title": claim.title,
        "verdict": claim.verdict,
        "look": _class(claim.verdict),
        "conditions": [_condition(condition) for condition in claim.conditions],
        "notes": claim.notes,
    }


def _condition(condition: Condition) -> dict[str, Any]:
    sign, look, word = SIGNS[condition.holds]
    measured = condition.measured
    shown = estimate(measured, condition.decimals, condition.unit)
    if condition.holds is None and measured is not None and measured.is_number:
        shown += f" ({measured.method})"
    return {
        "sign": sign,
        "look": look,
        "word": word,
        "what": condition.what,
        "shown": shown,
        "method": "" if measured is None else measured.method,
        "needs": condition.needs,
        "is_deciding": condition.is_deciding,
    }


def _figure(drawing: Drawing, pngs: Mapping[str, bytes]) -> dict[str, Any]:
    values: dict[str, Any] = {"name": drawing.name, "title": drawing.title, "caption": drawing.caption}
    values |= {"missing": drawing.missing, "is_shown": drawing.is_shown, "is_prediction": drawing.name in PREDICTIONS}
    if drawing.figure is None or drawing.name not in pngs:
        return values | {"png": None}
    width = drawing.figure.get_figwidth()
    return values | {"png": pngs[drawing.name], "is_wide": width > WIDE_INCHES, "width_px": round(96 * width)}


def page_table(table: Table, hidden: Sequence[str] = ()) -> dict[str, Any]:
    """Column names, and rows of (text, how it looks)."""
    places = [place for place, name in enumerate(table.columns) if name not in hidden]
    return {
        "columns": [table.columns[place] for place in places],
        "rows": [[_cell(row[place], table.columns[place]) for place in places] for row in table.rows],
    }


def _cell(value: Value, column: str) -> tuple[str, str]:
    decimals = 3 if column in EXPONENTS else 1 if column.startswith(ONE_DECIMAL) else 2
    if isinstance(value, str):
        return value, "note" if column == "note" else ""
    if isinstance(value, Estimate):
        text = estimate(value, decimals)
    elif column in LARGE and value is not None:
        text = number(float(value))
    elif column in PERCENT and value is not None:
        text = f"{decimal(100 * value, 1)} %"
    elif isinstance(value, int):
        text = str(value)
    else:
        text = decimal(value, 1 if column.startswith("seconds") else decimals)
    return text, "number"


def _of_split(table: Table, split: str) -> Table:
    place = table.columns.index("pictures")
    return Table(table.name, table.columns, tuple(row for row in table.rows if row[place] == split))


def _run(study: Study) -> dict[str, Any]:
    kinds = [record.kind for record in study.records]
    names = KIND_NAMES | {TRIAL: "trials"}
    versions: dict[str, set[str]] = {}
    for record in study.records:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    wall = study.timing.wall_seconds
    config = {name: value for name, value in study.config.items() if name not in ("output", "num_workers")}
    return {
        "num_runs": len(kinds),
        "counts": "; ".join(f"{name}: {kinds.count(kind)}" for kind, name in names.items() if kind in kinds),
        "config_hash": study.config_hash,
        "took": None if wall is None else duration(wall),
        "num_workers": max((sitting.workers for sitting in study.timing.sessions), default=1),
        "versions": ", ".join(f"{name} {' and '.join(sorted(found))}" for name, found in sorted(versions.items())),
        "config": json.dumps(config, ensure_ascii=False, indent=2, sort_keys=True) if config else "",
    }
