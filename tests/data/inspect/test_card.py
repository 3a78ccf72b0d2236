"""The card of an export counts what was exported, and names the hole, who made the texts, and licences."""

from pathlib import Path

import pytest

from babelcap.coverage import CAPTION, TRANSLATION, Coverage
from babelcap.data.inspect.export import export_webdataset
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.records import Annotation

TEACHERS = {"llava-1.6": "Apache-2.0", "nllb-3.3B": "CC-BY-NC-4.0", "ccmatrix": ""}


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    provenance = {"source": "pixparse/cc12m-wds <b>|", "licences": TEACHERS}
    with CorpusWriter(tmp_path / "corpus", provenance=provenance, coverage=Coverage()) as writer:
        for number, split in enumerate(["train"] * 3 + ["eval"]):
            texts = [
                Annotation(task=CAPTION, language="en", target="a dog", origin="llava-1.6"),
                Annotation(task=CAPTION, language="de", target="ein Hund", origin="nllb-3.3B"),
                Annotation(task=TRANSLATION, language="zh", source="a", target="一", origin="ccmatrix"),
                Annotation(task=TRANSLATION, language="zh", source="a", target="一", origin="ccmatrix/paragraph"),
            ]
            writer.add(f"k{number}", b"image", "jpg", split, texts)
    return Corpus.open(tmp_path / "corpus")


def test_it_says_what_the_export_holds(corpus: Corpus, tmp_path: Path) -> None:
    export_webdataset(corpus, tmp_path / "plain")
    card = (tmp_path / "plain" / "README.md").read_text(encoding="utf-8")
    assert "language: [en, de, zh]" in card
    assert "- Images: eval 1, train 3\n" in card or "- Images: train 3, eval 1\n" in card
    for row in ("| train | caption-en | 3 |", "| train | translation-zh | 6 |", "| eval | caption-de | 1 |"):
        assert row in card
    assert "- The hole (no text of it is in the training split): caption-fr, caption-es, caption-ru, caption-zh" in card
    for row in ("| ccmatrix | 8 | not said |", "| llava-1.6 | 4 | Apache-2.0 |", "| nllb-3.3B | 4 | CC-BY-NC-4.0 |"):
        assert row in card
    for name in ("Conceptual 12M", "CCMatrix", "LLaVA-NeXT", "NLLB-200"):
        assert f"\n- {name}: " in card
    assert "Florence-2: MIT" not in card
    assert "<b>" not in card
    assert corpus.content_hash in card


def test_what_is_left_out_is_not_counted(corpus: Corpus, tmp_path: Path) -> None:
    export_webdataset(corpus, tmp_path / "plain", split="train", exclude_licence="nc")
    card = (tmp_path / "plain" / "README.md").read_text(encoding="utf-8")
    assert "- Images: train 3\n" in card
    assert "caption-de | " not in card
    assert "eval" not in card
    assert "language: [en, zh]" in card


def test_a_card_of_its_authors_own_stays(corpus: Corpus, tmp_path: Path) -> None:
    export_webdataset(corpus, tmp_path / "plain")
    path = tmp_path / "plain" / "README.md"
    path.write_text("# Mine\n", encoding="utf-8")
    export_webdataset(corpus, tmp_path / "plain")
    assert path.read_text(encoding="utf-8") == "# Mine\n"
