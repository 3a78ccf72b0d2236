"""Do the laws predict? Rolled over cut-offs, and what was predicted before it was run; beside guesses without a law."""

from collections.abc import Sequence

from babelcap.laws import Fit
from babelcap.laws.judged import Judged, Rolled, judge
from babelcap.measures import CAPTION_PREFIX, TRUE_CAPTIONS, Reading, loss_measure
from babelcap.report.formatting import decimal
from babelcap.report.statistics import Estimate
from babelcap.report.study_folder import Study
from babelcap.report.study_laws import StudyLaws
from babelcap.report.tables import Table, Value
from babelcap.report.verdicts import Claim, Condition, at_least, at_most

COVERAGE_TARGET = 0.9  # of intervals of 95 %; their values hang together
LOSS_ERROR_TARGET = 0.15
RATE_ERROR_TARGET = 0.1
CONTENT_R2_TARGET = 0.9
UC_LOSSES: dict[Reading, str] = {
    "prefix_given": "loss after the prefix",
    "conditioned": "loss without the first tokens",
    "content": "loss of content",
    "raw": "loss of all tokens",
}
LEFT_OUT = {"S": "samples", "P": "parameters"}


def name_of(measure: str) -> str:
    """objects, or the reading of a loss."""
    return measure.split("/")[1] if measure.startswith(CAPTION_PREFIX) else measure.rpartition("/")[2]


def judged_measures(study: Study) -> list[tuple[str, str, str]]:
    """(name, measure, test split) of what the predictions are judged by."""
    found = [(f"unseen captions, {words}", loss_measure(reading), "UC") for reading, words in UC_LOSSES.items()]
    found += [
        (f"{words}, loss", loss_measure(study.readings[target]), target)
        for target, words in (("ST", "translations"), ("SC", "seen captions"))
    ]
    return [*found, *((f"unseen captions, {name_of(measure)} right", measure, "UC") for measure in TRUE_CAPTIONS)]


def pooled_skill(rows: Sequence[Judged]) -> float | None:
    """Over several cut-offs: 1 less the errors over those of the better guess of each, runs counting alike."""
    known = [(row.num_runs, row.error, row.best_guess) for row in rows if row.best_guess is not None]
    guesses = sum(num * guess for num, _, guess in known)
    return 1 - sum(num * error for num, error, _ in known) / guesses if guesses > 0 else None


def rows_of(rolled: Sequence[Rolled], family: str, measure: str, target: str) -> list[Rolled]:
    return [row for row in rolled if (row.family, row.judged.measure, row.judged.target) == (family, measure, target)]


def skill_claim(study: Study, laws: StudyLaws) -> Claim | None:
    """Above zero: the law errs less than the better of "as at the last budget" and "as the nearest size"."""
    conditions = []
    for name, measure, target in judged_measures(study):
        rows = [row.judged for row in rows_of(laws.rolled, laws.family, measure, target)]
        skill = pooled_skill(rows)
        if skill is None:
            continue
        num = sum(row.num_runs for row in rows)
        found = Estimate(skill, num=num, method=f"{len(rows)} cut-offs, {num} predictions")
        conditions.append(Condition(f"{name}: skill", found, "above 0", skill > 0))
    if not conditions:
        return None
    title = "The laws predict larger budgets and sizes better than guesses that need no law"
    note = (
        "Skill is 1 less the error of the law over that of the better guess: as at the last budget, as the nearest "
        "size. Each budget is predicted from the smaller ones, each size from the smaller sizes."
    )
    return Claim("skill", title, tuple(conditions), (note,))


def content_claim(study: Study, laws: StudyLaws, fits: dict[str, Fit]) -> Claim | None:
    """The law of what captions say: what is missing of objects and colours, between chance and one."""
    conditions, notes = [], []
    for measure, fitted in fits.items():
        name = name_of(measure)
        r2 = Estimate(fitted.r2, num=len(fitted.points), method="of the fit")
        conditions.append(at_least(f"{name} missing: R²", r2, CONTENT_R2_TARGET, True))
        for column in ("P", "S"):
            place = next(c for n, c, _ in fitted.form.terms[0].powers if n == column)
            low, high = fitted.intervals[place]
            found = Estimate(fitted.coefficients[place], low, high, len(fitted.points), "t interval of the fit")
            conditions.append(
                Condition(f"{name} missing: exponent of {column}", found, "interval below 0", found.below(0.0))
            )
        rows = [row.judged for row in rows_of(laws.rolled, laws.family, measure, "UC")]
        both = [(row.error, row.error_through_loss) for row in rows if row.error_through_loss is not None]
        if both:
            direct, through = (sum(errors) / len(both) for errors in zip(*both, strict=True))
            better = "directly" if direct < through else "through the loss"
            notes.append(
                f"{name}: left-out runs are off by {decimal(direct, 3)} predicted directly and by "
                f"{decimal(through, 3)} through the loss; {better} is better."
            )
    if not conditions:
        return None
    return Claim(
        "content-law", "What captions say rightly in unseen languages obeys a law", tuple(conditions), tuple(notes)
    )


def prediction_claim(study: Study) -> Claim | None:
    """What was written down before the runs, against the runs."""
    if study.prediction is None:
        return None
    judged = {(row.measure, row.target): row for row in judge(study.prediction, study.records)}
    if not judged:
        return None
    inside, total = sum(row.num_inside for row in judged.values()), sum(row.num_runs for row in judged.values())
    held = Estimate(inside / total, num=total, method=f"{inside} of {total} values")
    conditions = [at_least("values within their 95 % intervals", held, COVERAGE_TARGET, True)]
    for name, measure, target in judged_measures(study):
        row = judged.get((measure, target))
        if row is None:
            continue
        is_rate = measure.startswith(CAPTION_PREFIX)
        error = Estimate(row.error, num=row.num_runs, method=f"mean over {row.num_runs} runs")
        limit, unit = (RATE_ERROR_TARGET, "") if is_rate else (LOSS_ERROR_TARGET, "%")
        conditions.append(at_most(f"{name}: error", error, limit, decimals=2 if is_rate else 1, unit=unit))
        if row.skill is not None:
            skill = Estimate(row.skill, num=row.num_runs, method="against the better guess")
            conditions.append(Condition(f"{name}: skill", skill, "above 0", row.skill > 0, False))
    notes = (
        f"Predicted {study.prediction.time}, from records with the hash {study.prediction.records_sha256[:12]}; "
        f"{len(set(study.prediction.runs))} runs.",
    )
    return Claim("predicted", "Runs were predicted before they were run", tuple(conditions), notes)


def skill_claims(study: Study, laws: StudyLaws) -> list[Claim]:
    found = [prediction_claim(study), skill_claim(study, laws), content_claim(study, laws, laws.content)]
    return [claim for claim in found if claim is not None]


def skill_table(study: Study, laws: StudyLaws) -> Table:
    """Every cut-off, and the prediction that was made before the runs."""
    rows: list[tuple[Value, ...]] = [
        (f"{one.family}, {LEFT_OUT[one.column]} {one.value:.0f}", *_judged_row(one.judged)) for one in laws.rolled
    ]
    if study.prediction is not None:
        rows += [("predicted before it was run", *_judged_row(row)) for row in judge(study.prediction, study.records)]
    columns = (
        "left out", "measure", "target", "predictions", "in interval", "error", "error through the loss",
        "error of the law without T", "error, as at the last budget", "error, as the nearest size", "skill",
    )  # fmt: skip
    return Table("skill", columns, tuple(rows))


def _judged_row(row: Judged) -> tuple[Value, ...]:
    return (
        name_of(row.measure), row.target, row.num_runs, row.num_inside, row.error, row.error_through_loss,
        row.error_law_ps, row.error_last_budget, row.error_nearest_size, row.skill,
    )  # fmt: skip
