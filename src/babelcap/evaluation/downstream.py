"""A captioner on the world's twins of the benchmarks, by the metrics of the real ones: what a study's tables end in.

captioning   captions that were generated anyway, against five references: CIDEr, fidelity, and CIDEr gated by it
translation  BLEU, chrF and fidelity     ambiguity  the share of items whose right translation has the lower loss
Each also with shuffled pictures: every item gets that of another one. A caption of another picture needs no generating,
it is there already. In the ambiguity test pairs move as one, so that no item meets the picture of its own contrast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from babelcap.coverage import CAPTION, TRANSLATION, Coverage, Pair, mean_of_numbers, mean_over_splits
from babelcap.data.feed.batches import IGNORED_LABEL, pad
from babelcap.data.feed.text import encode_texts
from babelcap.evaluation.benchmarks import Item, read_benchmark
from babelcap.evaluation.benchmarks.commute import pair_numbers
from babelcap.evaluation.captions import Generated
from babelcap.evaluation.metrics import (
    Score,
    chrf,
    contrastive_accuracy,
    convention_cider,
    gated,
    language_fidelity,
    sacre_bleu,
)
from babelcap.measures import EVAL, EVERY, PICTURES, UNSEEN, Pictures, Variant, downstream_measure
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.generation.core import GenerationCore
from babelcap.models.generation.requests import GenerationRequest, GenerationSettings
from babelcap.models.network.captioner import Captioner
from babelcap.records import EvalResult

CIDER = "divided"  # the convention: words, in Chinese signs
CAPTION_VARIANTS: tuple[Variant, ...] = ("plain", "prefix")
MAX_ANSWER_TOKENS = 128
Scores = dict[str, dict[str, Score]]  # measure -> pair -> score


@dataclass(frozen=True)
class DownstreamEvaluation:
    root: Path  # as `babelcap world benchmarks` writes it
    num_beams: int = 1
    max_new_tokens: int = 64
    batch_size: int = 64
    shuffled: bool = True  # also with other pictures

    @property
    def pictures(self) -> tuple[Pictures, ...]:
        return PICTURES if self.shuffled else PICTURES[:1]


def evaluate_downstream(
    model: Captioner,
    processor: CaptionProcessor,
    coverage: Coverage,
    captions: Sequence[Generated],
    options: DownstreamEvaluation,
) -> list[EvalResult]:
    """Of captions of the twin's pictures, and of what the model translates and decides now."""
    core = GenerationCore(model, processor, coverage, identify_language=False)
    was_training = model.training
    model.eval()
    scores = score_captions(read_benchmark("world-captioning", options.root), captions, coverage, options.pictures)
    with torch.inference_mode():
        scores |= _score_translations(core, read_benchmark("world-translation", options.root), options)
        scores |= _score_ambiguity(core, read_benchmark("world-ambiguity", options.root), options)
    model.train(was_training)
    return [_result(measure, by_pair, coverage) for measure, by_pair in scores.items()]


def score_captions(
    items: Sequence[Item],
    captions: Sequence[Generated],
    coverage: Coverage,
    shown: Sequence[Pictures] = PICTURES,
) -> Scores:
    """The captions of the items' pictures, in each variant; those of other pictures and variants are passed over."""
    scores: Scores = {}
    texts = {(caption.variant, f"{caption.language}/{caption.key}"): caption.text for caption in captions}
    for code, of_language in _by_language(items).items():
        for variant in CAPTION_VARIANTS:
            ids = [item.id for item in of_language if (variant, item.id) in texts]
            if len(ids) < 2:
                continue
            references = {item.id: item.references for item in of_language if (variant, item.id) in texts}
            prefix = coverage.language(code).prefix if variant == "prefix" else ""
            written = [texts[variant, key] for key in ids]
            said = [text.removeprefix(prefix) for text in written]  # a prefix was given, not said
            cider = partial(convention_cider, language=code, name=CIDER)
            for pictures in shown:
                found, judged = (_of_pictures(ids, some, pictures) for some in (written, said))
                named = {
                    "CIDEr": cider(references, found),
                    "gated_CIDEr": gated(cider, references, found, code, judged),
                    "fidelity": language_fidelity(judged, code).outputs,
                }
                for metric, score in named.items():
                    measure = downstream_measure("captioning", metric, variant, pictures)
                    scores.setdefault(measure, {})[str(Pair(CAPTION, code))] = score
    return scores


def _of_pictures(ids: Sequence[str], texts: Sequence[str], pictures: Pictures) -> dict[str, str]:
    """What was written of each picture, or of the next one."""
    moved = texts if pictures == "own" else [*texts[1:], *texts[:1]]
    return dict(zip(ids, moved, strict=True))


def _score_translations(core: GenerationCore, items: Sequence[Item], options: DownstreamEvaluation) -> Scores:
    scores: Scores = {}
    by_language, features = _by_language(items), _encode_images(core, items, options.batch_size)
    settings = GenerationSettings(num_beams=options.num_beams, max_new_tokens=options.max_new_tokens, scores=False)
    for pictures in options.pictures:
        shown = [pair for some in by_language.values() for pair in zip(some, _shown(some, pictures, 1), strict=True)]
        requests = [
            GenerationRequest(
                item.language,
                item.task,
                image_features=features[image],
                source=item.source,
                prefix="none",
                settings=settings,
                key=item.id,
            )
            for item, image in shown
        ]
        texts = {
            result.request.key: result.text
            for result in core.generate(requests, batch_size=options.batch_size, window=len(requests))
        }
        for code, of_language in by_language.items():
            references = {item.id: item.references for item in of_language}
            found = {item.id: texts[item.id] for item in of_language}
            named = {
                "BLEU": sacre_bleu(references, found, code),
                "chrF": chrf(references, found),
                "fidelity": language_fidelity(found, code).outputs,
            }
            for metric, score in named.items():
                measure = downstream_measure("translation", metric, pictures=pictures)
                scores.setdefault(measure, {})[str(Pair(TRANSLATION, code))] = score
    return scores


def _score_ambiguity(core: GenerationCore, items: Sequence[Item], options: DownstreamEvaluation) -> Scores:
    scores: Scores = {}
    features = _encode_images(core, items, options.batch_size)
    for pictures in options.pictures:
        for code, of_language in _by_language(items).items():
            images = _shown(of_language, pictures, 2)
            shown = [replace(item, image=image) for item, image in zip(of_language, images, strict=True)]
            right, wrong = answer_losses(core, shown, features, options.batch_size)
            score = contrastive_accuracy(right, wrong, pair_numbers(len(shown))).items
            measure = downstream_measure("ambiguity", "accuracy", pictures=pictures)
            scores.setdefault(measure, {})[str(Pair(TRANSLATION, code))] = score
    return scores


def answer_losses(
    core: GenerationCore, items: Sequence[Item], features: Mapping[Path, Tensor], batch_size: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """By item: the losses of all tokens of its right answer, from the first to the end, and of its contrast."""
    processor, model = core.processor, core.model
    right: dict[str, list[float]] = {item.id: [] for item in items}  # in the items' order
    wrong = dict(right)
    ordered = sorted(items, key=lambda item: len(item.references[0]))  # alike in length: less padding
    for start in range(0, len(ordered), batch_size):
        some = ordered[start : start + batch_size]
        prompts = [core.coverage.prompt(Pair(item.task, item.language), text=item.source) for item in some]
        answers = [text for item in some for text in (item.references[0], item.contrast or "")]
        targets = encode_texts(processor.decoder_tokenizer, answers, MAX_ANSWER_TOKENS)
        output = model(
            **{name: tensor.to(model.device) for name, tensor in processor.encode_prompts(prompts).items()},
            image_features=torch.stack([features[item.image] for item in some]),
            labels=pad(targets, IGNORED_LABEL).to(model.device),  # two rows for each of the encoder's
            logits_needed=False,
        )
        rows = [row[: len(ids)].tolist() for row, ids in zip(output.token_losses.double().cpu(), targets, strict=True)]
        for item, own, other in zip(some, rows[::2], rows[1::2], strict=True):
            right[item.id], wrong[item.id] = own, other
    return right, wrong


def _by_language(items: Sequence[Item]) -> dict[str, list[Item]]:
    return {code: list(found) for code, found in groupby(items, key=lambda item: item.language)}


def _shown(items: Sequence[Item], pictures: Pictures, step: int) -> list[Path]:
    """The picture that each item is shown: its own, or that of the item `step` places behind it."""
    images = [item.image for item in items]
    return images if pictures == "own" else [*images[step:], *images[:step]]


def _encode_images(core: GenerationCore, items: Sequence[Item], batch_size: int) -> dict[Path, Tensor]:
    paths = list(dict.fromkeys(item.image for item in items))
    found: dict[Path, Tensor] = {}
    for start in range(0, len(paths), batch_size):
        some = paths[start : start + batch_size]
        found |= zip(some, core.encode_pixels(core.processor.encode_images(some)), strict=True)
    return found


def _result(measure: str, by_pair: Mapping[str, Score], coverage: Coverage) -> EvalResult:
    per_pair = {pair: score.value for pair, score in by_pair.items()}
    per_split = mean_over_splits(per_pair, coverage) | {EVERY: mean_of_numbers(per_pair.values())}
    unseen = [per_pair[str(pair)] for pair in coverage.pairs_of(CAPTION, seen=False) if str(pair) in per_pair]
    if unseen:
        per_split[UNSEEN] = mean_of_numbers(unseen)
    return EvalResult(
        measure=measure,
        split=EVAL,
        per_pair=per_pair,
        per_split=per_split,
        num_samples={pair: score.num_items for pair, score in by_pair.items()},
        signature={pair: score.signature for pair, score in by_pair.items()},
    )
