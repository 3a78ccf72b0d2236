"""The page: what was claimed and measured, figures, tables, gallery and how to do it again, in one HTML file.

Every number comes from the study's records; this module holds words and layout alone.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from babelcap.coverage import TRANSLATION
from babelcap.jobs.progress import duration
from babelcap.report.drawings import Drawing
from babelcap.report.figures import number
from babelcap.report.formatting import decimal, estimate
from babelcap.report.gallery import gallery_html
from babelcap.report.reading import EVAL, HOLDOUT, KIND_NAMES, Study, kind_of
from babelcap.report.statistics import Estimate
from babelcap.report.study_laws import StudyLaws
from babelcap.report.style import CSS
from babelcap.report.tables import Table, Value, laws_shown
from babelcap.report.verdicts import HOLDS, VERDICTS, Claim, Condition

LARGE = {"P", "Pt", "S", "C"}
PERCENT = {"error, largest budget left out", "error, one size left out"}
EXPONENTS = {"exponent of P", "exponent of S", "exponent of T", "exponent of C", "R²"}


def render_page(
    study: Study,
    claims: Sequence[Claim],
    laws: StudyLaws,
    drawings: Sequence[Drawing],
    pngs: Mapping[str, Path],
    tables: Mapping[str, Table],
) -> str:
    sections = [
        ("claims", "The claims, and what was measured here", _claims(study, claims)),
        ("figures", "Figures", "\n".join(_figure(drawing, pngs) for drawing in drawings)),
        ("gallery", "Pictures and captions", gallery_html(study)),
        ("numbers", "Numbers", _numbers(laws, tables)),
        ("run", "What was run, and how to run it again", _run(study, tables["timing"])),
    ]
    menu = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _ in sections)
    body = "\n".join(
        f'<section id="{key}"><h2>{escape(title)}</h2>\n{html}\n</section>' for key, title, html in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(study.name)}: captioning in languages never captioned in</title>"
        f'<link rel="icon" href="data:,"><style>{CSS}</style></head>\n<body><main>\n'
        "<h1>Captioning in languages never captioned in</h1>\n"
        f"{_lead(study, claims)}\n<nav>{menu}</nav>\n{body}\n</main></body></html>\n"
    )


def _names(study: Study, codes: Sequence[str]) -> str:
    names = [study.coverage.language(code).name.removeprefix("simplified ") for code in codes]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "no language"


def _lead(study: Study, claims: Sequence[Claim]) -> str:
    unseen = study.unseen_languages
    seen = [code for code in study.caption_languages if code not in unseen]
    into = [pair.language for pair in study.coverage.pairs_of(TRANSLATION, seen=True)]
    num_held = sum(claim.verdict == HOLDS for claim in claims)
    return (
        f'<p class="lead">Image captioners were trained on captions in {_names(study, seen)} and on translations from '
        f"{_names(study, [study.coverage.source_language])} into {_names(study, into)}, never on captions in "
        f"{_names(study, unseen)}. This page says whether they caption in those languages all the same, when, and by "
        f"what law the loss falls with model size, samples and the base model. It rests on {len(study.records)} "
        f"runs of the study “{escape(study.name)}”, with a world of drawn scenes whose truth is known; of "
        f"{len(claims)} claims of the paper {num_held} hold here.</p>"
    )


def _claims(study: Study, claims: Sequence[Claim]) -> str:
    counts = " · ".join(
        f'<span class="verdict {_class(verdict)}">{verdict}</span> {sum(claim.verdict == verdict for claim in claims)}'
        for verdict in VERDICTS
    )
    main = study.headline()
    where = ""
    if main is not None:
        where = (
            f"Captions are those of the largest model at its largest budget ({escape(main.key.size)}, base "
            f"{escape(main.key.base)}, {number(main.records[0].P)} parameters, {number(main.key.S)} samples, "
            f"seeds: {len(main.records)}), averaged over the languages never captioned in, unless said otherwise. "
        )
    how = (
        "Intervals are 95 %: of shares, the wider of Student’s t over seeds and Wilson’s (of differences Newcombe’s) "
        "over pictures; of losses, t over seeds; of exponents, those of the fit with the seeds of a run kept together. "
        "A claim <b>holds</b> when all its conditions do, <b>does not</b> when no deciding one does, and holds "
        "<b>partly</b> between these; targets (in grey) say how well it should hold at this scale."
    )
    cards = "\n".join(_claim(claim) for claim in claims)
    return f'<p>{counts}</p>\n<p class="soft">{where}{how}</p>\n{cards}'


def _class(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _claim(claim: Claim) -> str:
    rows = "".join(_condition(condition) for condition in claim.conditions)
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in claim.notes)
    return (
        f'<article class="claim" id="claim-{claim.key}"><h3><span>{escape(claim.title)}</span>'
        f'<span class="verdict {_class(claim.verdict)}">{claim.verdict}</span></h3>'
        f"<table><thead><tr><th></th><th>measured</th><th>value [95 % interval]</th><th>needs</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>{notes}</article>"
    )


def _condition(condition: Condition) -> str:
    sign, look, word = {
        True: ("✓", "holds", "yes"),
        False: ("✗", "does-not", "no"),
        None: ("–", "not-measured", "not measured"),
    }[condition.holds]
    soft = "" if condition.is_deciding else ' class="soft"'
    method = "" if condition.measured is None else f' title="{escape(condition.measured.method)}"'
    target = "" if condition.is_deciding else "target: "
    shown = estimate(condition.measured, condition.decimals, condition.unit)
    if condition.holds is None and condition.measured is not None:
        shown += f" ({escape(condition.measured.method)})"
    return (
        f'<tr><td class="{look}" title="{word}">{sign}</td><td{soft}>{escape(condition.what)}</td>'
        f'<td class="number"{method}>{shown}</td><td{soft}>{target}{escape(condition.needs)}</td></tr>'
    )


def _figure(drawing: Drawing, pngs: Mapping[str, Path]) -> str:
    if drawing.figure is None or drawing.name not in pngs:
        return (
            f'<figure><figcaption><b>{escape(drawing.title)}</b> <span class="not-measured">not measured</span>: '
            f"{escape(drawing.missing)}</figcaption></figure>"
        )
    data = base64.b64encode(pngs[drawing.name].read_bytes()).decode("ascii")
    wide = " wide" if drawing.figure.get_figwidth() > 6.5 else ""
    width = round(96 * drawing.figure.get_figwidth())
    return (
        f'<figure id="figure-{drawing.name}"><div class="plot{wide}"><img width="{width}" '
        f'alt="{escape(drawing.title)}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption><b>{escape(drawing.title)}</b> {escape(drawing.caption)} "
        f'<span class="soft">{drawing.name}.png, .svg</span></figcaption></figure>'
    )


def table_html(table: Table, hidden: Sequence[str] = ()) -> str:
    places = [place for place, name in enumerate(table.columns) if name not in hidden]
    if not table.rows:
        return '<p class="not-measured">not measured</p>'
    head = "".join(f"<th>{escape(table.columns[place])}</th>" for place in places)
    rows = "".join(
        f"<tr>{''.join(_cell(row[place], table.columns[place]) for place in places)}</tr>" for row in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(value: Value, column: str) -> str:
    decimals = 3 if column in EXPONENTS else 2
    if isinstance(value, str):
        look = ' class="note"' if column == "note" else ""
        return f"<td{look}>{escape(value)}</td>"
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
    return f'<td class="number">{text}</td>'


def _of_split(table: Table, split: str) -> Table:
    place = table.columns.index("pictures")
    return Table(table.name, table.columns, tuple(row for row in table.rows if row[place] == split))


def _numbers(laws: StudyLaws, tables: Mapping[str, Table]) -> str:
    family = f"“{laws.family}”" if laws.laws else "none"
    return (
        "<p>Each table is also a CSV file beside this page, with all digits.</p>"
        "<h3>Captions in the languages never captioned in</h3>" + table_html(_of_split(tables["captions"], EVAL))
        + "<details><summary>The same on combinations that training never showed</summary>"
        + table_html(_of_split(tables["captions"], HOLDOUT))
        + "</details>"
        + f'<h3>Laws</h3><p class="soft">Models of the family {escape(family)}, by which the claims are judged: the '
        "one with most runs in which size, samples and base vary on their own; laws.csv has the others. T is the same "
        "loss before training. “compute” is fitted to the best loss at each compute.</p>"
        + table_html(laws_shown(tables["laws"], laws), hidden=("family",) if not laws.laws else ())
        + "<details><summary>Every model, base and budget (losses after the prefix, mean over seeds)</summary>"
        + table_html(tables["runs"])
        + "</details><details><summary>Every language</summary>"
        + table_html(tables["languages"])
        + "</details>"
    )  # fmt: skip


def _run(study: Study, timing: Table) -> str:
    kinds = [kind_of(record) for record in study.records]
    counts = "; ".join(f"{name}: {kinds.count(kind)}" for kind, name in KIND_NAMES.items() if kind in kinds)
    sessions = study.timing.get("sessions", [])
    wall = study.timing.get("wall_seconds")
    took = '<p class="not-measured">How long it took was not kept.</p>'
    if wall is not None:
        workers = max((int(session.get("workers", 1)) for session in sessions), default=1)
        took = f"<p>It took {duration(float(wall))} with {workers} worker processes of one thread each.</p>"
    versions: dict[str, set[str]] = {}
    for record in study.records:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    with_versions = ", ".join(f"{name} {' and '.join(sorted(found))}" for name, found in sorted(versions.items()))
    config = {name: value for name, value in study.config.items() if name not in ("output", "num_workers")}
    settings = ""
    if config:
        shown = escape(json.dumps(config, ensure_ascii=False, indent=2, sort_keys=True))
        settings = f"<details><summary>The whole configuration</summary><pre>{shown}</pre></details>"
    hashed = f" Configuration {escape(study.config_hash)}." if study.config_hash else ""
    return (
        f"<p>{len(kinds)} runs ({escape(counts)}).{hashed}</p>{took}{table_html(timing)}"
        f"<p>Versions: {escape(with_versions) or 'not kept'}.</p>{settings}"
        "<p>Run the study again (what is done already is not done again), or only build this page from its records, "
        "which needs no model and no accelerator:</p>"
        f"<pre>babelcap study run configs/study/{escape(study.name)}.toml\nbabelcap report build STUDY_FOLDER</pre>"
    )
