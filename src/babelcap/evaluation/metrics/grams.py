"""N-grams of many texts as arrays: every text and n-gram a number, one row for each n-gram that a text has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow
from numpy.typing import NDArray

from babelcap.evaluation.metrics.score import Array

MAX_N = 4
Numbers = NDArray[np.int64]


class Grams(NamedTuple):
    """The n-grams of one order. Rows are sorted by text and n-gram."""

    text: Numbers  # [row]
    gram: Numbers  # [row]
    times: Array  # [row]
    num_grams: int


class Captions(NamedTuple):
    """Texts numbered through: the hypotheses of all images, then all references."""

    grams: tuple[Grams, ...]  # of order 1 to 4
    lengths: Numbers  # [text], in tokens
    image: Numbers  # [text]
    num_images: int  # the first so many texts are hypotheses


def count_captions(
    references: Mapping[str, Sequence[Sequence[str]]], hypotheses: Mapping[str, Sequence[str]]
) -> Captions:
    keys = list(references)
    texts = [hypotheses[key] for key in keys] + [text for key in keys for text in references[key]]
    numbers = np.arange(len(keys))
    image = np.concatenate([numbers, np.repeat(numbers, [len(references[key]) for key in keys])])
    lengths = np.array([len(text) for text in texts])
    return Captions(tuple(_count(texts, lengths)), lengths, image, len(keys))


def _count(texts: Sequence[Sequence[str]], lengths: Numbers) -> Iterator[Grams]:
    known: dict[str, int] = {}
    words = np.array([known.setdefault(word, len(known)) for text in texts for word in text], dtype=np.int64)
    text = np.repeat(np.arange(len(texts)), lengths)
    grams, inside = words, np.ones(len(words), dtype=bool)
    for n in range(1, MAX_N + 1):
        if n > 1:  # one word more at every place where the text is long enough
            size = max(0, len(words) - n + 1)
            inside = text[:size] == text[len(text) - size :]
            longer = grams[:size] * len(known) + words[len(words) - size :]
            grams = _numbered(np.where(inside, longer, -1))
        num_grams = int(grams.max(initial=0)) + 1
        rows, times = unique_rows(text[: len(grams)][inside] * num_grams + grams[inside])
        yield Grams(rows // num_grams, rows % num_grams, times.astype(np.float64), num_grams)


def _numbered(values: Numbers) -> Numbers:
    """Equal values get the same number, counted from 0: by a hash table, in time that grows as the text does."""
    indices: Numbers = pyarrow.array(values).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return indices.astype(np.int64)


def unique_rows(keys: Numbers) -> tuple[Numbers, Numbers]:
    """Sorted, each once, and how often. A merge sort is all but linear here: keys ascend from text to text already."""
    keys = np.sort(keys, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
    return keys[starts], np.diff(starts, append=len(keys))


def match_rows(captions: Captions, grams: Grams, values: Array) -> tuple[Numbers, Array]:
    """For each row of a reference, the value that its image's hypothesis has for the same n-gram, 0 where none.

    The first array has the places of the references' rows.
    """
    keys = captions.image[grams.text] * grams.num_grams + grams.gram
    is_reference = grams.text >= captions.num_images
    own, wanted = keys[~is_reference], keys[is_reference]
    if not len(own):
        return np.flatnonzero(is_reference), np.zeros(len(wanted))
    place = np.minimum(np.searchsorted(own, wanted), len(own) - 1)
    found = np.where(own[place] == wanted, values[~is_reference][place], 0.0)
    return np.flatnonzero(is_reference), found
