"""The names of measures and what they mean, once: whoever writes, reads or draws one asks here.

A measure is text with slashes, because it is a key in files that people read:

    cross_entropy/{sample_mean,token_mean}/{raw,conditioned}[/shuffled]
    captions/{language,objects,colours,relations,hallucinated,...}/{plain,prefix,shortlist,prefix+shortlist,chance}
"""

from typing import Literal

Mean = Literal["sample_mean", "token_mean"]
Reading = Literal["raw", "conditioned"]
Pictures = Literal["own", "shuffled"]
Variant = Literal["plain", "prefix", "shortlist", "prefix+shortlist"]

MEANS: tuple[Mean, ...] = ("sample_mean", "token_mean")
READINGS: tuple[Reading, ...] = ("raw", "conditioned")
PICTURES: tuple[Pictures, ...] = ("own", "shuffled")
VARIANTS: tuple[Variant, ...] = ("plain", "prefix", "shortlist", "prefix+shortlist")
CHANCE = "chance"  # in a variant's place: what captions of other pictures reach
CAPTION_PREFIX = "captions/"

# Values of an EvalResult's `per_split` beside the test splits UC, ST and SC of the coverage.
TARGETS = ("UC", "ST", "SC")
UNSEEN = "unseen"  # the mean over the caption pairs of the hole

# Splits of a corpus.
TRAIN, EVAL, HOLDOUT = "train", "eval", "holdout"


def loss_measure(reading: Reading = "raw", mean: Mean = "sample_mean", pictures: Pictures = "own") -> str:
    """Cross-entropy: the paper's by default."""
    return f"cross_entropy/{mean}/{reading}" + ("" if pictures == "own" else f"/{pictures}")


def caption_measure(name: str, variant: str) -> str:
    """`name` is language, objects, colours, ...; `variant` how the caption was asked for, or `chance`."""
    return f"{CAPTION_PREFIX}{name}/{variant}"


LOSS = loss_measure()  # what the paper's laws are fitted to
