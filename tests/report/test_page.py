"""The page is made of records: rebuilt from them it is the same, and where they change it changes."""

import csv
import io
import json
import math
import re
import shutil
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.errors import UserError
from babelcap.records import EvalResult, RunRecord, read_run_records, write_run_records
from babelcap.report import build_report
from babelcap.report.build import make_claims, make_tables
from babelcap.report.cards import marked_parts
from babelcap.report.figures.captions import content_figure
from babelcap.report.formatting import decimal, estimate
from babelcap.report.page import page_table, render_page
from babelcap.report.statistics import Estimate
from babelcap.report.study_folder import Study, read_study
from babelcap.report.study_laws import fit_study_laws
from babelcap.report.tables import captions_table

VOID = {"meta", "link", "img", "br"}


class Checker(HTMLParser):
    """Every element is closed in its turn; every address that a browser would load is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "srcset")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def without_figures(folder: Path) -> str:
    """The page's words and numbers, without the seconds that figures take."""
    study = read_study(folder)
    laws = fit_study_laws(study)
    claims = make_claims(study, laws)
    return render_page(study, claims, laws, [], {}, make_tables(study, claims, laws))


@pytest.fixture(scope="module")
def copy(study_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy") / "study"
    shutil.copytree(study_folder, folder)
    return folder


@pytest.fixture(scope="module")
def page(copy: Path) -> Path:
    return build_report(copy)


@pytest.fixture(scope="module")
def html(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_it_is_rebuilt_byte_for_byte(page: Path, copy: Path, tmp_path: Path) -> None:
    again = build_report(copy, tmp_path / "again").parent
    names = sorted(path.name for path in page.parent.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    for name in names:
        assert (page.parent / name).read_bytes() == (again / name).read_bytes(), name


def test_it_needs_nothing_from_elsewhere(html: str) -> None:
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    assert len(checker.addresses) > 10
    assert all(address.startswith(("data:", "#")) for address in checker.addresses)
    assert "@import" not in html
    assert "url(" not in html
    assert "<script" not in html


def test_every_figure_and_table_lies_beside_it(page: Path, html: str) -> None:
    figures = re.findall(r'id="figure-(\w+)"', html)
    assert len(figures) == 12
    for name in figures:
        assert (page.parent / f"{name}.png").stat().st_size > 5000
        assert (page.parent / f"{name}.svg").stat().st_size > 5000
    for name in ("claims", "captions", "downstream", "languages", "runs", "laws", "timing"):
        rows = list(csv.reader(io.StringIO((page.parent / f"{name}.csv").read_text(encoding="utf-8"))))
        assert len(rows) > 1
        assert len({len(row) for row in rows}) == 1
        assert len(set(rows[0])) == len(rows[0]), name  # no two columns of one name


def test_the_numbers_of_every_claim_are_in_the_page(copy: Path, html: str) -> None:
    study = read_study(copy)
    for claim in make_claims(study, fit_study_laws(study)):
        card = html.split(f'id="claim-{claim.key}"')[1].split("</article>")[0]
        assert f">{claim.verdict}</span>" in card
        for condition in claim.conditions:
            assert estimate(condition.measured, condition.decimals, condition.unit) in card
            assert condition.needs in unescape(card)


def test_a_table_holds_what_the_records_hold(copy: Path, page: Path) -> None:
    """UC of one cell, worked out from runs.jsonl alone."""
    found = [
        result.per_split["UC"]
        for record in read_run_records(copy / "runs.jsonl")
        if (record.size, record.base, record.S) == ("micro-gemma-m", "english", 4000) and record.kind == "main"
        for result in record.results
        if result.measure == "cross_entropy/sample_mean/conditioned"
    ]
    rows = csv.DictReader(io.StringIO((page.parent / "runs.csv").read_text(encoding="utf-8")))
    row = next(r for r in rows if (r["size"], r["base"], r["S"]) == ("micro-gemma-m", "english", "4000"))
    assert len(found) == 3
    assert float(row["UC"]) == pytest.approx(sum(found) / 3)


def test_a_changed_record_changes_the_page(copy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(copy, folder, ignore=shutil.ignore_patterns("report"))
    before = without_figures(folder)
    assert without_figures(folder) == before
    records = read_run_records(folder / "runs.jsonl")
    place = next(i for i, r in enumerate(records) if r.size == "micro-florence-s" and r.num_steps == 500)
    results = [
        result.model_copy(update={"per_split": result.per_split | {"UC": 9.87}})
        if result.measure == "cross_entropy/sample_mean/conditioned"
        else result
        for result in records[place].results
    ]
    records[place] = records[place].model_copy(update={"results": results})
    write_run_records(folder / "runs.jsonl", records)
    assert without_figures(folder) != before


def test_words_of_captions_are_text_and_not_markup(html: str) -> None:
    assert "&lt;a la izquierda&gt;" in html
    assert "<a la izquierda>" not in html
    for text in ("Слева красная кошка.", "左边有一只红色的猫。", "Un chat rouge à gauche."):
        assert text in html
    assert '<span class="prefix">图为</span>一只' in html  # no space in Chinese
    assert '<span class="prefix">На картинке изображен</span>а красная' in html  # one word, as the model wrote it


def test_what_is_wrong_is_marked_word_by_word(html: str) -> None:
    assert '<span class="wrong" title="wrong: colour">猫</span>' not in html  # the mark is two characters long
    assert '<span class="wrong" title="wrong: colour">的猫</span>。' in html
    assert "✗ wrong: colour" in html
    assert "✗ other language" in html
    assert "Of the 12 captions below" in html
    assert re.search(r"✓\s+8</span> are right", html)  # two of three pictures, four languages


def test_parts_of_a_caption() -> None:
    def parts(*marks: tuple[int, int, str], given: int = 0) -> list[tuple[str, str, str]]:
        return [(p["text"], p["wrong"], p["look"]) for p in marked_parts("two red cats", given, marks)]

    assert parts() == [("two red cats", "", "")]
    assert parts((4, 7, "colour")) == [("two ", "", ""), ("red", "colour", ""), (" cats", "", "")]
    assert parts((4, 12, "object"), (4, 7, "colour"), given=3) == [
        ("two", "", "prefix"), (" ", "", ""), ("red", "object, colour", ""), (" cats", "object", ""),
    ]  # fmt: skip
    assert parts((-5, 3, "count"), (8, 99, "object"))[0] == ("two", "count", "")  # spans that leave the text are cut
    assert marked_parts("", 0, [(0, 4, "object")]) == []


def test_captions_of_earlier_galleries_bear_no_ticks(study_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    shutil.copytree(study_folder, folder)
    gallery = json.loads((folder / "gallery.json").read_text(encoding="utf-8"))
    for picture in gallery["pictures"]:
        for caption in picture["captions"]:
            del caption["marks"], caption["right"]
            caption |= {"text": " was folgt.", "objects_right": 1.0, "colours_right": 1.0}
    (folder / "gallery.json").write_text(json.dumps(gallery))
    text = without_figures(folder).split('id="gallery"')[1].split("</section>")[0]
    assert "✓" not in text
    assert "were kept without a mark" in text
    assert '<span class="prefix">Das Bild zeigt</span> was folgt.' in text  # the whole caption all the same


def test_records_alone_are_enough(records: list[RunRecord], tmp_path: Path) -> None:
    """No gallery, configuration or timing; and then a single run: stated, never a crash."""
    write_run_records(tmp_path / "runs.jsonl", records)
    text = without_figures(tmp_path)
    assert "No pictures with captions were kept" in text
    assert "How long it took was not kept" in text
    lonely = next(r for r in records if r.kind == "main").model_copy(update={"results": [], "initial": [], "T": {}})
    write_run_records(tmp_path / "runs.jsonl", [lonely])
    html = build_report(tmp_path).read_text(encoding="utf-8")
    assert re.findall(r'class="verdict [\w-]+">([\w ]+)</span></h3>', html) == ["not measured"] * 12
    assert html.count('<span class="not-measured">not measured</span>') == 11  # the figures


def test_other_files_in_the_output_are_left_alone(records: list[RunRecord], tmp_path: Path) -> None:
    write_run_records(tmp_path / "runs.jsonl", [records[0].model_copy(update={"results": [], "initial": []})])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    build_report(tmp_path, tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").read_text() == "keep"


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no runs\.jsonl"):
        build_report(tmp_path)
    (tmp_path / "runs.jsonl").write_text("")
    with pytest.raises(UserError, match="no runs"):
        build_report(tmp_path)


def test_a_damaged_gallery_is_named(records: list[RunRecord], tmp_path: Path) -> None:
    write_run_records(tmp_path / "runs.jsonl", records[:1])
    picture = {"key": "1", "png_base64": '"><script>', "truth": "", "captions": []}
    (tmp_path / "gallery.json").write_text(json.dumps({"pictures": [picture]}))
    with pytest.raises(UserError, match="not base64"):
        without_figures(tmp_path)
    (tmp_path / "gallery.json").write_text(json.dumps({"pictures": [{"key": "1"}]}))
    with pytest.raises(UserError, match="png_base64: Field required"):
        without_figures(tmp_path)


def test_the_command_prints_the_page_or_json(records: list[RunRecord], tmp_path: Path) -> None:
    write_run_records(tmp_path / "runs.jsonl", [records[0].model_copy(update={"results": [], "initial": []})])
    done = CliRunner().invoke(app, ["report", "build", str(tmp_path), "-o", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert Path(found["page"]).is_file()
    assert {claim["verdict"] for claim in found["claims"]} == {"not measured"}
    done = CliRunner().invoke(app, ["report", "build", str(tmp_path / "nowhere")])
    assert done.exit_code == 2
    assert "has no runs.jsonl" in done.stderr


def test_it_builds_without_torch() -> None:
    code = "import sys, babelcap.report.build; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("number", "text"), [(0.005, "0.01"), (-0.001, "0.00"), (-0.16, "−0.16"), (float("inf"), "no bound"), (None, "–")]
)
def test_numbers_are_written_plainly(number: float | None, text: str) -> None:
    assert decimal(number) == text


def test_an_estimate_shows_its_interval() -> None:
    assert estimate(Estimate(0.918, 0.85, 0.96)) == "0.92 [0.85, 0.96]"
    assert estimate(Estimate(0.0153), 1, "%") == "1.5 %"
    assert estimate(None) == "not measured"


def test_a_rate_over_nothing_is_shown_as_such(records: list[RunRecord]) -> None:
    """In the table of the page, in the CSV as a number that is none, and in the figure where its marker would be."""

    def silent(result: EvalResult) -> EvalResult:
        if not result.measure.startswith("captions/colours/") or result.measure.endswith("chance"):
            return result
        per_pair = {p: math.nan if p[8:] in ("fr", "es", "ru", "zh") else v for p, v in result.per_pair.items()}
        return result.model_copy(update={"per_pair": per_pair, "per_split": result.per_split | {"unseen": math.nan}})

    changed = [
        record.model_copy(update={"results": [silent(result) for result in record.results]})
        if record.kind == "no-translation"
        else record
        for record in records
        if record.size == "micro-gemma-l"
    ]
    study = Study(tuple(changed))
    table = captions_table(study)
    row = next(r for r in table.rows if r[0] == "no translations at all" and r[3] == "prefix")
    colours = row[table.columns.index("colours")]
    assert isinstance(colours, Estimate)
    assert not colours.is_number
    assert ("nothing named", "number") in page_table(table)["rows"][table.rows.index(row)]
    assert ",nan,," in table.to_csv()
    main = study.headline()
    assert main is not None
    figure = content_figure(study, main)
    assert figure is not None
    shown = [[text.get_text() for text in axes.texts].count("nothing named") for axes in figure.axes]
    assert shown == [0, 4, 0]  # colours of the four languages never captioned in
