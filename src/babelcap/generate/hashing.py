"""Hashes of content: the same text has the same one in whatever file, chunk or order it comes."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def pair_hash(source: str, target: str, language: str) -> int:
    """64 bits of a sentence pair; never 0, which stands for no pair."""
    content = "\x00".join((language, source, target)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") or 1


def pair_hashes(sources: Sequence[str], targets: Sequence[str], language: str) -> NDArray[np.uint64]:
    found = [pair_hash(source, target, language) for source, target in zip(sources, targets, strict=True)]
    return np.array(found, np.uint64)
