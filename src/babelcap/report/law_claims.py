"""The paper's claims about scaling, judged by laws fitted to this study's runs."""

from babelcap.measures import TARGETS, Reading
from babelcap.report.statistics import Estimate
from babelcap.report.study_folder import Study
from babelcap.report.study_laws import (
    StudyLaw,
    StudyLaws,
    exponent,
    exponent_difference,
    law_table,
    means_of,
    num_rises,
)
from babelcap.report.verdicts import Claim, Condition, at_least, at_most, interval_above, interval_below

R2_TARGET = 0.9
HELD_OUT_TARGET = 0.15
ALIKE = 2.0  # exponents within this factor of each other contribute alike
NAMES = {"UC": "unseen captioning (UC)", "ST": "seen translation (ST)", "SC": "seen captioning (SC)"}


def law_claims(study: Study, laws: StudyLaws) -> list[Claim]:
    return [
        obeys(study, laws, "conditioned"),
        obeys(study, laws, "raw"),
        unseen_needs_all(laws),
        translation_by_samples(laws),
        seen_captioning_alike(laws),
    ]


def obeys(study: Study, laws: StudyLaws, reading: Reading) -> Claim:
    conditions: list[Condition] = []
    notes: list[str] = []
    for target in TARGETS:
        law = laws.best(reading, target)
        conditions += _quality(law, target)
        if law is not None and law.fitted is None:
            notes.append(f"{target}: {law.refused}.")
    if reading == "raw":
        title = "The raw loss, prefix tokens included, obeys power laws too"
        notes += why_raw_differs(study, laws)
    else:
        title = "The loss of UC, ST and SC obeys power laws (loss after the prefix, prefix given)"
    law = laws.best(reading, "UC")
    if law is not None and law.fitted is not None:
        notes.insert(0, f"Form {law.fitted.form.formula}, fitted to {len(law.fitted.points)} runs ({law.family}).")
    return Claim(f"law-{reading}", title, tuple(conditions), tuple(notes))


def is_obeyed(law: StudyLaw | None) -> bool:
    return all(condition.holds for condition in _quality(law, ""))


def _quality(law: StudyLaw | None, target: str) -> list[Condition]:
    r2 = error = None
    if law is not None and law.fitted is not None:
        r2 = Estimate(law.fitted.r2, num=len(law.fitted.points), method="of the fit")
        if law.largest_budget is not None:
            held = law.largest_budget
            error = Estimate(held.relative, num=held.num_points, method="mean over the runs left out")
    return [
        at_least(f"{target}: R²", r2, R2_TARGET, True),
        # Not deciding: a loss that hardly moves is easy to predict.
        at_most(
            f"{target}: error on the largest budget, left out of the fit", error, HELD_OUT_TARGET, decimals=1, unit="%"
        ),
    ]


def why_raw_differs(study: Study, laws: StudyLaws) -> list[str]:
    """Where raw UC does not obey: how often it rises with more samples, and what the prefix's tokens cost."""
    law = laws.best("raw", "UC")
    if law is None or law.fitted is None or is_obeyed(law):
        return []
    readings: tuple[Reading, Reading] = ("raw", "conditioned")
    raw, given = (law_table(study.records, laws.family, reading, "UC") for reading in readings)
    (raw_rises, num_steps), (given_rises, _) = num_rises(raw), num_rises(given)
    lines = [
        f"Raw UC does not obey the law. From one budget of a model to the next it rises {raw_rises} times of "
        f"{num_steps}; with the prefix given, {given_rises} times."
    ]
    columns, losses = means_of(raw)
    _, losses_given = means_of(given)
    if len(losses) == len(losses_given):
        ends = []
        for budget in (min(columns["S"]), max(columns["S"])):
            rows = [row for row, samples in enumerate(columns["S"]) if samples == budget]
            ends.append(sum(losses[row] - losses_given[row] for row in rows) / len(rows))
        lines.append(
            f"Raw lies above the loss after the prefix by {ends[0]:.2f} nats a token at the smallest budget and "
            f"{ends[1]:.2f} at the largest. The two differ in the tokens of the prefix alone, which carry the choice "
            "of language."
        )
        if ends[1] > ends[0]:
            lines.append(
                "That this grows with samples would fit a model that becomes surer of the languages it was trained to "
                "caption in; the study does not measure that apart."
            )
    return lines


def unseen_needs_all(laws: StudyLaws) -> Claim:
    law = laws.best("conditioned", "UC")
    conditions = (
        interval_below("exponent of the parameters P", exponent(law, "P"), 0.0),
        interval_below("exponent of the samples S", exponent(law, "S"), 0.0),
        interval_above("exponent of the loss before training T", exponent(law, "T"), 0.0),
    )
    return Claim("uc-exponents", f"In {NAMES['UC']} all of P, S and T matter", conditions, _not_apart(laws, "UC"))


def translation_by_samples(laws: StudyLaws) -> Claim:
    law = laws.best("conditioned", "ST")
    stronger = None if law is None else exponent_difference(law, "P", "S")
    conditions = (
        interval_below("exponent of the samples S", exponent(law, "S"), 0.0),
        interval_above("exponent of P less exponent of S: S is the stronger", stronger, 0.0),
    )
    return Claim("st-exponents", f"In {NAMES['ST']} the samples S dominate", conditions, _not_apart(laws, "ST"))


def seen_captioning_alike(laws: StudyLaws) -> Claim:
    law = laws.best("conditioned", "SC")
    of_P, of_S = exponent(law, "P"), exponent(law, "S")
    ratio, holds = None, None
    if of_P is not None and of_S is not None:
        ratio = Estimate(of_P.value / of_S.value, num=of_P.num, method="of the estimates") if of_S.value else None
        both_fall = of_P.value < 0 and of_S.value < 0
        holds = both_fall and ratio is not None and 1 / ALIKE <= ratio.value <= ALIKE
    conditions = (
        interval_below("exponent of the parameters P", of_P, 0.0),
        interval_below("exponent of the samples S", of_S, 0.0),
        Condition("exponent of P over exponent of S", ratio, f"between {1 / ALIKE:g} and {ALIKE:g}", holds),
    )
    return Claim("sc-exponents", f"In {NAMES['SC']} P and S contribute alike", conditions, _not_apart(laws, "SC"))


def _not_apart(laws: StudyLaws, target: str) -> tuple[str, ...]:
    """Why T is not in the law, where it is not."""
    law = laws.get("conditioned", target, "pst")
    if law is None or law.fitted is not None:
        return ()
    return (f"No law with T: {law.refused}.",)
