"""What the parts of the loss say of unseen captions: content, wording, overconfidence; where they were measured."""

import math
from collections.abc import Callable, Sequence

from babelcap.laws.runs import MAIN
from babelcap.measures import CALIBRATED_BY_CHANCE, LOSS, loss_measure
from babelcap.records import find_result
from babelcap.report.statistics import Estimate, over_seeds
from babelcap.report.study_folder import Cell, Study, values
from babelcap.report.study_laws import StudyLaws, exponent
from babelcap.report.verdicts import Claim, Condition, interval_above, interval_below

AS_CAPTIONS, AS_TRANSLATIONS = f"{LOSS}/as_captions", f"{LOSS}/as_translations"
Seeds = Callable[[Cell], list[float]]  # a number of each seed


def loss_claims(study: Study, laws: StudyLaws) -> list[Claim]:
    found = [parts(laws)] if laws.best("content", "UC") is not None else []
    ends = budget_ends(study)
    if ends is None:
        return found
    if all(map(_is_calibrated, ends)):
        found.append(overconfidence(*ends))
    if values(ends[1], AS_CAPTIONS, "UC"):
        found.append(worded_as_translations(*ends))
    return found


def budget_ends(study: Study) -> tuple[Cell, Cell] | None:
    """The model that is shown at its smallest and at its largest budget, with the seeds that both have."""
    main = study.headline()
    if main is None:
        return None
    same = [cell for cell in study.cells(MAIN) if cell.key[1:3] == main.key[1:3] and set(cell.seeds) & set(main.seeds)]
    first = min(same, key=lambda cell: cell.key.S)
    seeds = set(first.seeds) & set(main.seeds)
    return (first.only(seeds), main.only(seeds)) if first.key.S < main.key.S else None


def parts(laws: StudyLaws) -> Claim:
    content, wording = laws.best("content", "UC"), laws.best("wording", "UC")
    of_wording = exponent(wording, "S")
    holds = None if of_wording is None or of_wording.high is None else of_wording.high >= 0
    conditions = (
        interval_below("content: exponent of the samples S", exponent(content, "S"), 0.0),
        interval_below("content: exponent of the parameters P", exponent(content, "P"), 0.0),
        interval_above("content: exponent of the loss before training T", exponent(content, "T"), 0.0, "", False),
        Condition(
            "wording: exponent of the samples S",
            of_wording,
            "interval not below 0",
            holds,
        ),
    )
    notes = [
        f"{law.reading}: R² {law.fitted.r2:.2f}, {len(law.fitted.points)} runs."
        for law in (content, wording)
        if law is not None and law.fitted is not None
    ]
    title = "Of unseen captions the content is learned, the wording is not"
    return Claim("parts", title, conditions, tuple(notes))


def _is_calibrated(cell: Cell) -> bool:
    found = [find_result(record.results, loss_measure("calibrated")) for record in cell.records]
    return all(result is not None and result.signature.items() >= CALIBRATED_BY_CHANCE.items() for result in found)


def _change(first: Cell, last: Cell, of: Seeds) -> Estimate | None:
    """From the smallest budget to the largest, seed by seed."""
    return over_seeds([after - before for before, after in zip(of(first), of(last), strict=True)])


def _less(first: str, second: str) -> Seeds:
    """One measure less another, of UC."""

    def of(cell: Cell) -> list[float]:
        pairs: Sequence[tuple[float, float]] = list(
            zip(values(cell, first, "UC"), values(cell, second, "UC"), strict=True)
        )
        return [a - b for a, b in pairs if not math.isnan(a - b)]

    return of


def overconfidence(first: Cell, last: Cell) -> Claim:
    excess = _less(LOSS, loss_measure("calibrated"))
    conditions = (
        interval_above("UC less UC after the best temperature, largest budget (nats)", over_seeds(excess(last)), 0.0),
        interval_above("the same, largest less smallest budget (nats)", _change(first, last, excess), 0.0),
    )
    title = "Part of the loss of unseen captions is overconfidence, and that part grows with samples"
    return Claim("overconfidence", title, conditions)


def worded_as_translations(first: Cell, last: Cell) -> Claim:
    def of(cell: Cell) -> list[float]:
        return values(cell, AS_TRANSLATIONS, "UC")

    dearer = _less(AS_CAPTIONS, AS_TRANSLATIONS)
    conditions = (
        interval_above(
            "UC, references worded as captions less worded as translations, largest budget (nats)",
            over_seeds(dearer(last)), 0.0,
        ),
        interval_above("the same, largest less smallest budget (nats)", _change(first, last, dearer), 0.0),
        interval_below("worded as translations, largest less smallest budget (nats)", _change(first, last, of), 0.0),
    )  # fmt: skip
    return Claim("wording", "Unseen captions are worded as the model learned to translate", conditions)
