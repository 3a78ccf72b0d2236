"""The contact sheet."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.coverage import TRANSLATION, Coverage, Style
from babelcap.data.importers.assemble import Assembly, assemble_corpus
from babelcap.data.importers.webdataset import WebdatasetMaker
from babelcap.data.inspect.show import draw_cards, write_sheet
from babelcap.data.store.format import ImageRow
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.errors import UserError
from babelcap.records import Annotation

SCRIPT = "<script>alert(1)</script>"


def test_a_page_shows_every_text_and_loads_nothing(small_corpus: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["data", "show", str(small_corpus), "-o", str(tmp_path / "sheet"), "--num", "4"])
    assert (done.exit_code, done.output) == (0, f"{tmp_path / 'sheet.html'}\n")
    page = (tmp_path / "sheet.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg;base64,") == page.count("<article>") == 4
    assert not re.search(r'(src|href)="(?!data:)|url\(|@import', page)
    corpus = Corpus.open(small_corpus)
    cards = list(draw_cards(corpus, 4, 0, None))
    assert all(annotation.target in page for card in cards for annotation in card.annotations)
    num_unseen = sum(not corpus.coverage.is_seen(a.pair) for card in cards for a in card.annotations)
    assert page.count('class="unseen"') == num_unseen > 0
    assert write_sheet(corpus, tmp_path / "again.html", num_images=4).read_text(encoding="utf-8") == page


def test_a_draw_is_repeatable_and_keeps_to_its_split(small_corpus: Path) -> None:
    corpus = Corpus.open(small_corpus)
    keys = [card.row.key for card in draw_cards(corpus, 9, 3, "eval")]
    assert keys == [card.row.key for card in draw_cards(corpus, 9, 3, "eval")] == sorted(set(keys))
    assert all(int(key) >= 60 for key in keys)
    assert [card.row.key for card in draw_cards(corpus, 99, 3, "eval")] == [f"{n:09d}" for n in range(60, 72)]
    with pytest.raises(UserError, match="no split 'test'"):
        list(draw_cards(corpus, 4, 0, "test"))


def test_a_bad_image_and_an_image_without_texts_do_not_stop_the_sheet(tmp_path: Path) -> None:
    with CorpusWriter(tmp_path / "c", provenance={}) as writer:
        writer.add("a", b"no image", "jpg", "train", [])
    page = write_sheet(Corpus.open(tmp_path / "c"), tmp_path / "sheet").read_text(encoding="utf-8")
    assert '<div class="bad">not an image</div>' in page
    assert "no texts" in page


def test_no_field_reaches_the_page_as_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script in every text that a foreign corpus decides: keys, splits, tars, folders, and the texts themselves."""
    key = "<script>alert(1)<"
    annotation = Annotation(
        task=TRANSLATION, language="de", style=Style.SHORT, source=SCRIPT, target=SCRIPT, origin=SCRIPT, score=0.5
    )
    with CorpusWriter(tmp_path / "c", provenance={}) as writer:
        writer.add(key, b"no image", "jpg", SCRIPT, [annotation])
    tars = tmp_path / "tars"
    tars.mkdir()
    shutil.copy(tmp_path / "c" / "images" / "00000.tar", tars / "<script>alert(1)<.tar")
    monkeypatch.setattr(
        WebdatasetMaker,
        "make_rows",
        lambda self, scan, skipped: [
            ImageRow(key, scan.path.name, scan.offsets[0], scan.lengths[0], SCRIPT, (annotation,))
        ],
    )
    folder = tmp_path / "<script>alert(1)<"
    corpus = assemble_corpus(folder, list(tars.iterdir()), WebdatasetMaker(coverage=Coverage()), Assembly({}))
    page = write_sheet(corpus, tmp_path / "sheet.html", split=SCRIPT).read_text(encoding="utf-8")
    assert page.count("&lt;script&gt;alert(1)&lt;") == 9  # title twice, split twice, key, tar, origin, source, target

    tags: set[str] = set()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attributes: object) -> None:
            tags.add(tag)

    Tags().feed(page)
    assert "article" in tags
    assert "script" not in tags
