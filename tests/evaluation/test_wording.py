"""Losses of a world's texts: the parts add up to the whole on every sample, and reworded targets stay true."""

import pytest
import torch
from transformers import AutoTokenizer

from babelcap.coverage import Coverage
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.store.index import CorpusIndex
from babelcap.evaluation.loss import LossEvaluation, evaluate_loss
from babelcap.evaluation.wording import MANNERS, Manner, Reworded, evaluate_wording
from babelcap.measures import PARTS, loss_measure
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.sizes import size_config
from babelcap.records import EvalResult
from babelcap.world.corpus import WorldConfig, make_world
from babelcap.world.parser import content_spans
from babelcap.world.score import score_caption

NUM_EVAL = 6


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> CorpusIndex:
    folder = tmp_path_factory.mktemp("world") / "world"
    make_world(folder, WorldConfig(num_images=24, num_eval_images=NUM_EVAL, num_holdout_images=2, num_text_lines=60))
    return CorpusIndex.open(folder)


@pytest.fixture(scope="module")
def captioner(index: CorpusIndex) -> tuple[Captioner, CaptionProcessor]:
    sides = [
        AutoTokenizer.from_pretrained(index.corpus.folder / "tokenizers" / side) for side in ("encoder", "decoder")
    ]
    torch.manual_seed(0)
    sizes = {"encoder_vocab_size": len(sides[0]), "decoder_vocab_size": len(sides[1])}
    return Captioner(size_config("micro-florence-s", **sizes)), CaptionProcessor(*sides, image_size_px=64)


def by_measure(results: list[EvalResult]) -> dict[str, EvalResult]:
    return {result.measure: result for result in results}


@pytest.mark.parametrize("limit", [1, NUM_EVAL])
def test_parts_add_up_to_raw(index: CorpusIndex, captioner: tuple[Captioner, CaptionProcessor], limit: int) -> None:
    """With a limit of one, a pair's loss is that of a single sample."""
    options = LossEvaluation(BatchConfig(image_size_px=64), limit=limit, content_spans=content_spans, calibrated=True)
    found = by_measure(evaluate_loss(*captioner, index, Coverage(), options))
    raw = found[loss_measure()]
    for pair, loss in raw.per_pair.items():
        parts = [found[loss_measure(part)].per_pair[pair] for part in PARTS]
        assert sum(parts) == pytest.approx(loss, abs=1e-6)
        assert all(part > 0 for part in parts)
    assert found[loss_measure("calibrated")].per_pair.keys() == raw.per_pair.keys()


@pytest.mark.parametrize("manner", MANNERS)
def test_reworded_captions_are_true_and_alike_in_all_languages(index: CorpusIndex, manner: Manner) -> None:
    view = Reworded(index, manner)
    for pair in Coverage().pairs_of("caption"):
        for row in index.rows("eval", pair):
            annotation = view.annotation(int(row))
            scene = view.scenes[index.key(index.image_number(int(row)))]
            score = score_caption(annotation.target, pair.language, scene)
            assert score.right_language
            assert score.num_objects_invented == 0
            assert annotation == view.annotation(int(row))  # however often it is asked


def test_wording_is_measured_on_what_was_never_seen(
    index: CorpusIndex, captioner: tuple[Captioner, CaptionProcessor]
) -> None:
    results = evaluate_wording(*captioner, index, Coverage(), LossEvaluation(BatchConfig(image_size_px=64)))
    assert [result.measure for result in results] == [f"{loss_measure()}/{manner}" for manner in MANNERS]
    assert [set(result.per_pair) for result in results] == [{"caption-es", "caption-zh"}] * 2
    assert results[0].per_pair != results[1].per_pair
