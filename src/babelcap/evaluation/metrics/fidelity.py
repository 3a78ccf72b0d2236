"""Language fidelity: the share of outputs in the language that was asked for; and scores gated by it.

A caption in the wrong language shares names, numbers and letters with its references, so that chrF and even BLEU are
not 0. Gated, it counts as empty. Scripts decide where they can (Han without kana is Chinese), lid.176 for the rest.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from babelcap.evaluation.metrics.inputs import count_empty
from babelcap.evaluation.metrics.score import Items, Score, signature
from babelcap.identification import IDENTIFIER, is_language

Scorer = Callable[[Mapping[str, Sequence[str]], Mapping[str, str]], Score]


@dataclass(frozen=True)
class Fidelity:
    outputs: Score
    references: Score | None  # what texts that are in the language reach: the identifier errs too


def language_fidelity(
    hypotheses: Mapping[str, str], language: str, references: Mapping[str, Iterable[str]] | None = None
) -> Fidelity:
    """The share of outputs in the asked language, 0 to 1, and that of the references, an item being their mean."""
    outputs = np.array([float(is_language(text, language)) for text in hypotheses.values()])
    items = Items(tuple(hypotheses), outputs, count_empty(hypotheses.values()))
    text = signature("fidelity", {"lang": language, "lid": IDENTIFIER})
    if references is None:
        return Fidelity(Score("fidelity", text, items), None)
    rates = [np.mean([is_language(reference, language) for reference in texts]) for texts in references.values()]
    own = Score("fidelity of references", text, Items(tuple(references), np.array(rates, dtype=np.float64)))
    return Fidelity(Score("fidelity", text, items), own)


def gated(
    scorer: Scorer,
    references: Mapping[str, Sequence[str]],
    hypotheses: Mapping[str, str],
    language: str,
    judged: Mapping[str, str] | None = None,
) -> Score:
    """The scorer's score with every output of another language replaced by nothing.

    `judged` are the texts whose language counts: outputs without a prefix that the system was given and did not say.
    """
    said = hypotheses if judged is None else judged
    kept = {key: text if is_language(said[key], language) else "" for key, text in hypotheses.items()}
    score = scorer(references, kept)
    found = score.items
    items = Items(
        found.ids, found.values, count_empty(hypotheses.values()), found.statistics, found.combine, found.groups
    )
    return Score(f"gated {score.name}", f"{score.signature}|gate:{IDENTIFIER}-{language}", items)
