"""What a grammar says, both parsers read back: for thousands of scenes, every language, style and kind of sentence."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from babelcap.coverage import Style
from babelcap.world.grammar.caption_rules import CAPTIONS
from babelcap.world.grammar.web import WEB
from babelcap.world.inverse import parse_strict
from babelcap.world.meaning import Claims, Sentence, text_claims
from babelcap.world.message import mention, plan_caption, plan_web
from babelcap.world.parser import guess_language, parse_text
from babelcap.world.realise import GRAMMARS, grammar_of, realise, required_slots, templates
from babelcap.world.scenes import draw_scene, generator


def without_counts(claims: Claims) -> tuple[object, ...]:
    things = frozenset(replace(claim, count=None) for claim in claims.things)
    return things, claims.places, claims.relations, claims.grounds


def check(plan: list[Sentence], language: str, text: str) -> None:
    expected = text_claims(plan)
    strict = parse_strict(text, language)
    assert strict is not None, text
    assert text_claims(strict) == expected, text
    lenient = parse_text(text, language)
    assert without_counts(lenient) == without_counts(expected), text
    counts = {claim.noun: claim.count for claim in lenient.things}
    for claim in expected.things:
        # Russian does not say one: only forms that are never plural do.
        assert claim.count in (None, counts[claim.noun]) or (language, claim.count, counts[claim.noun]) == (
            "ru",
            1,
            None,
        )
    assert guess_language(text) == language, text


@pytest.mark.parametrize("language", GRAMMARS)
@settings(max_examples=500, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), style=st.sampled_from([*Style, None]))
def test_parsers_invert_the_grammar(language: str, seed: int, style: Style | None) -> None:
    rng = generator(seed, "property")
    scene = draw_scene(rng, held_out=None)
    plan = [plan_web(scene, rng)] if style is None else plan_caption(scene, style, rng)
    check(plan, language, realise(plan, language))


@pytest.mark.parametrize("language", GRAMMARS)
def test_every_paraphrase_is_read_back(language: str) -> None:
    rng = generator(0, "paraphrases")
    for kind in (*CAPTIONS, *WEB):
        needed = required_slots(kind)
        for template in templates(kind, language):
            for _ in range(12):
                scene = draw_scene(rng)
                while (len(scene.things) == 2) != ("b" in needed):
                    scene = draw_scene(rng)
                rows = grammar_of(language).tables
                sentence = Sentence(
                    kind,
                    tuple(map(mention, scene.things)) if "a" in needed else (),
                    scene.relation if "relation" in needed else None,
                    scene.places[0] if "place" in needed else None,
                    scene.ground if "ground" in needed else None,
                    tuple((name, rng.choice(list(rows[name]))) for name in ("who", "day", "where", "price")
                          if name in needed),
                )  # fmt: skip
                if kind in ("colour", "colours"):
                    sentence = Sentence(kind, tuple(replace(item, size=None) for item in sentence.mentions))
                check([sentence], language, grammar_of(language).realise(template, sentence))


@pytest.mark.parametrize(
    ("language", "broken"),
    [
        ("de", "Das Bild zeigt ein roter Ball."),
        ("de", "Das Bild zeigt einen rot Ball."),
        ("fr", "La photo montre un maison blanc."),
        ("es", "La imagen muestra una pelota rojo."),
        ("ru", "На картинке изображен красная лампа."),
        ("zh", "图为一个红色的树。"),
        ("en", "The image shows a apple."),
        ("en", "the image shows an apple."),
        ("en", "The image shows an apple"),
    ],
)
def test_strict_accepts_only_the_grammar(language: str, broken: str) -> None:
    assert parse_strict(broken, language) is None


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "the image shows shows a red balloon ball and and two blue house. The"),
        ("de", "Das Bild zeigt ein rote Ball und zwei blauer Haus auf"),
        ("fr", "La photo montre montre une ballon rouge et deux maison bleu xyz"),
        ("es", "La imagen muestra un pelota rojo y dos casa azul"),
        ("ru", "На картинке изображен красная мяч и два синяя дом"),
        ("zh", "图为一棵红色的球和两把蓝房子"),
    ],
)
def test_broken_text_is_still_understood(language: str, text: str) -> None:
    claims = parse_text(text, language)
    assert {(claim.noun, claim.colour) for claim in claims.things} == {("ball", "red"), ("house", "blue")}
    assert {claim.count for claim in claims.things if claim.noun == "house"} == {2}
    assert guess_language(text) == language


@pytest.mark.parametrize("text", ["", "...", "12 34", "qwfp zxcv arst", "\u0000"])
def test_no_language_in_nonsense(text: str) -> None:
    assert guess_language(text) is None
    assert parse_strict(text, "en") is None
    assert parse_text(text, "zh") == Claims()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text(max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    guess_language(text)
    for language in GRAMMARS:
        assert isinstance(parse_text(text, language), Claims)
        parse_strict(text, language)


def test_two_things_on_one_side_are_no_sentence_of_the_grammar() -> None:
    assert parse_strict("At the top there is a red ball, and at the bottom there is a blue table.", "en") is not None
    assert parse_strict("At the top there is a red ball, and at the top there is a blue table.", "en") is None
