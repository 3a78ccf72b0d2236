"""The texts of a picture: true captions in the languages that are captioned, and loose translations.

Captions in different languages say the same in their own words. A translation is a web sentence, or a paragraph of two
or three, each about its own loosened version of the scene; a language that has captions (German) also gets a whole
caption translated.
"""

import random
from collections.abc import Sequence

from pydantic import Field

from babelcap.config import ConfigModel
from babelcap.coverage import CAPTION, TRANSLATION, Coverage, Style
from babelcap.records import Annotation
from babelcap.world.meaning import Sentence
from babelcap.world.message import fit, loosen, plan_caption, plan_web
from babelcap.world.realise import realise
from babelcap.world.scenes import WHOLE, Scene, Scope, draw_scene

LINES_IN_PARAGRAPH = (2, 3)
ORIGIN_CAPTION = "world/caption"
ORIGIN_WEB = "world/web"


class Wording(ConfigModel):
    """How texts are made, and what they may name."""

    match_probability: float = Field(0.9, ge=0, le=1)  # of each attribute of a translation to be the picture's
    translations_per_image: int = Field(2, ge=0)  # into each language
    paragraph_share: float = Field(0.4, ge=0, le=1)  # of the translations, those of two or three sentences
    caption_share: float = Field(0.3, ge=0, le=1)  # of the sentences of translations, those shaped like a caption
    styles: tuple[Style, ...] = Field(tuple(Style), min_length=1)  # of captions
    scope: Scope = WHOLE  # of pictures and their texts; free text always speaks of everything


FREE = Wording(match_probability=1.0, caption_share=0.0)


def training_annotations(
    scene: Scene, coverage: Coverage, wording: Wording, rng: random.Random, *, avoid_held_out: bool = True
) -> list[Annotation]:
    """Every style of caption in every seen caption language, and translations into every seen one."""
    annotations: list[Annotation] = []
    captioned = coverage.caption_languages(seen=True)
    for style in wording.styles:
        annotations += _captions(scene, style, captioned, rng)
    for pair in coverage.pairs_of(TRANSLATION, seen=True):
        for _ in range(wording.translations_per_image):
            sentences, score = draw_web(scene, wording, rng, avoid_held_out=avoid_held_out)
            annotations.append(_translation(sentences, pair.language, coverage, ORIGIN_WEB, score))
        if pair.language in captioned and wording.translations_per_image:
            plan = plan_caption(scene, rng.choice(wording.styles), rng)
            annotations.append(_translation(plan, pair.language, coverage, ORIGIN_CAPTION, 1.0))
    return annotations


def evaluation_annotations(
    scene: Scene, coverage: Coverage, wording: Wording, rng: random.Random, index: int, *, avoid_held_out: bool
) -> list[Annotation]:
    """One caption and one translation in every language: the style goes round, the meaning is the same in all."""
    codes = [language.code for language in coverage.languages]
    annotations = _captions(scene, wording.styles[index % len(wording.styles)], codes, rng)
    sentences, score = draw_web(scene, wording, rng, avoid_held_out=avoid_held_out)
    targets = [code for code in codes if code != coverage.source_language]
    return annotations + [_translation(sentences, code, coverage, ORIGIN_WEB, score) for code in targets]


def draw_web(
    scene: Scene, wording: Wording, rng: random.Random, *, avoid_held_out: bool = True
) -> tuple[list[Sentence], float]:
    """One sentence or a paragraph, and the share of attributes in which it agrees with the scene."""
    count = rng.choice(LINES_IN_PARAGRAPH) if rng.random() < wording.paragraph_share else 1
    match, scope = wording.match_probability, wording.scope
    loosened = [loosen(scene, match, rng, scope, avoid_held_out=avoid_held_out) for _ in range(count)]
    sentences = [plan_sentence(other, wording, rng) for other in loosened]
    return sentences, sum(fit(scene, other) for other in loosened) / count


def plan_sentence(scene: Scene, wording: Wording, rng: random.Random) -> Sentence:
    """Of another shape than a caption, or, since similarity to pictures finds captions too, one of a caption's."""
    if wording.caption_share and rng.random() < wording.caption_share:
        return plan_caption(scene, Style.SHORT, rng)[0]
    return plan_web(scene, rng)


def draw_free_text(rng: random.Random, kind: str) -> list[Sentence]:
    """Text that belongs to no picture: `web` or `captions`."""
    scene = draw_scene(rng)
    return draw_web(scene, FREE, rng)[0] if kind == "web" else plan_caption(scene, rng.choice(list(Style)), rng)


def _captions(scene: Scene, style: Style, languages: Sequence[str], rng: random.Random) -> list[Annotation]:
    plan = plan_caption(scene, style, rng)
    return [
        Annotation(task=CAPTION, language=code, style=style, target=realise(plan, code), origin=ORIGIN_CAPTION)
        for code in languages
    ]


def _translation(plan: list[Sentence], language: str, coverage: Coverage, origin: str, score: float) -> Annotation:
    return Annotation(
        task=TRANSLATION,
        language=language,
        source=realise(plan, coverage.source_language),
        target=realise(plan, language),
        origin=origin,
        score=round(score, 4),
    )
