"""Captions in every language, judged by the world that knows its truth: right language, objects, colours, relations.

plain             the prompt alone asks for the language
prefix            the decoder is started with the language's prefix, which is cut from the caption before it is judged
shortlist         only tokens seen in the language's training text can be chosen
Each is a measure `captions/{language,objects,colours,relations,hallucinated,...}/{variant}`; `.../chance` is what true
captions of other scenes reach, for relations a blind guess, and for the language one of all languages drawn blindly.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from babelcap.coverage import CAPTION, Coverage, Pair, Style, caption_prompt, mean_of_numbers, mean_over_splits
from babelcap.data.feed.text import encode_prefix
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.jobs.progress import progress
from babelcap.languages import Language
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.generation.shortlist import tokens_of
from babelcap.models.network.captioner import Captioner
from babelcap.records import EvalResult
from babelcap.world.corpus import TRAIN, load_truth
from babelcap.world.scenes import Scene
from babelcap.world.score import CaptionScore, chance_rates, rates, score_caption

Variant = Literal["plain", "prefix", "shortlist", "prefix+shortlist"]
VARIANTS: tuple[Variant, ...] = ("plain", "prefix", "shortlist", "prefix+shortlist")
# What is reported -> what the world's score calls it.
MEASURES = {
    "language": "right_language",
    "objects": "objects",
    "colours": "colours",
    "relations": "places",
    "directions": "directions",
    "counts": "counts",
    "sizes": "sizes",
    "hallucinated": "invented",
    "objects_with_colour": "objects_with_colour",
    "well_formed": "well_formed",
}
NUM_KNOWN = 1000  # training pictures that chance draws its captions from
UNSEEN = "unseen"  # the mean over the caption pairs of the hole
Shortlists = Mapping[str, Sequence[int]]
Item = TypeVar("Item")


class Picture(NamedTuple):
    number: int  # in the corpus
    key: str
    scene: Scene


class Generated(NamedTuple):
    """One caption with its score."""

    key: str
    language: str
    variant: Variant
    text: str  # what follows the prefix
    score: CaptionScore


def evaluate_captions(
    model: Captioner,
    processor: CaptionProcessor,
    index: CorpusIndex,
    coverage: Coverage,
    split: str = "eval",
    variants: Iterable[Variant] = VARIANTS,
    num_pictures: int | None = None,
    style: Style = Style.SHORT,
    num_beams: int = 1,
    max_new_tokens: int = 64,
    batch_size: int = 64,
    shortlists: Shortlists | None = None,
    image_features: Callable[[int], Tensor] | None = None,
) -> tuple[list[EvalResult], list[Generated]]:
    """The measures of each variant and of chance, and the captions they come from.

    The pictures are the first `num_pictures` of the split. `coverage` says which languages count as unseen;
    `shortlists` are token ids by language, taken from the training split where they are not given.
    """
    pictures = split_pictures(index, split, num_pictures)
    wanted = [check_variant(variant) for variant in variants]
    if shortlists is None and any("shortlist" in variant for variant in wanted):
        shortlists = corpus_shortlists(index.corpus, coverage, processor)
    was_training = model.training
    model.eval()
    generated: list[Generated] = []
    with torch.inference_mode(), progress("Captioning", len(pictures) * len(wanted)) as advance:
        features = _features(model, processor, index, pictures, image_features, batch_size)
        for variant in wanted:
            texts = _generate(
                model, processor, features, coverage, variant, style, num_beams, max_new_tokens, batch_size, shortlists
            )
            for language in coverage.languages:
                prefix = language.prefix if "prefix" in variant else ""
                for picture, whole in zip(pictures, texts[language.code], strict=True):
                    score = score_caption(whole, language.code, picture.scene, prefix=prefix)
                    text = whole.removeprefix(prefix)  # with its space: "изображен" + "ы две" is one word
                    generated.append(Generated(picture.key, language.code, variant, text, score))
            advance(len(pictures))
    model.train(was_training)
    results = [result for variant in wanted for result in _results(generated, variant, split, coverage, style)]
    known = split_pictures(index, TRAIN, NUM_KNOWN) if TRAIN in index.corpus.splits else pictures
    scenes = [[picture.scene for picture in some] for some in (pictures, known)]
    return results + chance_results(split, coverage, *scenes), generated


def check_variant(name: str) -> Variant:
    for variant in VARIANTS:
        if variant == name:
            return variant
    raise UserError(f"variant '{name}' is unknown; known: {', '.join(VARIANTS)}")


def split_pictures(index: CorpusIndex, split: str, limit: int | None = None) -> list[Picture]:
    """The pictures of a split that have annotations, in storage order, with their scenes."""
    truth = load_truth(index.corpus.folder)
    rows = index.rows(split, index.pairs(split)[0])
    numbers = list(dict.fromkeys(index.image_number(int(row)) for row in rows))[:limit]
    return [Picture(number, index.key(number), truth[index.key(number)]) for number in numbers]


def corpus_shortlists(corpus: Corpus, coverage: Coverage, processor: CaptionProcessor) -> dict[str, list[int]]:
    """The tokens of every language's training text: in the hole's languages, of translations alone."""
    tokenizer = processor.decoder_tokenizer
    texts: dict[str, set[str]] = {language.code: set() for language in coverage.languages}
    for row in corpus.rows(TRAIN):
        for annotation in row.annotations:
            texts[annotation.language].add(annotation.target)
    specials = {tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id} - {None}
    return {
        language.code: sorted(
            tokens_of(sorted(texts[language.code]), tokenizer)
            | specials
            | set(encode_prefix(tokenizer, language.prefix))
        )
        for language in coverage.languages
    }


def _features(
    model: Captioner,
    processor: CaptionProcessor,
    index: CorpusIndex,
    pictures: Sequence[Picture],
    image_features: Callable[[int], Tensor] | None,
    batch_size: int,
) -> Tensor:
    """[pictures, image tokens, width], from the cache where there is one."""
    if image_features is not None:
        return torch.stack([image_features(picture.number) for picture in pictures]).to(model.device, model.dtype)
    parts = []
    for some in _chunks(pictures, batch_size):
        pixels = processor.encode_images([index.read_image(picture.number) for picture in some])
        parts.append(model.encode_images(pixels.to(model.device, model.dtype)))
    return torch.cat(parts)


def _generate(
    model: Captioner,
    processor: CaptionProcessor,
    features: Tensor,
    coverage: Coverage,
    variant: Variant,
    style: Style,
    num_beams: int,
    max_new_tokens: int,
    batch_size: int,
    shortlists: Shortlists | None,
) -> dict[str, list[str]]:
    """Language -> captions with their prefix. Without prefix and shortlist, which differ, languages share batches."""
    rows = [(language, number) for language in coverage.languages for number in range(len(features))]
    groups = [rows]
    if variant != "plain":
        groups = [[row for row in rows if row[0] == language] for language in coverage.languages]
    texts: dict[str, list[str]] = {language.code: [] for language in coverage.languages}
    for group in groups:
        prefix = group[0][0].prefix if "prefix" in variant else ""
        allowed = None
        if "shortlist" in variant and shortlists is not None:
            allowed = torch.tensor(shortlists[group[0][0].code])
        for some in _chunks(group, batch_size):
            inputs = _inputs(processor, some, style, prefix)
            ids = model.generate(
                **{name: tensor.to(model.device) for name, tensor in inputs.items()},
                image_features=features[[number for _, number in some]],
                allowed_tokens=allowed,
                num_beams=num_beams,
                max_new_tokens=max_new_tokens,
            )
            for (language, _), text in zip(some, processor.decode(ids), strict=True):
                texts[language.code].append(text)
    return texts


def _inputs(
    processor: CaptionProcessor, rows: Sequence[tuple[Language, int]], style: Style, prefix: str
) -> dict[str, Tensor]:
    inputs = processor.encode_prompts([caption_prompt(language, style) for language, _ in rows])
    if prefix:
        inputs["decoder_input_ids"] = processor.encode_prefix(prefix, len(rows)).contiguous()
    return inputs


def _results(
    generated: Sequence[Generated], variant: Variant, split: str, coverage: Coverage, style: Style
) -> list[EvalResult]:
    scores: dict[str, list[CaptionScore]] = {language.code: [] for language in coverage.languages}
    for caption in generated:
        if caption.variant == variant:
            scores[caption.language].append(caption.score)
    by_pair = {str(Pair(CAPTION, code)): rates(found) for code, found in scores.items()}
    num_samples = {str(Pair(CAPTION, code)): len(found) for code, found in scores.items()}
    signature = {"style": str(style), "prefix": "cut" if "prefix" in variant else "none"}
    return [
        _result(f"captions/{name}/{variant}", split, per_pair, num_samples, coverage, signature)
        for name, rate in MEASURES.items()
        for per_pair in [{pair: found[rate] for pair, found in by_pair.items()}]
    ]


def chance_results(split: str, coverage: Coverage, scenes: Sequence[Scene], known: Sequence[Scene]) -> list[EvalResult]:
    """The same for every language: content is scored from meaning, not from words."""
    chance = chance_rates(scenes, known) | {"right_language": 1 / len(coverage.languages)}
    pairs = [str(Pair(CAPTION, language.code)) for language in coverage.languages]
    return [
        _result(f"captions/{name}/chance", split, dict.fromkeys(pairs, chance[rate]), {}, coverage, {})
        for name, rate in MEASURES.items()
        if rate in chance
    ]


def _result(
    measure: str,
    split: str,
    per_pair: dict[str, float],
    num_samples: dict[str, int],
    coverage: Coverage,
    signature: dict[str, str],
) -> EvalResult:
    per_split = mean_over_splits(per_pair, coverage)
    unseen = [per_pair[str(pair)] for pair in coverage.hole if str(pair) in per_pair]
    if unseen:
        per_split[UNSEEN] = mean_of_numbers(unseen)
    return EvalResult(
        measure=measure,
        split=split,
        per_pair=per_pair,
        per_split=per_split,
        num_samples=num_samples,
        signature=signature,
    )


def _chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))
