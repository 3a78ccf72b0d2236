"""The answer in five lines, made of the study's numbers: does it caption, from what, with what help, by what law, and
was that known before. A line of which nothing was measured says so.
"""

from typing import NamedTuple

from babelcap.laws.judged import judge
from babelcap.measures import UNSEEN
from babelcap.report.skill import judged_measures, pooled_skill, rows_of
from babelcap.report.statistics import Estimate
from babelcap.report.study_folder import CONTROLS, Cell, Study, chance, share
from babelcap.report.study_laws import StudyLaws, exponent

NARROW = "\u202f"  # a space at which no line is broken
NOT_MEASURED = "This was not measured."
WITHOUT = {"no-translation": "trained without translations", "unfit-translation": "with translations of other pictures"}
COLUMN_WORDS = {"P": "larger models", "S": "more samples", "T": "a base model that knows the languages"}


class Answer(NamedTuple):
    question: str
    text: str


def answers(study: Study, laws: StudyLaws) -> list[Answer]:
    main = study.headline()
    return [
        Answer("Do they caption?", NOT_MEASURED if main is None else _captions(main)),
        Answer("From what?", NOT_MEASURED if main is None else _controls(study, main)),
        Answer("With what help?", NOT_MEASURED if main is None else _prefix(study, main)),
        Answer("What makes it better?", _law(study, laws)),
        Answer("Was that known before?", _skill(study, laws)),
    ]


def percent(found: Estimate | None, with_interval: bool = True) -> str:
    """82 % [72, 89]."""
    if found is None or not found.is_number:
        return "none"
    text = f"{100 * found.value:.0f}{NARROW}%"
    if not with_interval or found.low is None or found.high is None:
        return text
    return f"{text} [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def _captions(main: Cell) -> str:
    objects, colours = share(main, "objects", "prefix"), share(main, "colours", "prefix")
    language = share(main, "language", "prefix")
    if objects is None or language is None:
        return NOT_MEASURED
    by_chance = [chance(main, name) for name in ("objects", "colours")]
    known = [f"{100 * number:.0f}" for number in by_chance if number is not None]
    guess = f" (by chance: {' and '.join(known)} %)" if known else ""
    above = by_chance[0] is None or bool(objects.above(by_chance[0]))
    return (
        f"{'Yes' if above else 'Not beyond chance'}. After a prefix of a few words, {percent(language)} of the "
        f"captions are in the language asked for. They name {percent(objects)} of the objects, and {percent(colours)} "
        f"of the colours they state are right{guess}."
    )


def _controls(study: Study, main: Cell) -> str:
    parts = []
    for kind in CONTROLS:
        pair = study.beside(kind, main)
        found = None if pair is None else share(pair[0], "objects", "prefix")
        if pair is not None and found is not None:
            parts.append(f"{WITHOUT[kind]}, the same model names {percent(found)}")
    if not parts:
        return NOT_MEASURED
    return f"From translations that fit their pictures: {'; '.join(parts)} of the objects."


def _prefix(study: Study, main: Cell) -> str:
    plain = share(main, "language", "plain")
    if plain is None:
        return NOT_MEASURED
    text = f"Without the prefix {percent(plain)} of the captions are in the right language"
    if len(plain.seeds) > 1:
        text += f" (by seed {100 * min(plain.seeds):.0f} to {100 * max(plain.seeds):.0f} %)"
    tuned = study.finetuned(main)
    after = None if tuned is None else share(tuned[0], "language", "plain", UNSEEN)
    return text + ("." if after is None else f"; after a short fine-tuning on all languages {percent(after)}.")


def _law(study: Study, laws: StudyLaws) -> str:
    law = laws.headline("UC")
    if law is None or law.fitted is None:
        return "The runs are too few, or vary too little, for a law."
    helps: list[str] = []
    does_not: list[str] = []
    for column, words in COLUMN_WORDS.items():
        found = exponent(law, column)
        if found is not None:
            sign = found.above(0.0) if column == "T" else found.below(0.0)
            (helps if sign else does_not).append(words)
    text = (
        f"The loss of unseen captions falls with {_listed(helps)}" if helps else "Nothing varied here lowers the loss"
    )
    if does_not and helps:
        text += f", and not measurably with {_listed(does_not)}"
    objects = next(iter(laws.content.values()), None)
    if objects is not None:
        coefficients = [objects.form.coefficients[place] for place in (1, 2)]
        falls = [name for name, at in zip(("larger models", "more samples"), coefficients, strict=True)
                 if objects.intervals[at][1] < 0]  # fmt: skip
        text += f"; the objects that captions miss become fewer with {_listed(falls)}" if falls else ""
    return f"{text}. The law explains {100 * law.fitted.r2:.0f} % of the variance of {len(law.fitted.points)} runs."


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _skill(study: Study, laws: StudyLaws) -> str:
    if study.prediction is not None and (rows := judge(study.prediction, study.records)):
        inside, total = sum(row.num_inside for row in rows), sum(row.num_runs for row in rows)
        wanted = {(measure, target) for _, measure, target in judged_measures(study)}
        better = [
            row for row in rows if (row.measure, row.target) in wanted and row.skill is not None and row.skill > 0
        ]
        judged = [row for row in rows if (row.measure, row.target) in wanted and row.skill is not None]
        return (
            f"{len(study.prediction.runs)} runs were predicted before they were run: {100 * inside / total:.0f} % of "
            f"{total} values lie in their 95 % intervals, and the laws beat the better guess in {len(better)} of "
            f"{len(judged)} measures."
        )
    skills = {}
    for name, measure, target in judged_measures(study):
        found = pooled_skill([row.judged for row in rows_of(laws.rolled, laws.family, measure, target)])
        if found is not None:
            skills[name] = found
    if not skills:
        return "The runs are too few to try."
    worse = [name for name, skill in skills.items() if skill <= 0]
    text = f"Left out and predicted from smaller runs, the laws beat plain guesses in {len(skills) - len(worse)} of "
    return text + f"{len(skills)} measures" + (f"; not in {_listed(worse)}." if worse else ".")
