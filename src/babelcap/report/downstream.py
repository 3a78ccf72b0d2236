"""Scores on benchmarks as figures, tables and claims ask for them.

Loss and score of a kind of task are read alike: of the same languages, both with the prefix or both without. Studies
from before the benchmarks have captions all the same: there a caption's score is the share of objects that it names.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from babelcap.measures import (
    EVERY,
    PICTURES,
    UNSEEN,
    Pictures,
    Variant,
    caption_measure,
    downstream_measure,
    loss_measure,
)
from babelcap.records import RunRecord
from babelcap.report.formatting import decimal
from babelcap.report.statistics import Estimate, difference_of_shares, over_seeds, rank_correlation, share_over_seeds
from babelcap.report.study_folder import KIND_NAMES, TRIAL, Cell, Study, num_pictures, value, values
from babelcap.report.tables import Table, Value, shown_cells
from babelcap.report.verdicts import Claim, interval_above

ACCURACY = downstream_measure("ambiguity", "accuracy")
ACCURACY_SHUFFLED = downstream_measure("ambiguity", "accuracy", pictures="shuffled")
BLIND_GUESS = 0.5  # between two translations, each right of one picture of a pair
PERCENT = 100  # what papers multiply CIDEr with
VARIANT_NAMES: dict[Variant, str] = {"plain": "prompt alone", "prefix": "with prefix"}
AMBIGUITY_AXIS = "right translation preferred"
SHUFFLED_ROW = "same system, pictures shuffled"


class Score(NamedTuple):
    """A measure with the name of its axis; one that is no share is multiplied with what papers multiply it with."""

    measure: str
    axis: str
    is_share: bool = True
    scale: float = 1.0


class Task(NamedTuple):
    title: str
    target: str  # the test split whose languages count
    loss: str
    loss_axis: str
    scores: tuple[Score, ...]  # the first that a study has
    has_blind_guess: bool = False


def caption_scores(variant: Variant) -> tuple[Score, ...]:
    return (
        Score(downstream_measure("captioning", "gated_CIDEr", variant), "CIDEr (wrong language: 0)", False, PERCENT),
        Score(caption_measure("objects", variant), "objects right"),
    )


def tasks_of(study: Study) -> tuple[Task, ...]:
    bleu, accuracy = Score(downstream_measure("translation", "BLEU"), "BLEU", False), Score(ACCURACY, AMBIGUITY_AXIS)
    after = "UC, after the prefix" if study.given == "prefix_given" else "UC, without the first tokens"
    return (
        Task("captioning, languages captioned in training", "SC", loss_measure(), "SC", caption_scores("plain")),
        Task(
            "captioning, languages never captioned in", "UC", loss_measure(study.given), after, caption_scores("prefix")
        ),
        Task("translation", "ST", loss_measure(), "ST", (bleu,)),
        Task("ambiguity", "ST", loss_measure(), "ST", (accuracy,), True),
    )


class Point(NamedTuple):
    record: RunRecord
    loss: float
    score: float


def chosen_score(records: Sequence[RunRecord], scores: Sequence[Score], at: str) -> Score | None:
    """The first of these measures that a run has."""
    return next((one for one in scores if any(value(record, one.measure, at) is not None for record in records)), None)


def score_estimate(cell: Cell, score: Score, at: str) -> Estimate | None:
    """Over the seeds of a cell."""
    return share_of(cell, score.measure, at) if score.is_share else _mean(cell, score.measure, at, score.scale)


def task_points(study: Study, task: Task) -> tuple[Score, list[Point]] | None:
    """Every run of any kind that has both a loss and the score; None for fewer than two."""
    score = chosen_score(study.records, task.scores, task.target)
    if score is None:
        return None
    points = []
    for record in study.records:
        if record.kind == TRIAL:
            continue
        loss, found = value(record, task.loss, task.target), value(record, score.measure, task.target)
        if loss is not None and found is not None and math.isfinite(found) and 0 < loss < math.inf:
            points.append(Point(record, loss, score.scale * found))
    return (score, points) if len(points) > 1 else None


def task_correlation(points: Sequence[Point]) -> Estimate | None:
    """Spearman's, over runs; the seeds of one model and budget are drawn together."""
    groups = [f"{one.record.kind} {one.record.size} {one.record.base} {one.record.S}" for one in points]
    return rank_correlation([one.loss for one in points], [one.score for one in points], groups)


def correlation_text(found: Estimate | None) -> str:
    if found is None or not found.is_number:
        return "too few runs for a rank correlation"
    return f"rank correlation {decimal(found.value)} [{decimal(found.low)}, {decimal(found.high)}]"


def missing_tasks(study: Study) -> list[str]:
    return [task.title for task in tasks_of(study) if task_points(study, task) is None]


def downstream_table(study: Study) -> Table:
    """The headline, its controls and its fine-tuned runs; each row with its own pictures, then with shuffled ones."""
    rows: list[tuple[Value, ...]] = []
    for cell in shown_cells(study):
        for variant, name in VARIANT_NAMES.items():
            for pictures in PICTURES:
                found = _row(cell, variant, pictures)
                if any(part is not None for part in found):
                    system = KIND_NAMES[cell.key.kind] if pictures == "own" else SHUFFLED_ROW
                    rows.append((system, name, *found))
    columns = (
        "runs", "decoding", "CIDEr, captioned in training", "CIDEr, never captioned", "gated CIDEr, never captioned",
        "right language, never captioned", "BLEU", "chrF", "ambiguity",
    )  # fmt: skip
    return Table("downstream", columns, tuple(rows))


def _row(cell: Cell, variant: Variant, pictures: Pictures) -> list[Value]:
    captioning = [
        _mean(cell, downstream_measure("captioning", metric, variant, pictures), at, PERCENT)
        for metric, at in (("CIDEr", "SC"), ("CIDEr", UNSEEN), ("gated_CIDEr", UNSEEN))
    ]
    fidelity = share_of(cell, downstream_measure("captioning", "fidelity", variant, pictures), UNSEEN)
    if variant != "plain":  # a translation has no prefix
        return [*captioning, fidelity, None, None, None]
    translation = [
        _mean(cell, downstream_measure("translation", metric, pictures=pictures), EVERY) for metric in ("BLEU", "chrF")
    ]
    accuracy = share_of(cell, downstream_measure("ambiguity", "accuracy", pictures=pictures), EVERY)
    return [*captioning, fidelity, *translation, accuracy]


def _mean(cell: Cell, measure: str, at: str, scale: float = 1.0) -> Estimate | None:
    return over_seeds([scale * number for number in values(cell, measure, at)])


def share_of(cell: Cell, measure: str, at: str) -> Estimate | None:
    return share_over_seeds(values(cell, measure, at), num_pictures(cell, measure))


def ambiguity_claim(main: Cell) -> Claim | None:
    """None in a study that did not measure it, such as one from before the test."""
    own, shuffled = values(main, ACCURACY, EVERY), values(main, ACCURACY_SHUFFLED, EVERY)
    if not own:
        return None
    gain = difference_of_shares(own, shuffled, num_pictures(main, ACCURACY))
    conditions = (
        interval_above("right translation preferred", share_of(main, ACCURACY, EVERY), BLIND_GUESS, "a blind guess"),
        interval_above("the same, own picture less a shuffled one", gain, 0.0),
    )
    return Claim("ambiguity", "Where a sentence hides a word, the picture decides how it is translated", conditions)
