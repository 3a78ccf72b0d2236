"""The paper's claims about captions, for a study on photographs: a caption is good if it finds its photograph.

`captions/found` is the share of captions whose own photograph is among the first ten of all (docs/photos.md).
"""

from babelcap.measures import UNSEEN, caption_measure
from babelcap.report.claims import (
    LANGUAGE_TARGET,
    PREFIX_GAIN_LIMIT,
    TITLES,
    TUNED_LANGUAGE_TARGET,
    difference,
    enough_seeds,
    looks_at_the_image,
    loss_and_content,
    prefix_needed,
)
from babelcap.report.statistics import Estimate, difference_of_shares
from babelcap.report.study_folder import KIND_NAMES, Cell, Study, chance, num_pictures, share, values
from babelcap.report.verdicts import Claim, at_least, at_most, interval_above

NAME = "found"
FOUND = caption_measure(NAME, "prefix")
FOUND_TARGET, LOST_LIMIT = 0.45, 0.06  # in every language; unseen ones behind seen ones
WHAT = "own photograph among the first ten"
NO_TRANSLATION = "no-translation"
TRANSLATIONS = "Translations help captioning in languages that were never captioned in"


def has_photographs(cell: Cell) -> bool:
    return bool(values(cell, FOUND, UNSEEN))


def photograph_claims(study: Study, main: Cell) -> list[Claim]:
    return [
        emergence(main),
        prefix_needed(main),
        translations(study, main),
        finetuning(study, main),
        loss_and_content(study, FOUND, WHAT),
        looks_at_the_image(study, main),
    ]


def emergence(main: Cell) -> Claim:
    found = share(main, NAME, "prefix")
    behind = difference_of_shares(values(main, FOUND, "SC"), values(main, FOUND, UNSEEN), num_pictures(main, FOUND))
    conditions = (
        interval_above(f"{WHAT}, with prefix", found, chance(main, NAME), "captions of other photographs"),
        at_least(f"{WHAT}, with prefix", found, FOUND_TARGET),
        at_most("the same, seen languages less unseen ones", behind, LOST_LIMIT),
        at_least("captions in the right language, with prefix", share(main, "language", "prefix"), LANGUAGE_TARGET),
        enough_seeds(main),
    )
    return Claim("emergence", TITLES["emergence"], conditions)


def translations(study: Study, main: Cell) -> Claim:
    """Beside captions alone: a frozen multilingual decoder may need none."""
    pair = study.beside(NO_TRANSLATION, main)
    found: Estimate | None = None
    language: Estimate | None = None
    if pair is not None:
        found = difference(pair[1], pair[0], NAME, ("prefix", "prefix"))
        language = difference(pair[1], pair[0], "language", ("prefix", "prefix"))
    without = KIND_NAMES[NO_TRANSLATION]
    conditions = (
        interval_above(f"{WHAT}, with prefix, more than with {without}", found, 0.0),
        interval_above(f"right language, with prefix, more than with {without}", language, 0.0, "", False),
    )
    return Claim("translations", TRANSLATIONS, conditions)


def finetuning(study: Study, main: Cell) -> Claim:
    """In the language of UC, French, whose captions it was fine-tuned on."""
    pair = study.finetuned(main)
    language = gain = found = None
    if pair is not None:
        tuned, source = pair
        language = share(tuned, "language", "plain", "UC")
        gain = difference(tuned, tuned, "language", ("prefix", "plain"), at="UC")
        found = difference(tuned, source, NAME, ("plain", "prefix"), at="UC")
    conditions = (
        at_least("right language without prefix, fine-tuned", language, TUNED_LANGUAGE_TARGET, True),
        at_most("right language, what the prefix still adds", gain, PREFIX_GAIN_LIMIT),
        interval_above(f"{WHAT}, fine-tuned without prefix less zero-shot with it", found, 0.0, "", False),
    )
    return Claim("finetuning", TITLES["finetuning"], conditions)
