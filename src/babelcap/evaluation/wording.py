"""The same scenes in other words: captions' targets worded as captions are, and as translations are.

A model that was never shown a caption in a language words it as it learned to translate. Then the loss against
references worded as translations falls while that against references worded as captions does not.
"""

import random
from typing import Literal, get_args

from babelcap.coverage import CAPTION, Coverage, Style
from babelcap.data.feed.view import IndexView
from babelcap.data.store.index import CorpusIndex
from babelcap.evaluation.loss import LossEvaluation, evaluate_loss
from babelcap.measures import LOSS
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.network.captioner import Captioner
from babelcap.records import Annotation, EvalResult
from babelcap.world.corpus import load_truth
from babelcap.world.message import plan_caption, plan_web
from babelcap.world.realise import realise

Manner = Literal["as_captions", "as_translations"]
MANNERS: tuple[Manner, ...] = get_args(Manner)


class Reworded(IndexView):
    """Captions say in one sentence, true of the picture, what is there: the same plan in every language."""

    def __init__(self, index: CorpusIndex, manner: Manner) -> None:
        super().__init__(index)
        self.manner = manner
        self.scenes = load_truth(index.corpus.folder)

    def annotation(self, row: int) -> Annotation:
        found = self.index.annotation(row)
        if found.task != CAPTION:
            return found
        key = self.index.key(self.index.image_number(row))
        rng = random.Random(f"wording/{self.manner}/{key}")
        scene = self.scenes[key]
        plan = plan_caption(scene, Style.SHORT, rng) if self.manner == "as_captions" else [plan_web(scene, rng)]
        return found.model_copy(update={"style": Style.SHORT, "target": realise(plan, found.language)})


def evaluate_wording(
    model: Captioner, processor: CaptionProcessor, index: CorpusIndex, coverage: Coverage, options: LossEvaluation
) -> list[EvalResult]:
    """`cross_entropy/sample_mean/raw/{as_captions,as_translations}` of the captions that a model never saw."""
    pairs = tuple(pair for pair in coverage.pairs_of(CAPTION, seen=False) if pair in coverage.evaluated_pairs)
    results = []
    for manner in MANNERS:
        view = Reworded(index, manner)
        asked = LossEvaluation(
            options.batch, options.split, pairs, options.batch_size, options.limit, shuffled=False, view=view,
            image_features=options.image_features,
        )  # fmt: skip
        found = next(r for r in evaluate_loss(model, processor, index, coverage, asked) if r.measure == LOSS)
        results.append(found.model_copy(update={"measure": f"{LOSS}/{manner}"}))
    return results
