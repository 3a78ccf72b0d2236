"""Cross-entropy per pair and for UC, ST, SC, in eight readings of the same forward passes.

sample_mean  mean over samples of the mean over a sample's tokens (the paper's)    token_mean  mean over all tokens
raw          every target token     conditioned  the tokens after the language prefix, which is given: the first tokens
             carry the choice of language, the rest the content
own          with the sample's image     shuffled  with another sample's: what the gap says is what the model sees
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch

from babelcap.coverage import Coverage, Pair, mean_over_splits
from babelcap.data.feed.batches import Batch, BatchConfig
from babelcap.data.feed.loader import EvaluationLoader, EvaluationRows
from babelcap.data.feed.reader import BatchReader
from babelcap.data.feed.text import Tokenizers, encode_prefix
from babelcap.data.store.index import CorpusIndex
from babelcap.jobs.progress import progress
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.network.captioner import Captioner
from babelcap.records import EvalResult

READINGS = ("raw", "conditioned")
PICTURES = ("own", "shuffled")


class LossSums(NamedTuple):
    """Of one sample: the summed loss and the number of tokens."""

    total: float
    num_tokens: int


def evaluate_loss(
    model: Captioner,
    processor: CaptionProcessor,
    index: CorpusIndex,
    coverage: Coverage,
    config: BatchConfig,
    split: str = "eval",
    pairs: Iterable[Pair] | None = None,
    batch_size: int = 32,
    limit: int | None = None,
    num_workers: int = 0,
    shuffled: bool = True,
    image_features: Callable[[int], torch.Tensor] | None = None,
) -> list[EvalResult]:
    """One EvalResult a measure, `cross_entropy/{sample,token}_mean/{raw,conditioned}[/shuffled]`.

    `image_features` of an image number, where they are kept, save the vision tower's work.
    """
    pairs = tuple(pairs or coverage.evaluated_pairs)
    reader = BatchReader(
        index,
        Tokenizers(processor.encoder_tokenizer, processor.decoder_tokenizer, model.config.decoder_start_token_id),
        config.model_copy(update={"prefix_probability": 0.0, "source_mask_probability": 0.0}),
        coverage,
        image_features=image_features,
    )
    loader = EvaluationLoader(index, reader, EvaluationRows(split, pairs, limit), batch_size, num_workers)
    given = {
        pair.language: len(encode_prefix(processor.decoder_tokenizer, coverage.language(pair.language).prefix))
        for pair in pairs
    }
    sums: dict[tuple[str, str, Pair], list[LossSums]] = defaultdict(list)
    was_training = model.training
    model.eval()
    with progress("Evaluating", len(loader)) as advance, torch.inference_mode():
        for batch in loader:
            pair = pairs[int(batch.pair_numbers[0])]
            for picture, losses in _token_losses(model, batch, shuffled).items():
                _collect(sums, picture, pair, losses, batch, given[pair.language])
            advance(1)
    model.train(was_training)
    return [
        _result(measure, split, coverage, pairs, {pair: sums[picture, reading, pair] for pair in pairs})
        for picture in PICTURES
        for reading in READINGS
        if any(sums[picture, reading, pair] for pair in pairs)
        for measure in _measures(picture, reading)
    ]


def _token_losses(model: Captioner, batch: Batch, shuffled: bool) -> dict[str, torch.Tensor]:
    """[samples, tokens] with the own image and with the neighbour's; the tower runs once."""
    inputs = batch.model_inputs(model.device)
    features = inputs.pop("image_features", None)
    if features is None:
        features = model.encode_images(inputs.pop("pixel_values"))
    pictures = {"own": features}
    if shuffled and len(batch) > 1:
        pictures["shuffled"] = features.roll(1, dims=0)
    return {
        name: model(**inputs, image_features=tokens, logits_needed=False).token_losses.double().cpu()
        for name, tokens in pictures.items()
    }


def _collect(
    sums: dict[tuple[str, str, Pair], list[LossSums]],
    picture: str,
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


def _measures(picture: str, reading: str) -> list[str]:
    suffix = "" if picture == "own" else f"/{picture}"
    return [f"cross_entropy/{mean}/{reading}{suffix}" for mean in ("sample_mean", "token_mean")]


def _result(
    measure: str, split: str, coverage: Coverage, pairs: tuple[Pair, ...], sums: dict[Pair, list[LossSums]]
) -> EvalResult:
    per_pair = {}
    for pair in pairs:
        if sums[pair]:
            per_pair[str(pair)] = _mean(sums[pair], by_sample="sample_mean" in measure)
    return EvalResult(
        measure=measure,
        split=split,
        per_pair=per_pair,
        per_split=mean_over_splits(per_pair, coverage),
        num_samples={str(pair): len(sums[pair]) for pair in pairs},
    )


def _mean(sums: list[LossSums], by_sample: bool) -> float:
    if by_sample:
        return sum(total / count for total, count in sums) / len(sums)
    return sum(total for total, _ in sums) / sum(count for _, count in sums)


def loss_evaluation(
    corpus: str | Path, coverage: Coverage, config: BatchConfig, split: str = "eval", limit: int | None = None
) -> Callable[[Captioner, CaptionProcessor], list[EvalResult]] | None:
    """`evaluate_loss` as training calls it; None where the corpus has no such split."""
    index = CorpusIndex.open(corpus)
    if split not in index.corpus.splits:
        return None
    pairs = [pair for pair in coverage.evaluated_pairs if pair in index.pairs(split)]

    def evaluate(model: Captioner, processor: CaptionProcessor) -> list[EvalResult]:
        return evaluate_loss(model, processor, index, coverage, config, split, pairs, limit=limit)

    return evaluate
