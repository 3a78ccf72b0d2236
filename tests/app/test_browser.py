"""The app in a real browser: every tab, wide and narrow, with bad uploads, and no request that leaves the machine."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.pictures import bad_pictures, good_pictures
from app.servers import running
from app.visits import NARROW, WIDE, choose_sample, keep, open_tab, opened_page

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("gradio")
pytestmark = pytest.mark.app

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENT = ("--timeout", "300")
RESULT = "#caption-results .bc-card"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(ROOT / "results" / "small", tmp_path_factory.mktemp("study") / "small"))


@pytest.fixture(scope="module")
def address(world: Path, study: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = ("--study", str(study), "--corpus", str(world), "--max-megapixels", "4", "--max-upload-mib", "1")
    with running("app", "--model", "micro", *options, *PATIENT, folder=tmp_path_factory.mktemp("app")) as (found, _):
        yield found


@pytest.fixture(scope="module")
def empty_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running("app", folder=tmp_path_factory.mktemp("empty")) as (found, _):
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.fail("no Chromium here; apt-get install chromium, or run make test-app as root")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(params=[WIDE, NARROW], ids=["wide", "narrow"])
def page(browser: Any, address: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    yield from opened_page(browser, address, request.param)


@pytest.fixture
def wide_page(browser: Any, address: str) -> Iterator[Any]:
    yield from opened_page(browser, address, WIDE)


def test_captions_side_by_side(page: Any) -> None:
    assert "drawn" in page.locator("#header").inner_text()  # what the model can and cannot do
    choose_sample(page, "caption")
    page.get_by_label("Prompt alone, shortlist of the language").check()
    page.locator("#caption-run").click()
    page.locator(RESULT).first.wait_for()
    assert page.locator(RESULT).count() == 6
    assert page.locator("#caption-results section").count() == 18
    heat = page.locator("#caption-results .bc-heat")
    assert not heat.is_visible()
    word = page.locator("#caption-results [data-language=de] .bc-word:not(.bc-given)").first
    word.hover()
    assert heat.is_visible()
    tip = word.evaluate("node => getComputedStyle(node, '::after').content")
    assert "%" in tip
    assert page.locator("#caption-results .bc-figure").bounding_box()["y"] >= 0  # in sight beside the word
    assert "probability" in (word.get_attribute("aria-label") or "")
    keep(page, "caption")
    page.mouse.move(0, 0)
    assert not heat.is_visible()
    word.focus()  # by keyboard alone
    assert heat.is_visible()


def test_a_language_that_was_not_asked_for_is_flagged(wide_page: Any) -> None:
    """Without its prefix a language of the hole may come out as another; what the page says is what was identified."""
    choose_sample(wide_page, "caption")
    wide_page.locator("#caption-run").click()
    wide_page.locator(RESULT).first.wait_for()
    texts = wide_page.locator("#caption-results section").all_inner_texts()
    assert all("written in" in text or "✓ in" in text or "not recognised" in text for text in texts)
    with_prefix = [text for text in texts if "prefix" in text.lower()]
    assert sum("✓ in" in text for text in with_prefix) >= 5


def test_nothing_chosen_is_told_in_words(wide_page: Any) -> None:
    assert "No captions yet" in wide_page.locator("#caption-results").inner_text()
    wide_page.locator("#caption-run").click()
    wide_page.get_by_text("Choose a picture first").first.wait_for()
    open_tab(wide_page, "Translate")
    wide_page.locator("#translate-run").click()
    wide_page.get_by_text("Write a text to translate first").first.wait_for()
    assert wide_page.locator("#caption-results .bc-card").count() == 0


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_without_study_and_corpus(browser: Any, empty_address: str, size: tuple[int, int]) -> None:
    """What is missing and what to type; the paper's laws are there anyway."""
    for page in opened_page(browser, empty_address, size):
        open_tab(page, "Study")
        page.get_by_text("babelcap app --study").wait_for()
        open_tab(page, "Dataset")
        page.get_by_text("babelcap app --corpus").wait_for()
        open_tab(page, "Law")
        page.get_by_text("what the printed digits allow").first.wait_for()
        page.get_by_label("How much").fill("many")
        page.locator("#law-plan").click()
        page.get_by_text("write a number").wait_for()


def upload(page: Any, name: str, content: bytes) -> None:
    page.reload()
    page.locator("#caption-run").wait_for()
    chosen = page.locator("#caption-picture input[type=file]").first
    chosen.set_input_files({"name": name, "mimeType": "image/png", "buffer": content})


def test_bad_uploads_get_a_message_and_the_app_lives_on(wide_page: Any) -> None:
    page = wide_page
    for name, (content, word) in bad_pictures().items():
        upload(page, name, content)
        page.locator("#caption-picture img").first.wait_for(state="attached")
        page.locator("#caption-run").click()
        page.get_by_text(word).first.wait_for()
        assert page.title() == "babelcap", name  # no script of a picture has run
    for name, content in good_pictures().items():
        upload(page, name, content)
        page.locator("#caption-picture img").first.wait_for(state="attached")
        page.locator("#caption-run").click()
        page.locator(RESULT).first.wait_for()
    upload(page, "large.png", bytes(2 * 2**20))
    page.get_by_text("exceed the maximum").first.wait_for()


def test_translations_with_and_without_the_picture(page: Any) -> None:
    open_tab(page, "Translate")
    hostile = "A big car <b>and</b> ${1 + 1} {{value}} a cube."
    page.get_by_label("Text in English").fill(hostile)
    choose_sample(page, "translate")
    page.locator("#translate-run").click()
    page.locator("#translate-results .bc-card").first.wait_for()
    assert page.locator("#translate-results section").count() == 10
    badges = page.locator("#translate-results .bc-badge").all_inner_texts()
    marked = page.locator("#translate-results mark").count()
    assert ("changed by the picture" in badges) == (marked > 0)
    page.get_by_label("Text in English").fill("A big orange car in the snow.")
    cards = "#translate-results .bc-cards"
    before = page.locator(cards).inner_text()
    page.locator("#translate-run").click()
    page.wait_for_function("([place, text]) => document.querySelector(place).innerText !== text", arg=[cards, before])
    page.wait_for_timeout(500)  # the shade of loading goes
    keep(page, "translate")


def test_laws_to_play_with(page: Any, tmp_path: Path) -> None:
    open_tab(page, "Law")
    page.locator("#law-results .bc-table").wait_for()
    assert page.locator("#law-results [data-target]").count() == 3
    assert page.locator("#law-results .bc-warning").count() == 0
    page.locator("#law-map img").wait_for()
    before = page.locator("#law-results [data-target=ST]").inner_text()
    samples = page.locator("#law-S input[type=range]")
    samples.focus()
    samples.press("End")
    page.locator("#law-results .bc-warning").wait_for()
    assert "no run says" in page.locator("#law-results .bc-warning").inner_text().lower()
    assert page.locator("#law-results [data-target=ST]").inner_text() != before
    page.locator("#law-plan").click()
    page.locator("#law-plan-results .bc-table").wait_for()
    keep(page, "law")
    page.get_by_label("The paper's laws (v1)").check()
    page.get_by_text("what the printed digits allow").first.wait_for()
    page.get_by_label("Your own runs", exact=True).check()
    page.get_by_text("there is no table of runs yet").wait_for()
    table = tmp_path / "runs.csv"
    rows = [f"{P},{S},{T},{3 * P**-0.1 * S**-0.05 * T**0.5}" for P in (1e6, 1e7) for S in (1e4, 1e5) for T in (2, 3)]
    table.write_text("P,S,T,loss\n" + "\n".join([*rows, "1e7,1e6,2,0.5"]), encoding="utf-8")
    page.get_by_text("Your own runs: a CSV file").click()
    page.locator("#law-table input[type=file]").set_input_files(table)
    page.locator("#law-results [data-target=loss]").wait_for()


def test_a_study_and_what_becomes_of_it(page: Any, study: Path) -> None:
    open_tab(page, "Study")
    page.locator("#study-claims .bc-claim").first.wait_for()
    assert page.locator("#study-claims .bc-claim").count() >= 12
    keep(page, "study-claims")
    page.locator("#study-claims summary").first.click()
    assert page.locator("#study-claims table").first.is_visible()
    for part, inside in (
        ("Curves", "#study-curve img"),
        ("Runs", "#study-runs tr"),
        ("Pictures", "#study-gallery img"),
    ):
        page.locator("#study-parts").get_by_role("tab", name=part).click()
        page.locator(inside).first.wait_for()
        keep(page, f"study-{part.lower()}")


def test_a_study_is_followed_while_it_runs(wide_page: Any, study: Path) -> None:
    page, runs = wide_page, study / "runs.jsonl"
    open_tab(page, "Study")
    status = page.locator("#study-status")
    whole = runs.read_text(encoding="utf-8")
    status.get_by_text(f"{len(whole.splitlines())} runs").wait_for()
    steps = json.loads((study / "study.json").read_text(encoding="utf-8"))["steps"]
    step = next(iter(steps.values()))
    try:
        runs.write_text("\n".join(whole.splitlines()[:30]) + "\n", encoding="utf-8")
        status.get_by_text("30 runs").wait_for()
        runs.unlink()
        (study / step).mkdir(parents=True)
        (study / step / "done.json").write_text("{}", encoding="utf-8")
        status.get_by_text(f"1 of {len(steps)} steps").wait_for()
        page.locator("#study-claims").get_by_text("Not yet").wait_for()
        assert "30 runs" not in status.inner_text()
    finally:
        runs.write_text(whole, encoding="utf-8")
        shutil.rmtree(study / step, ignore_errors=True)


def test_a_corpus_and_its_hole(page: Any) -> None:
    open_tab(page, "Dataset")
    page.locator("#dataset-texts .bc-card").first.wait_for()
    holes = page.locator("#dataset-table .bc-cell-hole:has-text('hole')")
    assert holes.count() >= 4
    page.get_by_label("Order").click()
    page.get_by_role("option", name="worst aligned first").click()
    page.wait_for_function("document.querySelectorAll('#dataset-texts .bc-score').length === 12")
    scores = [float(text.split()[-1]) for text in page.locator("#dataset-texts .bc-score").all_inner_texts()]
    assert len(scores) == 12
    assert scores == sorted(scores)
    keep(page, "dataset")
    page.locator("#dataset-next").click()
    page.get_by_text("13 to 24 of").wait_for()
    page.get_by_label("Text contains").fill("no text has this")
    page.get_by_label("Text contains").press("Enter")
    page.get_by_text("Nothing found").wait_for()


def test_controls_have_names(wide_page: Any) -> None:
    """Every control that can be reached by keyboard says what it is, for who hears the page."""
    for tab in ("Caption", "Translate", "Law", "Study", "Dataset"):
        open_tab(wide_page, tab)
        wide_page.wait_for_timeout(300)
    nameless = wide_page.evaluate(
        """() => [...document.querySelectorAll('button, input, textarea, select, [role=tab]')]
        .filter(node => node.offsetParent !== null && node.type !== 'file' && node.type !== 'hidden')
        .filter(node => !(node.innerText || '').trim() && !node.getAttribute('aria-label') && !node.title
          && !node.getAttribute('aria-labelledby') && !node.closest('label') && !(node.labels && node.labels.length)
          && !node.querySelector('img[alt]'))
        .map(node => node.outerHTML.slice(0, 160))"""
    )
    assert nameless == []
    assert wide_page.evaluate("[...document.images].every(image => image.hasAttribute('alt'))")
