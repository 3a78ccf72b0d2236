"""Alignment's search: `python bench/align.py [--quick] [--json]`, about four minutes.

exact   its rate as a share of a plain matrix product's of the same blocks, in one run (goal: .9)
faiss   recall@N against exact on image-like queries (goal: .95) and speed-up, by number of lists that are looked into

Everything is processor time of one thread, so that what else the machine does matters little; plain products and exact
searches take turns. An index is made once for all images of a search: its time is told in images whose exact search
takes as long.

Vectors stand in for those of dual encoders: the variance of their directions falls as a power of the rank (DECAY),
topics lie around centres, and images are shifted against texts all in one direction, the gap between the two kinds.
Recall on texts as queries would flatter an index; --work measures it on the real vectors of a build.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from babelcap.generate.align import AlignConfig
from babelcap.generate.faiss_search import build_index, search_index
from babelcap.generate.search import Candidates, SearchConfig, TextChunk, nearest_texts, no_candidates

EXACT_GOAL, RECALL_GOAL = 0.9, 0.95
WIDTH, NUM_CENTRES, GAP, DECAY = 512, 2000, 0.3, 1.0  # standard deviations fall as rank to the -DECAY/2
NUM_CANDIDATES = 32
CHUNK = 500_000
PROBES = (64, 128, 192, 256)
NUM_TURNS = 2


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float16]:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def draw(number: int, seed: int, shift: float) -> NDArray[np.float16]:
    """`shift` moves all of them along one direction."""
    scale = (np.arange(1, WIDTH + 1) ** (-DECAY / 2)).astype(np.float32)
    centres = scale * np.random.default_rng(0).standard_normal((NUM_CENTRES, WIDTH), np.float32)
    direction = scale * np.random.default_rng(1).standard_normal(WIDTH).astype(np.float32)
    rng = np.random.default_rng(seed)
    parts = []
    for start in range(0, number, 100_000):
        size = min(100_000, number - start)
        noise = scale * rng.standard_normal((size, WIDTH), np.float32)
        parts.append(unit(centres[rng.integers(0, NUM_CENTRES, size)] + noise + shift * direction))
    return np.concatenate(parts)


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def plain_product(images: NDArray[np.float16], texts: NDArray[np.float16], config: SearchConfig) -> None:
    """As fast as it is without looking at the result: in the same blocks, into memory that is there already."""
    queries = torch.from_numpy(images).float()
    room = torch.empty((min(len(images), config.image_block), config.text_block))
    for start in range(0, len(texts), config.text_block):
        keys = torch.from_numpy(texts[start : start + config.text_block]).float()
        for place in range(0, len(images), config.image_block):
            block = queries[place : place + config.image_block]
            torch.mm(block, keys.T, out=room[: len(block)] if len(keys) == config.text_block else None)


def read_vectors(work: Path, stage: str, number: int) -> NDArray[np.float16]:
    """Of a build: every so many, until there are as many as asked for or no more."""
    found = np.concatenate([np.load(path) for path in sorted(work.glob(f"{stage}-*/*.vectors.npy"))])
    return np.ascontiguousarray(found[:: max(1, len(found) // number)][:number])


def measure(images: NDArray[np.float16], texts: NDArray[np.float16], chunk: int) -> dict[str, Any]:
    num_images, num_texts = len(images), len(texts)
    hashes = np.arange(1, num_texts + 1, dtype=np.uint64)
    places = range(0, num_texts, chunk)
    chunks = [TextChunk(hashes[start : start + chunk], texts[start : start + chunk]) for start in places]
    config = SearchConfig()
    plain_product(images[:64], texts[:2000], config)  # what is done once, such as starting threads, is not measured
    turns = [
        (
            seconds(lambda: plain_product(images, texts, config))[0],
            seconds(lambda: nearest_texts(images, chunks, NUM_CANDIDATES, config)),
        )
        for _ in range(NUM_TURNS)
    ]
    plain, taken = min(turn[0] for turn in turns), min(turn[1][0] for turn in turns)
    return {
        "num_images": num_images,
        "num_texts": num_texts,
        "exact_share_of_product": plain / taken,
        "faiss": measure_faiss(images, chunks, turns[0][1][1], taken),
    }


class TimedIndex:
    """An index that measures its own search, which what is ours scores again and merges."""

    def __init__(self, index: Any) -> None:
        self.index, self.seconds = index, 0.0

    def search(self, *asked: Any) -> Any:
        taken, found = seconds(lambda: self.index.search(*asked))
        self.seconds += taken
        return found


def measure_faiss(
    images: NDArray[np.float16], chunks: list[TextChunk], exact: Candidates, of_exact: float
) -> dict[str, Any]:
    config = AlignConfig(num_candidates=NUM_CANDIDATES, index="faiss")
    best = {probes: no_candidates(len(images), NUM_CANDIDATES) for probes in PROBES}
    search, bare, of_index = dict.fromkeys(PROBES, 0.0), dict.fromkeys(PROBES, 0.0), 0.0
    for chunk in chunks:
        taken, index = seconds(lambda chunk=chunk: build_index(chunk.vectors, config))
        of_index += taken
        timed = TimedIndex(index)
        for probes in PROBES:
            index.nprobe, before = min(probes, index.nlist), timed.seconds
            taken, best[probes] = seconds(
                lambda timed=timed, chunk=chunk, probes=probes: search_index(timed, images, chunk, best[probes], config)
            )
            search[probes] += taken
            bare[probes] += timed.seconds - before
    rows = []
    for probes in PROBES:
        hits = [len(set(a) & set(b)) for a, b in zip(exact.hashes, best[probes].hashes, strict=True)]
        found = {"recall": sum(hits) / exact.hashes.size, "speed_up": of_exact / search[probes]}
        rows.append({"probes": probes, **found, "share_of_bare": bare[probes] / search[probes]})
    return {
        "code": config.faiss_code,
        "lists": config.faiss_lists,
        "survivors": config.faiss_survivors,
        "index_in_images": len(images) * of_index / of_exact,
        "by_probes": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few vectors: that it runs, not what it gives")
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path, help="take the vectors of a build's work folder instead")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    import faiss

    faiss.omp_set_num_threads(1)
    num_images, num_texts = (200, 20_000) if options.quick else (options.images, options.texts)
    if options.work is not None:
        vectors = [
            read_vectors(options.work, "embed_images", num_images),
            read_vectors(options.work, "embed_texts", num_texts),
        ]
    else:
        vectors = [draw(num_images, 2, GAP), draw(num_texts, 3, -GAP)]
    found = measure(vectors[0], vectors[1], CHUNK)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['num_images']:,} images, {found['num_texts']:,} texts, width {WIDTH}, {NUM_CANDIDATES} candidates")
    print(f"exact: {found['exact_share_of_product']:.2f} of a plain product's rate (goal {EXACT_GOAL})")
    faiss_found = found["faiss"]
    print(
        f"faiss, {faiss_found['code']}, {faiss_found['lists']} lists a chunk, {faiss_found['survivors']} survivors for "
        f"each candidate; its index takes as long as the exact search of {faiss_found['index_in_images']:,.0f} images"
    )
    for row in faiss_found["by_probes"]:
        line = f"recall@{NUM_CANDIDATES} {row['recall']:.3f} (goal {RECALL_GOAL}), {row['speed_up']:.1f} x exact"
        print(f"  {row['probes']:3d} probes: {line}")


if __name__ == "__main__":
    main()
