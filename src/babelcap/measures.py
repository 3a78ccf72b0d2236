"""The names of measures and what they mean, once: whoever writes, reads or draws one asks here.

A measure is text with slashes, because it is a key in files that people read:

    cross_entropy/{sample_mean,token_mean}/{raw,prefix_given,language,content,wording,...}[/shuffled], {raw}/gap
    captions/{language,objects,colours,relations,hallucinated,...}/{plain,prefix,shortlist,prefix+shortlist,chance}
    captions/{language,found,found_first}/{plain,prefix,chance}    of photographs: its own among the first ten, first
    downstream/captioning/{CIDEr,gated_CIDEr,fidelity}/{plain,prefix}[/shuffled]
    downstream/translation/{BLEU,chrF,fidelity}/plain[/shuffled]    downstream/ambiguity/accuracy/plain[/shuffled]
"""

from typing import Literal

from babelcap.errors import UserError

Mean = Literal["sample_mean", "token_mean"]
Part = Literal["language", "content", "wording"]
Reading = Literal["raw", "conditioned", "prefix_given", "calibrated", "language", "content", "wording"]
Pictures = Literal["own", "shuffled", "gap"]  # gap: of a loss, how much higher it is with another's picture
Downstream = Literal["captioning", "translation", "ambiguity"]  # kinds of benchmarks
Variant = Literal["plain", "prefix", "shortlist", "prefix+shortlist"]

MEANS: tuple[Mean, ...] = ("sample_mean", "token_mean")
PARTS: tuple[Part, ...] = ("language", "content", "wording")  # they add up to raw, sample by sample
READINGS: tuple[Reading, ...] = ("raw", "conditioned", "prefix_given", "calibrated", *PARTS)
# In the signature of `calibrated`. Halves by turns, as they once were, differ in kind: what they gave is not compared.
CALIBRATED_BY_CHANCE = {"halves": "by chance"}
# In the signature of captions judged by a world. Once, a thing that was named twice counted as named.
THINGS_ONE_TO_ONE = {"things": "one to one"}
PICTURES: tuple[Pictures, ...] = ("own", "shuffled")
VARIANTS: tuple[Variant, ...] = ("plain", "prefix", "shortlist", "prefix+shortlist")
# What a reading is over, for titles and axes.
READING_NAMES: dict[Reading, str] = {
    "raw": "over all tokens",
    "prefix_given": "after the prefix, over captions that begin with it",
    "conditioned": "without as many first tokens as the prefix has",
    "calibrated": "after the best single temperature",
    "language": "of the tokens that choose the language",
    "content": "of the words for things, colours, sizes, counts and places",
    "wording": "of all other words",
}
CHANCE = "chance"  # in a variant's place: what captions of other pictures reach
CAPTION_PREFIX = "captions/"

# Values of an EvalResult's `per_split` beside the test splits UC, ST and SC of the coverage.
TARGETS = ("UC", "ST", "SC")
UNSEEN = "unseen"  # the mean over the caption pairs of the hole
EVERY = "every"  # the mean over all pairs of a downstream measure

# Splits of a corpus.
TRAIN, EVAL, HOLDOUT = "train", "eval", "holdout"


def check_variant(name: str) -> Variant:
    for variant in VARIANTS:
        if variant == name:
            return variant
    raise UserError(f"variant '{name}' is unknown; known: {', '.join(VARIANTS)}")


def loss_measure(reading: Reading = "raw", mean: Mean = "sample_mean", pictures: Pictures = "own") -> str:
    """Cross-entropy: the paper's by default."""
    return f"cross_entropy/{mean}/{reading}" + ("" if pictures == "own" else f"/{pictures}")


def caption_measure(name: str, variant: str) -> str:
    """`name` is language, objects, colours, ...; `variant` how the caption was asked for, or `chance`."""
    return f"{CAPTION_PREFIX}{name}/{variant}"


def downstream_measure(kind: Downstream, metric: str, variant: Variant = "plain", pictures: Pictures = "own") -> str:
    """A benchmark's metric: CIDEr, BLEU, accuracy ...; `shuffled` where every picture was that of another item."""
    return f"downstream/{kind}/{metric}/{variant}" + ("" if pictures == "own" else f"/{pictures}")


LOSS = loss_measure()  # what the paper's laws are fitted to
# What a true caption says of its picture, asked for with the prefix: the content that a law can predict.
TRUE_CAPTIONS = tuple(caption_measure(name, "prefix") for name in ("objects", "colours"))
