"""Approximate search by FAISS on processors: an inverted file over each chunk of text, results merged and rescored.

flat   vectors as they are        sq8   a byte a number        pq   four bits for two numbers, scanned 32 at a time

Indices are never merged, so memory holds one chunk's at a time. Of a quantised index several times as many are taken as
are wanted; all are scored again in float64, so that a text that is found has the very score that exact search gives it.
What is lost is recall: `bench/align.py` measures it on image queries, whose distribution is not that of the texts.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from babelcap.errors import UserError
from babelcap.generate.search import Candidates, Pairs, TextChunk, add_pairs, no_candidates

if TYPE_CHECKING:
    from babelcap.generate.align import AlignConfig

SEED = 1234
NUM_ITERATIONS = 10  # of k-means, which is most of what an index costs to train
TEXTS_A_LIST = 40  # at least, for a list to have a centre of its own
IMAGES_AT_ONCE = 1024


def nearest_texts_faiss(images: NDArray[np.float16], chunks: Iterable[TextChunk], config: "AlignConfig") -> Candidates:
    faiss = _faiss()
    if config.num_threads is not None:
        faiss.omp_set_num_threads(config.num_threads)
    best = no_candidates(len(images), config.num_candidates)
    for chunk in chunks:
        if len(chunk.hashes):
            best = search_index(build_index(chunk.vectors, config), images, chunk, best, config)
    return best


def search_index(
    index: Any, images: NDArray[np.float16], chunk: TextChunk, best: Candidates, config: "AlignConfig"
) -> Candidates:
    """The best of `best` and of what the chunk's index finds."""
    number = config.num_candidates * (1 if config.faiss_code == "flat" else config.faiss_survivors)
    merged = no_candidates(*best.scores.shape)
    for start in range(0, len(images), IMAGES_AT_ONCE):
        block = slice(start, start + IMAGES_AT_ONCE)
        queries = np.ascontiguousarray(images[block], dtype=np.float32)
        scores, places = index.search(queries, min(number, len(chunk.hashes)))
        rows, columns = (places >= 0).nonzero()
        found = Pairs(rows, places[rows, columns], scores[rows, columns])
        before = Candidates(best.hashes[block], best.scores[block])
        merged.hashes[block], merged.scores[block] = add_pairs(before, images[block], chunk, found)
    return merged


def build_index(vectors: NDArray[np.float16], config: "AlignConfig") -> Any:
    """IVF with inner product, trained on a sample that depends on the contents alone."""
    faiss = _faiss()
    num_lists = max(1, min(config.faiss_lists, len(vectors) // TEXTS_A_LIST))
    width = vectors.shape[1]
    codes = {"flat": "Flat", "sq8": "SQ8", "pq": f"PQ{width // 2 if width % 2 == 0 else width}x4fsr"}
    index = faiss.index_factory(width, f"IVF{num_lists},{codes[config.faiss_code]}", faiss.METRIC_INNER_PRODUCT)
    index.cp.seed, index.cp.niter = SEED, NUM_ITERATIONS
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
