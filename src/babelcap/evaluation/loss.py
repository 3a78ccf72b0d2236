"""Cross-entropy per pair and for UC, ST, SC, in eight readings of the same forward passes.

sample_mean  mean over samples of the mean over a sample's tokens (the paper's)    token_mean  mean over all tokens
raw          every target token     conditioned  the tokens after the language prefix, which is given: the first tokens
             carry the choice of language, the rest the content
own          with the sample's image     shuffled  with another sample's: what the gap says is what the model sees
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import torch

from babelcap.coverage import Coverage, Pair, mean_over_splits
from babelcap.data.feed.batches import Batch, BatchConfig
from babelcap.data.feed.loader import EvaluationLoader, EvaluationRows
from babelcap.data.feed.reader import BatchReader
from babelcap.data.feed.text import Tokenizers, encode_prefix
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import UserError
from babelcap.evaluation.splits import choose_split, find_split
from babelcap.jobs.progress import progress
from babelcap.measures import MEANS, PICTURES, READINGS, Mean, Pictures, Reading, loss_measure
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.network.captioner import Captioner
from babelcap.records import EvalResult


class LossSums(NamedTuple):
    """Of one sample: the summed loss and the number of tokens."""

    total: float
    num_tokens: int


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
        index,
        Tokenizers(processor.encoder_tokenizer, processor.decoder_tokenizer, model.config.decoder_start_token_id),
        options.batch.model_copy(update={"prefix_probability": 0.0, "source_mask_probability": 0.0}),
        coverage,
        image_features=options.image_features,
    )
    loader = EvaluationLoader(
        index, reader, EvaluationRows(split, pairs, options.limit), options.batch_size, options.num_workers
    )
    given = {
        pair.language: len(encode_prefix(processor.decoder_tokenizer, coverage.language(pair.language).prefix))
        for pair in pairs
    }
    sums: Sums = defaultdict(list)
    was_training = model.training
    model.eval()
    with progress("Evaluating", len(loader)) as advance, torch.inference_mode():
        for batch in loader:
            pair = pairs[int(batch.pair_numbers[0])]
            for picture, losses in _token_losses(model, batch, options.shuffled).items():
                _collect(sums, picture, pair, losses, batch, given[pair.language])
            advance(1)
    model.train(was_training)
    return [
        _result(
            mean, loss_measure(reading, mean, picture), split, coverage, {p: sums[picture, reading, p] for p in pairs}
        )
        for picture in PICTURES
        for reading in READINGS
        if any(sums[picture, reading, pair] for pair in pairs)
        for mean in MEANS
    ]


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


def _token_losses(model: Captioner, batch: Batch, shuffled: bool) -> dict[Pictures, torch.Tensor]:
    """[samples, tokens] with the own image and with the neighbour's; the tower runs once."""
    inputs = batch.model_inputs(model.device)
    features = inputs.pop("image_features", None)
    if features is None:
        features = model.encode_images(inputs.pop("pixel_values"))
    pictures: dict[Pictures, torch.Tensor] = {"own": features}
    if shuffled and len(batch) > 1:
        pictures["shuffled"] = features.roll(1, dims=0)
    return {
        name: model(**inputs, image_features=tokens, logits_needed=False).token_losses.double().cpu()
        for name, tokens in pictures.items()
    }


def _collect(
    sums: Sums,
    picture: Pictures,
    pair: Pair,
    losses: torch.Tensor,
    batch: Batch,
    num_given: int,
) -> None:
    for row, count in zip(losses, batch.num_target_tokens.tolist(), strict=True):
        sums[picture, "raw", pair].append(LossSums(float(row[:count].sum()), count))
        if count > num_given:
            after = LossSums(float(row[num_given:count].sum()), count - num_given)
            sums[picture, "conditioned", pair].append(after)


def _result(mean: Mean, measure: str, split: str, coverage: Coverage, sums: dict[Pair, list[LossSums]]) -> EvalResult:
    per_pair = {str(pair): _mean(found, by_sample=mean == "sample_mean") for pair, found in sums.items() if found}
    return EvalResult(
        measure=measure,
        split=split,
        per_pair=per_pair,
        per_split=mean_over_splits(per_pair, coverage, fmean),  # a loss that is not a number must be seen
        num_samples={str(pair): len(found) for pair, found in sums.items()},
    )


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
