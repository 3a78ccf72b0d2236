import math

import pytest

from babelcap.config import build_config, content_hash
from babelcap.coverage import CAPTION, TASKS, TRANSLATION, Coverage, Pair, Style, mean_of_numbers, mean_over_splits
from babelcap.errors import UserError
from babelcap.languages import LANGUAGES, find_language

COVERAGE = Coverage()


def names(pairs: tuple[Pair, ...]) -> list[str]:
    return list(map(str, pairs))


def test_the_intentional_hole() -> None:
    assert names(COVERAGE.hole) == ["caption-fr", "caption-es", "caption-ru", "caption-zh"]
    assert len(COVERAGE.all_pairs) == 11
    assert len(COVERAGE.seen_pairs) == 7
    assert all(COVERAGE.is_seen(pair) for pair in COVERAGE.seen_pairs)
    assert not any(COVERAGE.is_seen(pair) for pair in COVERAGE.split("UC"))
    assert all(COVERAGE.is_seen(pair) for name in ("ST", "SC") for pair in COVERAGE.split(name))


def test_splits() -> None:
    assert names(COVERAGE.split("UC")) == ["caption-es", "caption-zh"]
    assert names(COVERAGE.split("ST")) == ["translation-es", "translation-zh"]
    assert names(COVERAGE.split("SC")) == ["caption-en", "caption-de"]
    assert names(COVERAGE.evaluated_pairs) == [
        "caption-es",
        "caption-zh",
        "translation-es",
        "translation-zh",
        "caption-en",
        "caption-de",
    ]
    with pytest.raises(UserError, match=r"unknown test split 'XX' \(known: UC, ST, SC\)"):
        COVERAGE.split("XX")


def test_full_coverage_has_no_hole_and_keeps_the_rest() -> None:
    assert COVERAGE.hole  # read first: what is cached must not carry over
    full = COVERAGE.full()
    assert full.hole == ()
    assert full.splits == COVERAGE.splits
    assert full.seen_pairs == COVERAGE.all_pairs


@pytest.mark.parametrize(
    ("style", "sentence"),
    [
        (Style.SHORT, "What does the image describe?"),
        (None, "What does the image describe?"),
        (Style.DETAILED, "Describe in detail what is shown in the image."),
        (Style.MORE_DETAILED, "Describe with a paragraph what is shown in the image."),
    ],
)
def test_caption_prompts(style: Style | None, sentence: str) -> None:
    expected = f"The target language is simplified Chinese. {sentence}"
    assert COVERAGE.prompt(Pair(CAPTION, "zh"), style) == expected


def test_translation_prompts() -> None:
    pair = Pair(TRANSLATION, "ru")
    expected = "The target language is Russian. Translate the following text: A dog."
    assert COVERAGE.prompt(pair, text="A dog.") == expected
    with pytest.raises(ValueError, match="needs a source text"):
        COVERAGE.prompt(pair)


@pytest.mark.parametrize("text", ["caption-en", "translation-zh", "caption-zh-Hant"])
def test_pairs_are_written_as_they_are_read(text: str) -> None:
    assert str(Pair.parse(text)) == text


@pytest.mark.parametrize("text", ["caption", "caption-", "captions-en", "", "-en"])
def test_what_is_not_a_pair(text: str) -> None:
    with pytest.raises(UserError, match="write caption-LANGUAGE or translation-LANGUAGE"):
        Pair.parse(text)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"seen": ["caption-it"]}, "seen: 'caption-it' is not a pair of the known languages"),
        ({"seen": ["translation-en"]}, "seen: 'translation-en' is not a pair"),
        ({"splits": {"UC": ["caption-xx"]}}, "UC: 'caption-xx' is not a pair"),
        ({"seen": ["caption-en", "caption-en"]}, "seen: 'caption-en' is there more than once"),
        ({"languages": ["en", "en"]}, "languages: 'en' is there more than once"),
        ({"source_language": "it"}, "source_language: 'it' is not among languages (en, de"),
        ({"languages": ["en", "deu"]}, "unknown language 'deu'; did you mean 'de'?"),
        ({"languages": "en"}, "languages: Input should be a valid tuple"),
        ({"languages": [{"code": "it"}]}, "languages.0.name: Field required"),
        ({"tasks": ["captions"]}, "unknown task 'captions' (known: caption, translation)"),
        ({"tasks": ["caption", "caption"]}, "tasks: 'caption' is there more than once"),
        ({"tasks": []}, "tasks: Tuple should have at least 1 item"),
        ({"tasks": ["caption"]}, "seen: 'translation-de' is not a pair"),
        ({"tasks": [{"name": "a-b", "prompt": "x", "gives": "x"}]}, "tasks.0.name: String should match pattern"),
        (
            {"tasks": [{"name": "a", "prompt": "{x}", "gives": "x"}]},
            "places other than one of {source}, {question}",
        ),
        ({"tasks": [{"name": "a", "prompt": {"short": "{source}", "detailed": ""}, "gives": "x"}]}, "in every style"),
    ],
)
def test_a_mistake_in_the_coverage_is_named(values: dict[str, object], words: str) -> None:
    with pytest.raises(UserError) as raised:
        build_config(Coverage, values)
    assert words in str(raised.value)


def test_another_source_language() -> None:
    coverage = Coverage(source_language="de", seen=("translation-en",), splits={})
    assert Pair.parse("translation-en") in coverage.all_pairs
    assert Pair.parse("translation-de") not in coverage.all_pairs


def test_languages() -> None:
    assert [language.code for language in LANGUAGES] == ["en", "de", "fr", "es", "ru", "zh"]
    assert find_language("zh").prefix == "图为"
    with pytest.raises(UserError, match="unknown language 'german'; did you mean 'de'"):
        find_language("german")
    with pytest.raises(UserError, match=r"unknown language 'xx' \(known: en, de, fr, es, ru, zh\)"):
        find_language("xx")


def test_means_over_splits_leave_out_what_was_not_measured() -> None:
    assert mean_over_splits({"caption-es": 1.0, "caption-zh": 3.0, "caption-en": 5.0}, COVERAGE) == {
        "UC": 2.0,
        "SC": 5.0,
    }


def test_means_leave_out_what_is_not_a_number() -> None:
    found = mean_over_splits({"caption-es": math.nan, "caption-zh": 3.0, "caption-en": math.nan}, COVERAGE)
    assert found["UC"] == 3.0
    assert math.isnan(found["SC"])
    assert mean_of_numbers([1.0, math.nan, 3.0]) == 2.0
    assert math.isnan(mean_of_numbers([]))


def test_what_the_built_in_tasks_need() -> None:
    caption, translation = TASKS
    assert (caption.text, caption.styles, caption.needs_source, caption.after_prefix) == (
        None,
        tuple(Style),
        False,
        True,
    )
    assert (translation.text, translation.styles) == ("source", (None,))
    assert (translation.needs_source, translation.after_prefix) == (True, False)
    assert COVERAGE.caption_languages() == ("en", "de", "fr", "es", "ru", "zh")
    assert COVERAGE.caption_languages(seen=True) == ("en", "de")
    assert COVERAGE.caption_languages(seen=False) == ("fr", "es", "ru", "zh")


def test_the_table_of_tasks_is_written_only_where_it_is_another_one() -> None:
    """Configurations and corpora from before tasks were rows keep their hashes."""
    assert "tasks" not in COVERAGE.model_dump(mode="json")
    assert content_hash(COVERAGE) == "cd1564a41e8cd29f"
    question = {"name": "question", "prompt": "{question}", "gives": "answers in"}
    more = build_config(Coverage, {"tasks": ["caption", "translation", question]})
    assert [task["name"] for task in more.model_dump(mode="json")["tasks"]] == ["caption", "translation", "question"]
    assert Coverage.model_validate_json(more.model_dump_json()) == more
    assert content_hash(more) != content_hash(COVERAGE)
