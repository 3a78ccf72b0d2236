"""Captions in every language, judged by the world that knows its truth: right language, objects, colours, relations.

plain             the prompt alone asks for the language
prefix            the decoder is started with the language's prefix, which is no evidence of the language written
shortlist         only tokens seen in the language's training text can be chosen
Each is a measure `captions/{language,objects,colours,relations,hallucinated,...}/{variant}`; `.../chance` is what true
captions of other scenes reach, for relations a blind guess, and for the language one of all languages drawn blindly.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from babelcap.coverage import CAPTION, Coverage, Pair, Style, mean_of_numbers, mean_over_splits
from babelcap.data.feed.text import encode_prefix
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.evaluation.splits import choose_split
from babelcap.jobs.progress import progress
from babelcap.measures import (
    CHANCE,
    THINGS_ONE_TO_ONE,
    TRAIN,
    UNSEEN,
    VARIANTS,
    Variant,
    caption_measure,
    check_variant,
)
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.generation.core import GenerationCore
from babelcap.models.generation.requests import GenerationRequest, GenerationSettings
from babelcap.models.generation.shortlist import tokens_of
from babelcap.models.network.captioner import Captioner
from babelcap.records import EvalResult
from babelcap.world.corpus import load_truth
from babelcap.world.scenes import Scene
from babelcap.world.score import CaptionScore, chance_rates, mark_caption, rates, score_caption

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
Shortlists = Mapping[str, Sequence[int]]


class Picture(NamedTuple):
    number: int  # in the corpus
    key: str
    scene: Scene


class Generated(NamedTuple):
    """One caption with its score."""

    key: str
    language: str
    variant: Variant
    text: str  # the whole caption, prefix included
    score: CaptionScore
    marks: tuple[dict[str, Any], ...] = ()  # what is wrong in it, from character to character
    right: bool = False  # in its language, and nothing in it is wrong

    def values(self) -> dict[str, Any]:
        """As a line of captions.jsonl has them."""
        return self._asdict() | {"score": self.score.model_dump(mode="json")}


@dataclass(frozen=True)
class CaptionEvaluation:
    """What to caption, and how."""

    split: str | None = None  # by default the one that is there of eval, val and test
    variants: tuple[Variant, ...] = VARIANTS
    num_pictures: int | None = None  # the first of the split; by default all
    style: Style = Style.SHORT
    num_beams: int = 1
    max_new_tokens: int = 64
    batch_size: int = 64
    shortlists: Shortlists | None = None  # token ids by language; by default taken from the training split
    image_features: Callable[[int], Tensor] | None = None  # of an image number: they save the tower's work

    def __post_init__(self) -> None:
        for variant in self.variants:
            check_variant(variant)
        for name in ("num_pictures", "num_beams", "max_new_tokens", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} is {value}; it must be at least 1")


def evaluate_captions(
    model: Captioner,
    processor: CaptionProcessor,
    index: CorpusIndex,
    coverage: Coverage,
    options: CaptionEvaluation,
) -> tuple[list[EvalResult], list[Generated]]:
    """The measures of each variant and of chance, and the captions they come from.

    `coverage` says which languages count as unseen.
    """
    split = choose_split(index.corpus, options.split)
    pictures = split_pictures(index, split, options.num_pictures)
    shortlists = options.shortlists
    if shortlists is None and any("shortlist" in variant for variant in options.variants):
        shortlists = corpus_shortlists(index.corpus, coverage, processor)
    core = GenerationCore(model, processor, coverage, identify_language=False)
    was_training = model.training
    model.eval()
    generated: list[Generated] = []
    num_captions = len(pictures) * len(options.variants) * len(coverage.languages)
    with torch.inference_mode(), progress("Captioning", num_captions) as advance:
        features = _features(core, index, pictures, options)
        for variant in options.variants:
            requests = _requests(features, coverage, variant, options, shortlists or {})
            written = core.generate(requests, batch_size=options.batch_size, window=len(requests))
            for number, result in enumerate(written):
                _, key, scene = pictures[number % len(pictures)]
                code = result.request.language
                generated.append(judge_caption(key, scene, code, variant, result.text, result.prefix))
                advance(1)
    model.train(was_training)
    results = [
        result
        for variant in options.variants
        for result in variant_results(generated, variant, split, coverage, options.style)
    ]
    known = split_pictures(index, TRAIN, NUM_KNOWN) if TRAIN in index.corpus.splits else pictures
    scenes = [[picture.scene for picture in some] for some in (pictures, known)]
    return results + chance_results(split, coverage, *scenes), generated


def _requests(
    features: Tensor, coverage: Coverage, variant: Variant, options: CaptionEvaluation, shortlists: Shortlists
) -> list[GenerationRequest]:
    """Of every picture in every language, language by language."""
    settings = GenerationSettings(num_beams=options.num_beams, max_new_tokens=options.max_new_tokens, scores=False)
    return [
        GenerationRequest(
            language.code,
            image_features=tokens,
            style=options.style,
            prefix="always" if "prefix" in variant else "none",
            allowed_tokens=shortlists[language.code] if "shortlist" in variant else None,
            settings=settings,
        )
        for language in coverage.languages
        for tokens in features
    ]


def judge_caption(key: str, scene: Scene, language: str, variant: Variant, text: str, prefix: str) -> Generated:
    """A prefix is no evidence of the language: the model was given it."""
    score = score_caption(text, language, scene, prefix=prefix)
    marks = tuple(mark._asdict() for mark in mark_caption(text, language, scene))
    return Generated(key, language, variant, text, score, marks, score.right_language and not marks)


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
    core: GenerationCore, index: CorpusIndex, pictures: Sequence[Picture], options: CaptionEvaluation
) -> Tensor:
    """[pictures, image tokens, width], from the cache where there is one."""
    if options.image_features is not None:
        return torch.stack([options.image_features(picture.number) for picture in pictures])
    parts = []
    for start in range(0, len(pictures), options.batch_size):
        some = pictures[start : start + options.batch_size]
        pixels = [core.processor.encode_image(index.read_image(number), key) for number, key, _ in some]
        parts.append(core.encode_pixels(torch.stack(pixels)))
    return torch.cat(parts)


def variant_results(
    generated: Iterable[Generated], variant: Variant, split: str, coverage: Coverage, style: str
) -> list[EvalResult]:
    """Every measure of the captions that were asked for in one way."""
    scores: dict[str, list[CaptionScore]] = {language.code: [] for language in coverage.languages}
    for caption in generated:
        if caption.variant == variant:
            scores[caption.language].append(caption.score)
    by_pair = {_pair_name(code): rates(found) for code, found in scores.items()}
    num_samples = {_pair_name(code): len(found) for code, found in scores.items()}
    signature = {"style": str(style), "prefix": "cut" if "prefix" in variant else "none"} | THINGS_ONE_TO_ONE
    return [
        caption_result(
            caption_measure(name, variant), split, coverage, {pair: found[rate] for pair, found in by_pair.items()}
        ).model_copy(update={"num_samples": num_samples, "signature": signature})
        for name, rate in MEASURES.items()
    ]


def chance_results(split: str, coverage: Coverage, scenes: Sequence[Scene], known: Sequence[Scene]) -> list[EvalResult]:
    """The same for every language: content is scored from meaning, not from words."""
    chance = chance_rates(scenes, known) | {"right_language": 1 / len(coverage.languages)}
    pairs = [_pair_name(language.code) for language in coverage.languages]
    return [
        caption_result(caption_measure(name, CHANCE), split, coverage, dict.fromkeys(pairs, chance[rate]))
        for name, rate in MEASURES.items()
        if rate in chance
    ]


def _pair_name(language: str) -> str:
    return str(Pair(CAPTION, language))


def caption_result(measure: str, split: str, coverage: Coverage, per_pair: dict[str, float]) -> EvalResult:
    per_split = mean_over_splits(per_pair, coverage)
    unseen = [per_pair[str(pair)] for pair in coverage.hole if str(pair) in per_pair]
    if unseen:
        per_split[UNSEEN] = mean_of_numbers(unseen)
    return EvalResult(measure=measure, split=split, per_pair=per_pair, per_split=per_split, num_samples={})
