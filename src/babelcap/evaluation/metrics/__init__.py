"""Metrics with signatures, per-item statistics, intervals and paired tests. Those of texts need no torch."""

from babelcap.evaluation.metrics.coco import coco_scores
from babelcap.evaluation.metrics.contrastive import ContrastiveAccuracy, contrastive_accuracy
from babelcap.evaluation.metrics.conventions import convention_cider
from babelcap.evaluation.metrics.fidelity import gated, language_fidelity
from babelcap.evaluation.metrics.ptb import ptb_tokenise
from babelcap.evaluation.metrics.sacre import chrf, sacre_bleu
from babelcap.evaluation.metrics.score import PairedTest, Score, compare, paired_test
from babelcap.identification import is_language

__all__ = [
    "ContrastiveAccuracy",
    "PairedTest",
    "Score",
    "chrf",
    "coco_scores",
    "compare",
    "contrastive_accuracy",
    "convention_cider",
    "gated",
    "is_language",
    "language_fidelity",
    "paired_test",
    "ptb_tokenise",
    "sacre_bleu",
]
