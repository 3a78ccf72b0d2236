"""The world's twins of the benchmarks, in the layout that real ones have (read by `evaluation/benchmarks/world.py`).

captioning   pictures of the eval split, each worded in five ways in every language
translation  an English sentence about such a picture, and what it is in the other languages
ambiguity    pairs of pictures that differ in one colour or one noun, and an English sentence that hides just that word:
             what is right of one picture is wrong of the other, and without the picture nobody can tell
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from babelcap.config import ConfigModel, build_config
from babelcap.coverage import CAPTION, TRANSLATION, Style
from babelcap.data.store.manifest import MANIFEST
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.storage import atomic_folder, write_text
from babelcap.world.annotate import draw_web, plan_sentence
from babelcap.world.corpus import SOURCE, WorldConfig, make_image
from babelcap.world.meaning import Sentence
from babelcap.world.message import plan_caption
from babelcap.world.realise import realise
from babelcap.world.render import encode, render
from babelcap.world.scenes import COLOURS, Scene, draw_scene, generator, holdout_pairs

FOLDER, IMAGES = "world", "images"  # below the folder of all benchmarks
CAPTIONING, TRANSLATING, AMBIGUITY = "captioning", "translation", "ambiguity"
NUM_REFERENCES = 5
# What training hides a word of a source behind: the unknown token of the world's encoder tokenizer.
HIDDEN_WORD = "<unk>"
HIDDEN_KINDS = ("colour", "noun")  # in turn
MAX_DRAWS = 10_000

Row = dict[str, Any]  # an item: id, image, language, task, style, source, references, contrast


class TwinSizes(ConfigModel):
    num_captioned: int = Field(100, ge=0)  # pictures, the first of the eval split; fewer where it has fewer
    num_translated: int = Field(100, ge=0)  # pictures, the same ones
    num_pairs: int = Field(100, ge=0)  # of the ambiguity test: two pictures and two items in each language


class Twin(NamedTuple):
    """Two scenes that differ in one word, and the sentence about each."""

    hidden: str  # colour | noun
    scenes: tuple[Scene, Scene]
    sentences: tuple[Sentence, Sentence]
    source: str  # English, the word hidden


def make_benchmarks(root: str | Path, world: WorldConfig, sizes: TwinSizes) -> None:
    """ROOT/world, whole or not at all; ROOT may hold other benchmarks."""
    with atomic_folder(Path(root) / FOLDER) as partial:
        (partial / IMAGES).mkdir()
        rows: dict[str, list[Row]] = {CAPTIONING: [], TRANSLATING: [], AMBIGUITY: []}
        for number in range(min(max(sizes.num_captioned, sizes.num_translated), world.num_eval_images)):
            made = make_image(world, world.num_images + number)
            image = f"{IMAGES}/{made.key}.{world.image_format}"
            (partial / image).write_bytes(made.image)
            if number < sizes.num_captioned:
                rows[CAPTIONING] += _captioning_rows(world, number, made.scene, made.key, image)
            if number < sizes.num_translated:
                rows[TRANSLATING] += _translation_rows(world, number, made.scene, made.key, image)
        for number in range(sizes.num_pairs):
            twin = draw_twin(world, number)
            images = []
            for side, scene in zip("ab", twin.scenes, strict=True):
                # The same draws for both: what is not said of them is alike.
                picture = render(scene, generator(world.seed, "benchmark/ambiguity/picture", number), world.size_px)
                images.append(f"{IMAGES}/{AMBIGUITY}-{number:04d}{side}.{world.image_format}")
                (partial / images[-1]).write_bytes(encode(picture, world.image_format))
            rows[AMBIGUITY] += _ambiguity_rows(world, number, twin, images)
        for name, found in rows.items():
            # Language by language, as distributed benchmarks are; the order within one stays.
            order = {language.code: place for place, language in enumerate(world.coverage.languages)}
            found.sort(key=lambda row: order[row["language"]])
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
            write_text(partial / f"{name}.jsonl", text)


def world_settings(folder: Path) -> WorldConfig:
    """Of a world that `make_world` left."""
    found = Corpus.open(folder).manifest.provenance
    if found.get("source") != SOURCE or not isinstance(found.get("config"), dict):
        raise UserError(f"{folder} has no settings of a world in it; name a folder made by `babelcap world make`")
    return build_config(WorldConfig, found["config"], str(folder / MANIFEST))


def _captioning_rows(world: WorldConfig, number: int, scene: Scene, key: str, image: str) -> Iterator[Row]:
    codes = [language.code for language in world.coverage.languages]
    wordings = draw_wordings(scene, codes, generator(world.seed, "benchmark/captioning", number))
    for code in codes:
        yield {
            "id": f"{code}/{key}",
            "image": image,
            "language": code,
            "task": CAPTION,
            "style": Style.SHORT,
            "references": [texts[code] for texts in wordings],
        }


def draw_wordings(scene: Scene, codes: list[str], rng: random.Random) -> list[dict[str, str]]:
    """The scene told in five ways, no two alike in any language: language -> text, five times."""
    found: list[dict[str, str]] = []
    for _ in range(MAX_DRAWS):
        plan = plan_caption(scene, Style.SHORT, rng)
        texts = {code: realise(plan, code) for code in codes}
        if all(texts[code] != other[code] for other in found for code in codes):
            found.append(texts)
        if len(found) == NUM_REFERENCES:
            return found
    raise AssertionError(f"fewer than {NUM_REFERENCES} ways to say {scene}")


def _translation_rows(world: WorldConfig, number: int, scene: Scene, key: str, image: str) -> Iterator[Row]:
    """One sentence that is true of the picture."""
    wording = world.model_copy(update={"match_probability": 1.0, "paragraph_share": 0.0})
    sentences, _ = draw_web(scene, wording, generator(world.seed, "benchmark/translation", number))
    for code in _target_languages(world):
        yield {
            "id": f"{code}/{key}",
            "image": image,
            "language": code,
            "task": TRANSLATION,
            "source": realise(sentences, world.coverage.source_language),
            "references": [realise(sentences, code)],
        }


def _ambiguity_rows(world: WorldConfig, number: int, twin: Twin, images: list[str]) -> Iterator[Row]:
    """The two items of a pair follow each other in each language, as CoMMuTE's do."""
    for code in _target_languages(world):
        texts = [realise([sentence], code) for sentence in twin.sentences]
        for side in range(2):
            yield {
                "id": f"{code}/{twin.hidden}-{number:04d}{'ab'[side]}",
                "image": images[side],
                "language": code,
                "task": TRANSLATION,
                "source": twin.source,
                "references": [texts[side]],
                "contrast": texts[1 - side],
            }


def _target_languages(world: WorldConfig) -> list[str]:
    return [pair.language for pair in world.coverage.pairs_of(TRANSLATION)]


def draw_twin(world: WorldConfig, number: int) -> Twin:
    """Drawn until the two English sentences differ in one word, whatever else a noun or colour changes (a, an)."""
    rng = generator(world.seed, "benchmark/ambiguity", number)
    hidden = HIDDEN_KINDS[number % len(HIDDEN_KINDS)]
    for _ in range(MAX_DRAWS):
        scene = draw_scene(rng, world.scope)
        scenes = (scene, _changed(scene, hidden, world, rng))
        draws = rng.random()
        first, second = (plan_sentence(told, world, random.Random(draws)) for told in scenes)
        source = hide_difference(*(realise([told], world.coverage.source_language) for told in (first, second)))
        if source is not None:
            return Twin(hidden, scenes, (first, second), source)
    raise AssertionError(f"no pair of sentences that differ in a {hidden} alone")


def _changed(scene: Scene, what: str, world: WorldConfig, rng: random.Random) -> Scene:
    """Another colour, or another noun, of one thing; none that training never shows."""
    place = rng.randrange(len(scene.things))
    thing, nouns = scene.things[place], {other.noun for other in scene.things}
    values = COLOURS if what == "colour" else [noun for noun in world.scope.nouns if noun not in nouns]
    others = [thing.model_copy(update={what: value}) for value in values if value != getattr(thing, what)]
    chosen = rng.choice([other for other in others if (other.noun, other.colour) not in holdout_pairs()])
    things = tuple(chosen if number == place else other for number, other in enumerate(scene.things))
    return scene.model_copy(update={"things": things})


def hide_difference(first: str, second: str) -> str | None:
    """The sentence that both are once the word in which they differ is hidden; None where that is not one word."""
    words, others = first.split(" "), second.split(" ")
    differing = [place for place, (a, b) in enumerate(zip(words, others, strict=False)) if a != b]
    if len(words) != len(others) or len(differing) != 1:
        return None
    return " ".join(HIDDEN_WORD if place == differing[0] else word for place, word in enumerate(words))
