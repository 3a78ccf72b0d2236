"""XM3600's conventions: what each does to a caption, and that their numbers do not pass for each other's."""

from types import ModuleType, SimpleNamespace

import pytest

from babelcap.errors import UserError
from babelcap.evaluation.metrics import coco_scores, compare, convention_cider
from babelcap.evaluation.metrics import conventions as module
from babelcap.evaluation.metrics.conventions import CONVENTIONS, divided_text, plain_text

REFERENCES = {"a": ["Ein Hund, der läuft.", "Hunde!"], "b": ["Eine Katze (grau)."]}
HYPOTHESES = {"a": "ein Hund läuft", "b": "Eine Katze, grau"}


def test_ptb_on_raw_captions_is_that_of_the_coco_tools() -> None:
    score = convention_cider(REFERENCES, HYPOTHESES, "de", "ptb-raw")
    assert score.value == coco_scores(REFERENCES, HYPOTHESES)["CIDEr"].value
    assert "|convention:ptb-raw|lang:de|references:caption|" in score.signature


def test_texts_by_hand() -> None:
    assert plain_text("Ｅin „Hund“, der läuft…") == "ein hund der läuft"
    assert divided_text("Ein T-Shirt.", "de") == "ein t - shirt ."
    assert divided_text("一只 Cat。", "zh") == "一 只 c a t 。"


def test_the_datasets_own_tokens() -> None:
    references = {"a": ["Ein Hund , der läuft ."], "b": ["Eine Katze ."]}
    score = convention_cider(references, {"a": "Ein Hund, der läuft.", "b": "eine Katze."}, "de", "tokenized")
    assert score.per_item["a"] == pytest.approx(10)
    assert "|references:caption/tokenized|tok:words|norm:lower|" in score.signature


def test_texts_that_nobody_has_tokenised() -> None:
    references = {"a": ["图为一只猫和一棵树。"], "b": ["三辆汽车。"]}
    score = convention_cider(references, {"a": "图为一只猫和一棵树。", "b": "两条鱼。"}, "zh", "divided")
    assert score.per_item["a"] == pytest.approx(10)  # signs: as one word a whole sentence would have no bigrams
    assert "|references:caption|tok:signs|norm:lower|" in score.signature


def test_conventions_are_not_comparable() -> None:
    first = convention_cider(REFERENCES, HYPOTHESES, "de", "ptb-raw")
    second = convention_cider(REFERENCES, HYPOTHESES, "de", "tokenized")
    assert compare(first.signature, second.signature).startswith(
        "not comparable: convention ptb-raw against tokenized, references caption against caption/tokenized"
    )


class Pipeline:
    """A stand-in for Stanza's: words divided by spaces, "zum" into two."""

    def __init__(self, code: str, **options: object) -> None:
        if code == "fi":
            raise RuntimeError("resources.json not found\nmore")

    def __call__(self, text: str) -> SimpleNamespace:
        words = [SimpleNamespace(text=part) for word in text.split() for part in word.replace("zum", "zu dem").split()]
        return SimpleNamespace(sentences=[SimpleNamespace(words=words)])


def test_stanzas_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "need", lambda *names: SimpleNamespace(__version__="1.15", Pipeline=Pipeline))
    module._stanza.cache_clear()
    try:
        tokenise = CONVENTIONS["stanza"].hypotheses("de")
        assert tokenise("Er geht zum Haus, ja!") == "er geht zu dem haus ja"
        assert tokenise(" . ") == ""
        score = convention_cider(REFERENCES, HYPOTHESES, "de")
        assert "|tok:stanza-1.15-words|norm:NFKC-lower-no-punctuation|" in score.signature
        with pytest.raises(UserError, match=r"no Stanza model of 'fi' here \(resources.json not found\)"):
            convention_cider(REFERENCES, HYPOTHESES, "fi")
    finally:
        module._stanza.cache_clear()


def test_spacys_words(monkeypatch: pytest.MonkeyPatch) -> None:
    blank = SimpleNamespace(__version__="3.8", blank=lambda code: lambda text: [SimpleNamespace(text=c) for c in text])
    monkeypatch.setattr(module, "need", lambda *names: blank)
    module._spacy.cache_clear()
    try:
        assert CONVENTIONS["spacy"].hypotheses("zh")("一只猫") == "一 只 猫"
        assert CONVENTIONS["spacy"].hypotheses("de")("Der Ma\u0308rz.") == "der märz"
        assert CONVENTIONS["spacy"].references("zh")("一 只 猫 .") == "一 只 猫"
    finally:
        module._spacy.cache_clear()


@pytest.mark.parametrize(("name", "package", "language"), [("stanza", "stanza", "de"), ("spacy", "spacy", "zh")])
def test_an_absent_package_is_one_line(name: str, package: str, language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(asked: str) -> ModuleType:
        raise ImportError(name=asked)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(UserError, match=f"'{package}' is not installed; pip install '{package}"):
        convention_cider(REFERENCES, HYPOTHESES, language, name)


def test_unknown_conventions_are_one_line() -> None:
    with pytest.raises(UserError, match=r"'moses' \(known: stanza, ptb-raw, spacy, tokenized, divided\)"):
        convention_cider(REFERENCES, HYPOTHESES, "de", "moses")
