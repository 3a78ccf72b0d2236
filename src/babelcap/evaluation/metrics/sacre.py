"""sacreBLEU's BLEU (13a; zh for Chinese) and chrF, 0 to 100, with sacreBLEU's own signatures.

References are [item][reference] or id -> references, never sacreBLEU's [reference][item]: what it wants is made here.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from babelcap.errors import UserError
from babelcap.evaluation.metrics.inputs import check_items, check_lists, count_empty
from babelcap.evaluation.metrics.optional import need
from babelcap.evaluation.metrics.score import Array, Items, Score

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

References = Mapping[str, Sequence[str]] | Sequence[Sequence[str]]
Hypotheses = Mapping[str, str] | Sequence[str]
TOKENISERS = {"zh": "zh"}  # sacreBLEU's name by language, where it is not 13a; others by `tokenise`
LOG_ZERO = -9999999999.0  # sacreBLEU's logarithm of 0
CHARACTER_ORDER, BETA = 6, 2


def sacre_bleu(references: References, hypotheses: Hypotheses, language: str = "", tokenise: str = "") -> Score:
    """`tokenise`: a name that sacreBLEU knows; without one, zh for Chinese and 13a for all else."""
    metrics = need("sacrebleu.metrics", "sacreBLEU")
    name = tokenise or TOKENISERS.get(language, "13a")
    try:
        metric = metrics.BLEU(tokenize=name, force=True)
    except (KeyError, AssertionError, ImportError, RuntimeError) as error:
        raise UserError(f"sacreBLEU: tokeniser '{name}' cannot be used ({error})") from None
    return _score("BLEU", metric, references, hypotheses, combine_bleu, partial(combine_bleu, sentence=True))


def chrf(references: References, hypotheses: Hypotheses) -> Score:
    """chrF2: characters up to order 6, no words, recall twice as heavy."""
    metric = need("sacrebleu.metrics", "chrF").CHRF(char_order=CHARACTER_ORDER, word_order=0, beta=BETA)
    return _score("chrF", metric, references, hypotheses, combine_chrf, combine_chrf)


def _score(
    name: str,
    metric: "Metric",
    references: References,
    hypotheses: Hypotheses,
    combine: Callable[[Array], Array],
    alone: Callable[[Array], Array],
) -> Score:
    if isinstance(references, Mapping) and isinstance(hypotheses, Mapping):
        ids = check_items(references, hypotheses)
        wanted, found = [list(references[key]) for key in ids], [hypotheses[key] for key in ids]
    elif isinstance(references, Mapping) or isinstance(hypotheses, Mapping):
        raise UserError(f"{name}: give references and hypotheses both by id or both as lists")
    else:
        wanted, found = check_lists(references, hypotheses), list(hypotheses)
        ids = tuple(str(number) for number in range(len(found)))
    streams = [list(stream) for stream in zip_longest(*wanted)]  # None where an item has fewer references
    # The one private hook: counts of each item, which sacreBLEU sums for its own corpus score. A test compares both.
    rows = np.array(metric._extract_corpus_statistics(found, streams), dtype=np.float64)
    return Score(
        name, str(metric.get_signature()), Items(ids, alone(rows), count_empty(found), statistics=rows, combine=combine)
    )


def combine_bleu(sums: Array, sentence: bool = False) -> Array:
    """sacreBLEU's formula on rows of (length, reference length, 4 correct, 4 guessed); zeros halve again and again.

    `sentence`: only orders that the text is long enough for, as sacreBLEU does for single sentences.
    """
    length, wanted = sums[:, 0], sums[:, 1]
    half = np.ones(len(sums))
    logs, used = np.zeros(len(sums)), np.zeros(len(sums))
    for n in range(4):
        correct, guessed = sums[:, 2 + n], sums[:, 6 + n]
        some = guessed > 0
        half = np.where(some & (correct == 0), half * 2, half)
        precision = np.where(correct > 0, correct, 1 / half) / np.where(some, guessed, 1)
        logs += np.where(some, np.log(100 * precision), 0.0 if sentence else LOG_ZERO)
        used += some if sentence else 1
    ratio = wanted / np.where(length > 0, length, 1)
    brevity = np.where(length > 0, np.exp(np.minimum(0.0, 1 - ratio)), 0.0)
    return np.where(sums[:, 2:6].any(axis=1), brevity * np.exp(logs / np.maximum(used, 1)), 0.0)


def combine_chrf(sums: Array) -> Array:
    """The mean precision and the mean recall over the orders that both sides have, then their F."""
    found, wanted, common = (sums[:, start::3] for start in range(3))
    both = (found > 0) & (wanted > 0)
    orders = np.maximum(both.sum(axis=1), 1)
    precision = np.where(both, common / np.maximum(found, 1), 0).sum(axis=1) / orders
    recall = np.where(both, common / np.maximum(wanted, 1), 0).sum(axis=1) / orders
    weighted = BETA**2 * precision + recall
    return np.where(weighted > 0, 100 * (1 + BETA**2) * precision * recall / np.where(weighted > 0, weighted, 1), 0.0)
