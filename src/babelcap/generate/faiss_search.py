"""Approximate search by FAISS on processors: an inverted file over each chunk of text, results merged and rescored.

Indices are never merged, so memory holds one chunk's at a time; the same survivors are scored again in float64, so that
a text that is found has the very score that exact search gives it. What is lost is recall: `bench/align.py` measures it
on image queries, whose distribution is not that of the texts.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from babelcap.errors import UserError
from babelcap.generate.search import Candidates, TextChunk, merge_candidates, rescored

if TYPE_CHECKING:
    from babelcap.generate.align import AlignConfig

SEED = 1234


def nearest_texts_faiss(images: NDArray[np.float16], chunks: Sequence[TextChunk], config: "AlignConfig") -> Candidates:
    faiss = _faiss()
    if config.num_threads is not None:
        faiss.omp_set_num_threads(config.num_threads)
    size = (len(images), config.num_candidates)
    best = Candidates(np.zeros(size, np.uint64), np.full(size, -np.inf))
    queries = np.ascontiguousarray(images, dtype=np.float32)
    for chunk in chunks:
        if not len(chunk.hashes):
            continue
        index = build_index(chunk.vectors, config)
        _, places = index.search(queries, min(config.num_candidates, len(chunk.hashes)))
        scores = rescored(images, chunk.vectors, places)
        hashes = np.where(places >= 0, chunk.hashes[np.maximum(places, 0)], np.uint64(0))
        best = merge_candidates([best, Candidates(hashes, scores)], config.num_candidates)
    return best


def build_index(vectors: NDArray[np.float16], config: "AlignConfig") -> Any:
    """IVF with inner product, trained on a sample that depends on the contents alone."""
    faiss = _faiss()
    num_lists = config.faiss_lists or max(1, min(4 * math.isqrt(len(vectors)), len(vectors) // 40))
    width = vectors.shape[1]
    quantiser = faiss.IndexFlatIP(width)
    index = faiss.IndexIVFFlat(quantiser, width, num_lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = SEED
    places = np.random.default_rng(SEED).permutation(len(vectors))[: config.faiss_training_sample]
    index.train(np.ascontiguousarray(vectors[np.sort(places)], dtype=np.float32))
    for start in range(0, len(vectors), 100_000):
        index.add(np.ascontiguousarray(vectors[start : start + 100_000], dtype=np.float32))
    index.nprobe = min(config.faiss_probes, num_lists)
    return index


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise UserError("align.index = 'faiss' needs FAISS: pip install 'babelcap[data]', or choose 'exact'") from None
    return faiss
