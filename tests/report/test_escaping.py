"""Whatever a study's files hold reaches the page as text: a script planted in every field is shown, never run."""

import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from babelcap.records import RunRecord, write_run_records
from babelcap.report.build import make_claims, make_tables
from babelcap.report.drawings import Drawing
from babelcap.report.figures.style import drawing
from babelcap.report.page import render_page
from babelcap.report.study_folder import read_study
from babelcap.report.study_laws import fit_study_laws
from babelcap.report.verdicts import Claim

SCRIPT = """<script>x()</script><img src=x onerror=x()>"' onload=x()"""


class Elements(HTMLParser):
    """The elements of a page and their attributes, as a browser would see them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


def planted(value: Any, keep: Callable[[str], bool] = lambda name: False, name: str = "") -> Any:
    """The same JSON with the script in every text, and in every key of what is not a field of ours."""
    if isinstance(value, dict):
        return {key: planted(part, keep, key) for key, part in value.items()}
    if isinstance(value, list):
        return [planted(part, keep, name) for part in value]
    return SCRIPT if isinstance(value, str) and not keep(name) else value


@pytest.fixture
def folder(study_folder: Path, records: list[RunRecord], tmp_path: Path) -> Path:
    """A study with scripts wherever text may stand."""
    copy = tmp_path / "study"
    shutil.copytree(study_folder, copy)
    names = {"study": f"study {SCRIPT}", "versions": {SCRIPT: SCRIPT}, "config_hash": SCRIPT}
    changed = [
        record.model_copy(
            update=names
            | {"run": record.run + SCRIPT, "size": record.size + SCRIPT, "base": record.base + SCRIPT}
            | {"started_from": record.started_from and record.started_from + SCRIPT}
            | {"family": record.family + SCRIPT}
        )
        for record in records
        if record.size in ("micro-gemma-l", "micro-gemma-m", "micro-florence-s") and record.seed == 0
    ]
    write_run_records(copy / "runs.jsonl", [*changed, changed[0].model_copy(update={"kind": SCRIPT, "run": SCRIPT})])
    study = json.loads((copy / "study.json").read_text())
    for language in study["config"]["world"]["coverage"]["languages"]:
        language |= {"name": language["name"] + SCRIPT, "prefix": language["prefix"] + SCRIPT}
    study["config"] |= {"name": SCRIPT, "note": SCRIPT, SCRIPT: {SCRIPT: [SCRIPT]}}
    (copy / "study.json").write_text(json.dumps(study | {"hash": SCRIPT}))
    gallery = json.loads((copy / "gallery.json").read_text())
    shown = planted(gallery, keep=lambda name: name in ("png_base64", "run", "language", "variant"))
    for picture in shown["pictures"]:
        for caption in picture["captions"]:
            caption |= {"run": caption["run"] + SCRIPT, "marks": [[0, 8, SCRIPT]], "right": False}
        picture["captions"].append(picture["captions"][0] | {"run": SCRIPT})
    (copy / "gallery.json").write_text(json.dumps(shown))
    (copy / "timing.json").write_text(
        json.dumps({"steps": [{"kind": SCRIPT}], "core_seconds": {SCRIPT: 1.0}, "wall_seconds": 3.0})
    )
    return copy


def test_a_script_in_every_field_is_text(folder: Path) -> None:
    study = read_study(folder)
    laws = fit_study_laws(study)
    claims = make_claims(study, laws)
    claims[0] = Claim(SCRIPT, SCRIPT, claims[0].conditions, (SCRIPT,))
    with drawing(3, 2) as figure:
        drawings = [Drawing(SCRIPT, SCRIPT, SCRIPT, figure, SCRIPT), Drawing("none", SCRIPT, SCRIPT, None, SCRIPT)]
    page = render_page(study, claims, laws, drawings, {SCRIPT: b"png"}, make_tables(study, claims, laws))
    assert page.count("&lt;script&gt;") > 100
    for name in ("study", "size", "base", "family", "language name", "configuration"):
        assert SCRIPT.partition(">")[0] + ">" not in page, name
    elements = Elements()
    elements.feed(page)
    assert {tag for tag, _ in elements.found} <= {
        "html", "head", "meta", "title", "link", "style", "body", "main", "h1", "h2", "h3", "p", "nav", "a", "section",
        "span", "b", "br", "article", "table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "div", "img",
        "details", "summary", "pre", "dl", "dt", "dd",
    }  # fmt: skip
    for tag, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"<script|javascript:", page)


def test_marked_words_and_titles_are_text(folder: Path) -> None:
    """The mark's own word stands in a title: quotes in it do not end the attribute."""
    study = read_study(folder)
    laws = fit_study_laws(study)
    page = render_page(study, [], laws, [], {}, make_tables(study, [], laws))
    titles = [attributes["title"] for tag, attributes in _elements(page) if attributes.get("class") == "wrong"]
    assert f"wrong: {SCRIPT}" in titles


def _elements(page: str) -> list[tuple[str, dict[str, str | None]]]:
    elements = Elements()
    elements.feed(page)
    return elements.found
