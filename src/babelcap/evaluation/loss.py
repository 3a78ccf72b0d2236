"""Cross-entropy per pair and for UC, ST, SC, in several readings of the same forward passes.

sample_mean   mean over samples of the mean over a sample's tokens (the paper's)    token_mean  mean over all tokens
raw           every target token
prefix_given  what follows the language's prefix, over the targets that begin with the prefix's tokens; no others count
conditioned   every target without as many first tokens as the prefix has, whatever they are
language, content, wording    the three parts of raw: `loss_parts`        calibrated  `calibration`
own           with the sample's image     shuffled  with another sample's     gap (of raw)  their difference, sample by
              sample: what the model sees
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from babelcap.coverage import Coverage, Pair, mean_over_splits
from babelcap.data.feed.batches import Batch, BatchConfig
from babelcap.data.feed.loader import EvaluationLoader, EvaluationRows
from babelcap.data.feed.reader import BatchReader
from babelcap.data.feed.text import Tokenizers, encode_prefix, encode_texts
from babelcap.data.feed.view import IndexView
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import UserError
from babelcap.evaluation.calibration import Calibration
from babelcap.evaluation.loss_parts import ContentSpans, LossParts
from babelcap.evaluation.splits import choose_split, find_split
from babelcap.jobs.progress import progress
from babelcap.measures import MEANS, PICTURES, READINGS, Mean, Pictures, Reading, loss_measure
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.network.captioner import Captioner
from babelcap.records import EvalResult

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class LossSums(NamedTuple):
    """Of one sample: the summed loss and the number of tokens."""

    total: float
    num_tokens: int


GAP: Pictures = "gap"
Sums = dict[tuple[Pictures, Reading, Pair], list[LossSums]]


@dataclass(frozen=True)
class LossEvaluation:
    """What to measure, on what."""

    batch: BatchConfig
    split: str | None = None  # by default the one that is there of eval, val and test
    pairs: tuple[Pair, ...] = ()  # by default those of the test splits that the corpus has
    batch_size: int = 32
    limit: int | None = None  # samples of each pair
    num_workers: int = 0
    shuffled: bool = True  # also with another sample's image
    image_features: Callable[[int], torch.Tensor] | None = None  # of an image number: they save the tower's work
    content_spans: ContentSpans | None = None  # where in a text the words of its content are, where that is known
    view: IndexView | None = None  # of the corpus, read in its place: such as one with other targets
    calibrated: bool = False  # also after the best temperature, for which the logits are needed

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise UserError(f"batch_size is {self.batch_size}; it must be at least 1")
        if self.limit is not None and self.limit < 1:
            raise UserError(f"limit is {self.limit}; it must be at least 1")
        if self.num_workers < 0:
            raise UserError(f"num_workers is {self.num_workers}; it must be at least 0")


def evaluate_loss(
    model: Captioner,
    processor: CaptionProcessor,
    index: CorpusIndex,
    coverage: Coverage,
    options: LossEvaluation,
) -> list[EvalResult]:
    """One EvalResult a measure, `cross_entropy/{sample,token}_mean/{raw,conditioned}[/shuffled]`."""
    split = choose_split(index.corpus, options.split)
    pairs = options.pairs or measured_pairs(index, coverage, split)
    reader = BatchReader(
        options.view or index,
        Tokenizers(processor.encoder_tokenizer, processor.decoder_tokenizer, model.config.decoder_start_token_id),
        options.batch.model_copy(update={"prefix_probability": 0.0, "source_mask_probability": 0.0}),
        coverage,
        image_features=options.image_features,
    )
    loader = EvaluationLoader(
        index, reader, EvaluationRows(split, pairs, options.limit), options.batch_size, options.num_workers
    )
    readings = Readings(processor.decoder_tokenizer, coverage, _loss_parts(index, split, processor, options))
    calibration = Calibration() if options.calibrated else None
    sums: Sums = defaultdict(list)
    was_training = model.training
    model.eval()
    with progress("Evaluating", len(loader)) as advance, torch.inference_mode():
        for batch in loader:
            pair = pairs[int(batch.pair_numbers[0])]
            for picture, losses in _token_losses(model, batch, pair, options.shuffled, calibration).items():
                for ids, row in zip(_target_ids(batch), losses, strict=True):
                    for reading, found in readings.of(ids, row[: len(ids)].numpy(), pair.language).items():
                        sums[picture, reading, pair].append(found)
            advance(1)
    model.train(was_training)
    results = [
        loss_result(
            mean, loss_measure(reading, mean, picture), split, coverage, {p: sums[picture, reading, p] for p in pairs}
        )
        for picture in (*PICTURES, GAP)
        for reading in (READINGS if picture != GAP else READINGS[:1])
        if any(sums[picture, reading, pair] for pair in pairs)
        for mean in MEANS
    ]
    return results if calibration is None else [*results, calibration.result(split, coverage)]


def measured_pairs(index: CorpusIndex, coverage: Coverage, split: str) -> tuple[Pair, ...]:
    """The pairs of the test splits that a corpus has; none is a mistake."""
    there = index.pairs(split)
    pairs = tuple(pair for pair in coverage.evaluated_pairs if pair in there)
    if not pairs:
        raise UserError(
            f"{index.corpus.folder}: split '{split}' has none of the pairs "
            f"{', '.join(map(str, coverage.evaluated_pairs))}; it has {', '.join(map(str, there))}"
        )
    return pairs


class Readings:
    """What one sample adds to each reading of the loss."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", coverage: Coverage, parts: LossParts) -> None:
        self.prefixes = {row.code: encode_prefix(tokenizer, row.prefix) for row in coverage.languages}
        self.parts = parts

    def of(self, ids: Sequence[int], losses: np.ndarray, language: str) -> dict[Reading, LossSums]:
        """Of the tokens of a target, bos and eos among them, and the loss of each."""
        count, prefix = len(ids), self.prefixes[language]
        found: dict[Reading, LossSums] = {"raw": LossSums(float(losses.sum()), count)}
        if count > len(prefix):
            after = LossSums(float(losses[len(prefix) :].sum()), count - len(prefix))
            found["conditioned"] = after
            if list(ids[: len(prefix)]) == prefix:
                found["prefix_given"] = after
        for name, chosen in self.parts.of(ids, language).items():
            if name in self.parts.names:
                found[name] = LossSums(float(losses[chosen].sum()), count)  # a share of all tokens: they add up to raw
        return found


def _loss_parts(index: CorpusIndex, split: str, processor: CaptionProcessor, options: LossEvaluation) -> LossParts:
    """What begins a text of another language is asked of all texts of the split, however few are evaluated."""
    tokenizer = processor.decoder_tokenizer
    targets: dict[str, list[list[int]]] = defaultdict(list)
    for pair in index.pairs(split):
        texts = [index.annotation(int(row)).target for row in index.rows(split, pair)]
        targets[pair.language] += encode_texts(tokenizer, texts, options.batch.max_target_tokens)
    return LossParts(tokenizer, targets, options.content_spans)


def _target_ids(batch: Batch) -> list[list[int]]:
    return [row[:count] for row, count in zip(batch.labels.tolist(), batch.num_target_tokens.tolist(), strict=True)]


def _token_losses(
    model: Captioner, batch: Batch, pair: Pair, shuffled: bool, calibration: Calibration | None
) -> dict[Pictures, torch.Tensor]:
    """[samples, tokens] with the own image and with the neighbour's; the tower runs once."""
    inputs = batch.model_inputs(model.device)
    features = inputs.pop("image_features", None)
    if features is None:
        features = model.encode_images(inputs.pop("pixel_values"))
    own = model(**inputs, image_features=features, logits_needed=False)
    if calibration is not None:
        logits = model.head(own.decoder_last_hidden_state, model.head_weight)
        calibration.add(pair, batch.indices.tolist(), logits, inputs["labels"])
    losses: dict[Pictures, torch.Tensor] = {"own": own.token_losses.double().cpu()}
    if shuffled and len(batch) > 1:
        other = model(**inputs, image_features=features.roll(1, dims=0), logits_needed=False)
        losses["shuffled"] = other.token_losses.double().cpu()
        losses[GAP] = losses["shuffled"] - losses["own"]
    return losses


def loss_result(
    mean: Mean, measure: str, split: str, coverage: Coverage, sums: dict[Pair, list[LossSums]]
) -> EvalResult:
    by_sample = mean == "sample_mean"
    per_pair = {str(pair): _mean(found, by_sample) for pair, found in sums.items() if found}
    errors = {str(pair): _sampling_error(found) for pair, found in sums.items() if by_sample and len(found) > 1}
    return EvalResult(
        measure=measure,
        split=split,
        per_pair=per_pair,
        per_split=mean_over_splits(per_pair, coverage, fmean),  # a loss that is not a number must be seen
        num_samples={str(pair): len(found) for pair, found in sums.items()},
        # The pairs of a split are of the same pictures: their errors go together, and their mean is the split's.
        sampling_errors=mean_over_splits(errors, coverage, fmean),
    )


def _sampling_error(sums: list[LossSums]) -> float:
    """The standard error of the mean over samples."""
    means = [total / count for total, count in sums]
    return stdev(means) / math.sqrt(len(means))


def _mean(sums: list[LossSums], by_sample: bool) -> float:
    if by_sample:
        return sum(total / count for total, count in sums) / len(sums)
    return sum(total for total, _ in sums) / sum(count for _, count in sums)


def loss_evaluation(
    corpus: str | Path, coverage: Coverage, options: LossEvaluation
) -> Callable[[Captioner, CaptionProcessor], list[EvalResult]] | None:
    """`evaluate_loss` as training calls it; None where the corpus has no split to evaluate on."""
    index = CorpusIndex.open(corpus)
    split = find_split(index.corpus, options.split)
    if split is None:
        return None
    chosen = replace(options, split=split, pairs=options.pairs or measured_pairs(index, coverage, split))

    def evaluate(model: Captioner, processor: CaptionProcessor) -> list[EvalResult]:
        return evaluate_loss(model, processor, index, coverage, chosen)

    return evaluate
