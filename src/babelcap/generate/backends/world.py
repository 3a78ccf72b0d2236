"""The pipeline's models without any model: they read the world's truth, and err as often as they are told.

captioner   describes the scene, or with `error_share` another one
translator  reads the grammar backwards and says the same in another language, or gives back its source
embedder    one direction for each noun, colour and ground that a scene has or a text names, and noise
"""

import hashlib
import random
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from babelcap.coverage import Style
from babelcap.generate.backends.captioners import Answer, Question
from babelcap.generate.backends.translators import DecodeOptions
from babelcap.languages import Language
from babelcap.world.corpus import load_truth
from babelcap.world.inverse import parse_strict
from babelcap.world.message import plan_caption
from babelcap.world.parser import parse_text
from babelcap.world.realise import realise
from babelcap.world.scenes import Scene, draw_scene, generator

WIDTH = 64
CONTEXT_MARK = " ### ("
WEIGHTS = {"noun": 1.0, "colour": 0.5, "both": 1.0, "ground": 0.5}


def _random(seed: int, purpose: str, text: str) -> random.Random:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return generator(seed, f"pipeline/{purpose}", int.from_bytes(digest[:6], "big"))


class WorldCaptioner:
    """`model` is the world's folder."""

    def __init__(self, model: str, error_share: float = 0.0, seed: int = 0) -> None:
        self.truth, self.error_share, self.seed = load_truth(model), error_share, seed

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [self._answer(question.key) for question in questions]

    def _answer(self, key: str) -> Answer:
        if key not in self.truth:
            return Answer("", drop="not a picture of the world")
        rng = _random(self.seed, "caption", key)
        scene = draw_scene(rng) if rng.random() < self.error_share else self.truth[key]
        return Answer(realise(plan_caption(scene, rng.choice(list(Style)), rng), "en"))


class WorldTranslator:
    def __init__(self, error_share: float = 0.0, seed: int = 0) -> None:
        self.error_share, self.seed = error_share, seed

    def translate(self, texts: Sequence[str], language: Language, options: DecodeOptions) -> list[str]:
        return [self._with_context(text, language.code) for text in texts]

    def _with_context(self, text: str, language: str) -> str:
        """A description behind the text, "text ### (description)", stays behind it."""
        text, mark, description = text.partition(CONTEXT_MARK)
        return f"{self._translate(text, language)}{mark}{description}"

    def _translate(self, text: str, language: str) -> str:
        sentences = parse_strict(text, "en")
        if sentences is None or _random(self.seed, f"translate/{language}", text).random() < self.error_share:
            return text  # a copy, which the stage drops
        return realise(sentences, language)


class WorldEmbedder:
    """`model` is the world's folder."""

    def __init__(self, model: str, noise: float = 0.0, seed: int = 0) -> None:
        self.truth, self.noise, self.seed = load_truth(model), noise, seed

    def images(self, images: Sequence[tuple[str, Image.Image]]) -> NDArray[np.float32]:
        return np.stack([self._vector(_scene_features(self.truth[key]), f"image {key}") for key, _ in images])

    def texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self._vector(_text_features(text), f"text {text}") for text in texts])

    def _vector(self, features: dict[str, float], what: str) -> NDArray[np.float32]:
        rng = np.random.default_rng(_random(self.seed, "embed", what).getrandbits(63))
        vector = sum((weight * _direction(name) for name, weight in features.items()), np.zeros(WIDTH))
        vector = vector + self.noise * rng.standard_normal(WIDTH) / np.sqrt(WIDTH)
        if not vector.any():
            vector = rng.standard_normal(WIDTH)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


@cache
def _direction(feature: str) -> NDArray[np.float64]:
    digest = hashlib.sha256(feature.encode()).digest()
    vector = np.random.default_rng(int.from_bytes(digest[:8], "big")).standard_normal(WIDTH)
    return vector / np.linalg.norm(vector)


def _scene_features(scene: Scene) -> dict[str, float]:
    features = {scene.ground: WEIGHTS["ground"]}
    for thing in scene.things:
        features |= _thing_features(thing.noun, thing.colour)
    return features


def _text_features(text: str) -> dict[str, float]:
    claims = parse_text(text, "en")
    features = dict.fromkeys(sorted(claims.grounds), WEIGHTS["ground"])
    for thing in sorted(claims.things, key=str):
        features |= _thing_features(thing.noun, thing.colour)
    return features


def _thing_features(noun: str, colour: str | None) -> dict[str, float]:
    features = {noun: WEIGHTS["noun"]}
    if colour is not None:
        features |= {colour: WEIGHTS["colour"], f"{colour} {noun}": WEIGHTS["both"]}
    return features
