"""The paper's claims about scaling, judged by laws fitted to this study's runs."""

from collections.abc import Sequence

from babelcap.measures import READING_NAMES, TARGETS
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
        obeys(study, laws),
        obeys_raw(study, laws),
        unseen_needs_all(laws),
        translation_by_samples(laws),
        seen_captioning_alike(laws),
    ]


def obeys(study: Study, laws: StudyLaws) -> Claim:
    conditions = [condition for target in TARGETS for condition in _quality(laws.headline(target), target)]
    given, others = study.readings["UC"], study.readings["ST"]
    words = READING_NAMES[given] if given == others else f"UC {READING_NAMES[given]}; ST and SC {READING_NAMES[others]}"
    notes = _notes([laws.headline(target) for target in TARGETS])
    return Claim(f"law-{given}", f"The loss of UC, ST and SC obeys power laws ({words})", tuple(conditions), notes)


def obeys_raw(study: Study, laws: StudyLaws) -> Claim:
    """Of the test splits that are judged by another loss."""
    targets = [target for target, reading in study.readings.items() if reading != "raw"]
    conditions = [condition for target in targets for condition in _quality(laws.best("raw", target), target)]
    notes = (*_notes([laws.best("raw", target) for target in targets]), *why_raw_differs(study, laws))
    title = "The raw loss, over all tokens, obeys power laws too"
    return Claim("law-raw", title if len(targets) > 1 else f"{title} in UC", tuple(conditions), notes)


def _notes(laws: Sequence[StudyLaw | None]) -> tuple[str, ...]:
    """The form of the first law, and why there is none where there is none."""
    refused = [f"{law.target}: {law.refused}." for law in laws if law is not None and law.fitted is None]
    first = laws[0] if laws else None
    if first is None or first.fitted is None:
        return tuple(refused)
    form = f"Form {first.fitted.form.formula}, fitted to {len(first.fitted.points)} runs ({first.family})."
    return (form, *refused)


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
    raw = law_table(study.records, laws.family, "raw", "UC")
    raw_rises, num_steps = num_rises(raw)
    told = "Raw UC does not obey the law. From one budget of a model to the next it rises "
    told += f"{raw_rises} times of {num_steps}"
    law_given = laws.best(study.given, "UC")
    if law_given is None or law_given.fitted is None:  # such as where no reference begins with the prefix
        return [f"{told}."]
    given = law_table(study.records, laws.family, study.given, "UC")
    lines = [f"{told}; {READING_NAMES[study.given]}, {num_rises(given)[0]} times."]
    columns, losses = means_of(raw)
    _, losses_given = means_of(given)
    if len(losses) == len(losses_given):
        ends = []
        for budget in (min(columns["S"]), max(columns["S"])):
            rows = [row for row, samples in enumerate(columns["S"]) if samples == budget]
            ends.append(sum(losses[row] - losses_given[row] for row in rows) / len(rows))
        lines.append(
            f"Raw lies above the loss {READING_NAMES[study.given]} by {ends[0]:.2f} nats a token at the smallest "
            f"budget and {ends[1]:.2f} at the largest: the first tokens carry the choice of language."
        )
        if ends[1] > ends[0]:
            lines.append(
                "That this grows with samples would fit a model that becomes surer of the languages it was trained to "
                "caption in; the study does not measure that apart."
            )
    return lines


def unseen_needs_all(laws: StudyLaws) -> Claim:
    law = laws.headline("UC")
    conditions = (
        interval_below("exponent of the parameters P", exponent(law, "P"), 0.0),
        interval_below("exponent of the samples S", exponent(law, "S"), 0.0),
        interval_above("exponent of the loss before training T", exponent(law, "T"), 0.0),
    )
    return Claim("uc-exponents", f"In {NAMES['UC']} all of P, S and T matter", conditions, _not_apart(laws, "UC"))


def translation_by_samples(laws: StudyLaws) -> Claim:
    law = laws.headline("ST")
    stronger = None if law is None else exponent_difference(law, "P", "S")
    conditions = (
        interval_below("exponent of the samples S", exponent(law, "S"), 0.0),
        interval_above("exponent of P less exponent of S: S is the stronger", stronger, 0.0),
    )
    return Claim("st-exponents", f"In {NAMES['ST']} the samples S dominate", conditions, _not_apart(laws, "ST"))


def seen_captioning_alike(laws: StudyLaws) -> Claim:
    law = laws.headline("SC")
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
    law = laws.get(laws.readings[target], target, "pst") if target in laws.readings else None
    if law is None or law.fitted is not None:
        return ()
    return (f"No law with T: {law.refused}.",)
