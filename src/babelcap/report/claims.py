"""The paper's claims about captions, each against what this study measured. Claims about laws: `law_claims`.

Captions are those of the largest model and budget with enough seeds, in the languages never captioned in, unless said.
"""

import math

from babelcap.laws.runs import MAIN
from babelcap.measures import EVAL, HOLDOUT, PICTURES, READING_NAMES, UNSEEN, caption_measure, loss_measure
from babelcap.report.downstream import ambiguity_claim
from babelcap.report.formatting import decimal
from babelcap.report.statistics import Estimate, difference_of_shares, over_seeds, rank_correlation
from babelcap.report.study_folder import (
    CONTROLS,
    KIND_NAMES,
    SEEDS_TARGET,
    Cell,
    Study,
    chance,
    num_pictures,
    share,
    value,
    values,
)
from babelcap.report.verdicts import Claim, Condition, at_least, at_most, interval_above, interval_below

# What a good recipe should reach at this scale.
LANGUAGE_TARGET, COLOURS_TARGET, OBJECTS_TARGET = 0.95, 0.9, 0.7
TUNED_LANGUAGE_TARGET = 0.98
WITHOUT_PREFIX_LIMIT = 0.5  # the prefix is needed where most captions are in the wrong language without it
PREFIX_GAIN_LIMIT = 0.02  # after fine-tuning the prefix may add no more than this
CORRELATION_TARGET = -0.8
HOLDOUT_LOSS_LIMIT = 0.1
BLIND_GUESS = 0.5  # between a relation and its opposite
OBJECTS = caption_measure("objects", "prefix")


def caption_claims(study: Study) -> list[Claim]:
    main = study.headline()
    if main is None:
        nothing = Condition("a run of the grid", None, "at least one", None)
        return [Claim(key, title, (nothing,)) for key, title in TITLES.items()]
    return [
        emergence(study, main),
        prefix_needed(main),
        relations(main),
        finetuning(study, main),
        loss_and_content(study),
        looks_at_the_image(study, main),
        compositional(main),
        *([] if (found := ambiguity_claim(main)) is None else [found]),
    ]


TITLES = {
    "emergence": "Captioning emerges in languages that were never captioned in",
    "prefix": "It is conditional: the decoder has to be started with a language prefix",
    "relations": "Captions in unseen languages say rightly how the objects lie to each other",
    "finetuning": "Fine-tuning on full coverage removes the need for the prefix",
    "loss-content": "A lower loss in unseen captioning means better captions",
    "image": "Captions in unseen languages come from the picture, not from the language alone",
    "holdout": "What emerges is compositional: it holds for combinations that training never showed",
}


def difference(
    first: Cell,
    second: Cell,
    name: str,
    variants: tuple[str, str],
    splits: tuple[str, str] = (EVAL, EVAL),
    at: str = UNSEEN,
) -> Estimate | None:
    """A caption measure of one cell less that of another, seed by seed."""
    measures = [caption_measure(name, variant) for variant in variants]
    return difference_of_shares(
        values(first, measures[0], at, splits[0]),
        values(second, measures[1], at, splits[1]),
        min(num_pictures(first, measures[0], splits[0]), num_pictures(second, measures[1], splits[1])),
    )


def enough_seeds(cell: Cell) -> Condition:
    num = len(cell.records)
    return Condition(
        "seeds", Estimate(num, num=num, method="a count"), f"at least {SEEDS_TARGET}", num >= SEEDS_TARGET, False, 0
    )


def emergence(study: Study, main: Cell) -> Claim:
    objects, colours = share(main, "objects", "prefix"), share(main, "colours", "prefix")
    conditions = [
        interval_above("objects right, with prefix", objects, chance(main, "objects"), "chance"),
        interval_above("colours right, with prefix", colours, chance(main, "colours"), "chance"),
    ]
    for kind in CONTROLS:
        pair = study.beside(kind, main)
        found = None if pair is None else difference(pair[1], pair[0], "objects", ("prefix", "prefix"))
        conditions.append(interval_above(f"objects right, more than with {KIND_NAMES[kind]}", found, 0.0))
    conditions += [
        at_least("captions in the right language, with prefix", share(main, "language", "prefix"), LANGUAGE_TARGET),
        at_least("colours right, with prefix", colours, COLOURS_TARGET),
        at_least("objects right, with prefix", objects, OBJECTS_TARGET),
        enough_seeds(main),
    ]
    return Claim("emergence", TITLES["emergence"], tuple(conditions))


def prefix_needed(main: Cell) -> Claim:
    plain = values(main, caption_measure("language", "plain"), UNSEEN)
    notes = []
    if len(plain) > 1:
        notes.append(
            f"Without prefix the share of captions in the right language differs between seeds: from {min(plain):.2f} "
            f"to {max(plain):.2f}."
        )
    shortlist = share(main, "language", "shortlist")
    if shortlist is not None:
        notes.append(f"A shortlist of the language's tokens in place of the prefix gives {shortlist.value:.2f}.")
    gain = difference(main, main, "language", ("prefix", "plain"))
    conditions = (
        interval_above("right language, with prefix less without", gain, 0.0),
        at_most("right language without prefix", share(main, "language", "plain"), WITHOUT_PREFIX_LIMIT),
        at_least("right language with prefix", share(main, "language", "prefix"), LANGUAGE_TARGET),
        enough_seeds(main),
    )
    return Claim("prefix", TITLES["prefix"], conditions, tuple(notes))


def relations(main: Cell) -> Claim:
    """What a caption says of above and below, left and right, against a blind guess between the two."""
    name = relation_measure(main)
    notes = []
    seen = share(main, name, "plain", "SC")
    if seen is not None and seen.is_number:
        notes.append(f"In the languages that training captions in, without prefix: {decimal(seen.value)}.")
    stated = share(main, name, "prefix")
    conditions = (
        interval_above(f"{name} right, with prefix", stated, BLIND_GUESS, "a blind guess between opposites"),
        enough_seeds(main),
    )
    return Claim("relations", TITLES["relations"], conditions, tuple(notes))


def relation_measure(main: Cell) -> str:
    """Directions are the relations stated that are true or the opposite of it; earlier studies did not count them."""
    return "directions" if share(main, "directions", "prefix") is not None else "relations"


def finetuning(study: Study, main: Cell) -> Claim:
    pair = study.finetuned(main)
    language = gain = objects = colours = None
    if pair is not None:
        tuned, source = pair
        language = share(tuned, "language", "plain")
        gain = difference(tuned, tuned, "language", ("prefix", "plain"))
        objects = difference(tuned, source, "objects", ("plain", "prefix"))
        colours = difference(tuned, source, "colours", ("plain", "prefix"))
    conditions = [
        at_least("right language without prefix, fine-tuned", language, TUNED_LANGUAGE_TARGET, True),
        at_most("right language, what the prefix still adds", gain, PREFIX_GAIN_LIMIT),
        interval_above("objects right, fine-tuned without prefix less zero-shot with it", objects, 0.0, "", False),
        interval_above("colours right, fine-tuned without prefix less zero-shot with it", colours, 0.0, "", False),
    ]
    return Claim("finetuning", TITLES["finetuning"], tuple(conditions))


def content_points(study: Study, measure: str = OBJECTS) -> list[tuple[str, float, float, int]]:
    """Of every main run: size, UC loss, objects right with prefix in the languages of UC, samples."""
    points = []
    for cell in study.cells(MAIN):
        for record in cell.records:
            loss = value(record, loss_measure(study.given), "UC")
            content = value(record, measure, "UC")
            if loss is not None and content is not None and math.isfinite(loss + content):
                points.append((f"{record.size} {record.base}", loss, content, record.S))
    return points


def loss_and_content(study: Study, measure: str = OBJECTS, name: str = "objects right") -> Claim:
    points = content_points(study, measure)
    found = rank_correlation(
        [loss for _, loss, _, _ in points],
        [content for _, _, content, _ in points],
        [f"{name} {samples}" for name, _, _, samples in points],
    )
    what = f"rank correlation of {name} and the loss {READING_NAMES[study.given]}, all runs of the grid"
    conditions = (
        interval_below(what, found, 0.0),
        at_most(what, found, CORRELATION_TARGET),
    )
    return Claim("loss-content", TITLES["loss-content"], conditions)


def gap_values(study: Study, cell: Cell, target: str) -> list[float]:
    """Loss with another picture less loss with the own one, in nats; one for each seed."""
    reading = study.readings[target]
    own, shuffled = (values(cell, loss_measure(reading, pictures=name), target) for name in PICTURES)
    return [other - mine for mine, other in zip(own, shuffled, strict=True)] if own and shuffled else []


def looks_at_the_image(study: Study, main: Cell) -> Claim:
    gap = over_seeds(gap_values(study, main, "UC"))
    conditions = [interval_above("UC loss with another picture less with the own (nats)", gap, 0.0)]
    for kind in CONTROLS:
        pair = study.beside(kind, main)
        controls, ours = ([], []) if pair is None else (gap_values(study, cell, "UC") for cell in pair)
        found = over_seeds([a - b for a, b in zip(ours, controls, strict=True)]) if ours and controls else None
        what = f"the same gap (nats), more than with {KIND_NAMES[kind]}"
        conditions.append(interval_above(what, found, 0.0, "", False))
    notes = []
    seen = over_seeds(gap_values(study, main, "SC"))
    if seen is not None:
        notes.append(f"In the languages that training captions in, the gap is {decimal(seen.value)} nats.")
    return Claim("image", TITLES["image"], tuple(conditions), tuple(notes))


def compositional(main: Cell) -> Claim:
    conditions = []
    for name in ("objects", "colours"):
        held = share(main, name, "prefix", split=HOLDOUT)
        conditions.append(
            interval_above(f"{name} right on held-out combinations", held, chance(main, name, HOLDOUT), "chance")
        )
    for name in ("objects", "colours"):
        lost = difference(main, main, name, ("prefix", "prefix"), (EVAL, HOLDOUT))
        conditions.append(at_most(f"{name} right, what is lost on held-out combinations", lost, HOLDOUT_LOSS_LIMIT))
    return Claim("holdout", TITLES["holdout"], tuple(conditions))
