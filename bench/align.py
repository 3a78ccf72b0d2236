"""Alignment's search: `python bench/align.py [--quick] [--json]`.

exact   its rate as a share of a plain matrix product's of the same shapes, in one run (goal: .9)
faiss   recall@N against exact on image-like queries, and its speed-up (goal: .95), by number of probes

Vectors stand in for those of dual encoders: the variance of their directions falls as a power of the rank (DECAY),
topics lie around centres, and images are shifted against texts all in one direction, the gap between the two kinds.
Recall on texts as queries would flatter an index; recall on real vectors may be another.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from babelcap.generate.align import AlignConfig
from babelcap.generate.faiss_search import nearest_texts_faiss
from babelcap.generate.search import SearchConfig, TextChunk, nearest_texts

EXACT_GOAL, RECALL_GOAL = 0.9, 0.95
WIDTH, NUM_CENTRES, GAP, DECAY = 512, 2000, 0.3, 1.0  # standard deviations fall as rank to the -DECAY/2
NUM_CANDIDATES = 32
PROBES = (8, 32, 128)


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
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def plain_product(images: NDArray[np.float16], texts: NDArray[np.float16], config: SearchConfig) -> None:
    queries = torch.from_numpy(images).float()
    for start in range(0, len(texts), config.text_block):
        keys = torch.from_numpy(texts[start : start + config.text_block]).float()
        for place in range(0, len(images), config.image_block):
            torch.mm(queries[place : place + config.image_block], keys.T)


def measure(num_images: int, num_texts: int, chunk: int) -> dict[str, Any]:
    images, texts = draw(num_images, 2, GAP), draw(num_texts, 3, -GAP)
    hashes = np.arange(1, num_texts + 1, dtype=np.uint64)
    places = range(0, num_texts, chunk)
    chunks = [TextChunk(hashes[start : start + chunk], texts[start : start + chunk]) for start in places]
    config = SearchConfig()
    plain_product(images[:64], texts[:1000], config)  # what is done once, such as starting threads, is not measured
    plain, _ = seconds(lambda: plain_product(images, texts, config))
    taken, exact = seconds(lambda: nearest_texts(images, chunks, NUM_CANDIDATES, config))
    found: dict[str, Any] = {
        "num_images": num_images,
        "num_texts": num_texts,
        "exact_share_of_product": plain / taken,
        "faiss": [],
    }
    for probes in PROBES:
        align = AlignConfig(num_candidates=NUM_CANDIDATES, index="faiss", faiss_probes=probes)
        of_faiss, approximate = seconds(lambda align=align: nearest_texts_faiss(images, chunks, align))
        hits = [len(set(a) & set(b)) for a, b in zip(exact.hashes, approximate.hashes, strict=True)]
        recall = sum(hits) / exact.hashes.size
        found["faiss"].append({"probes": probes, "recall": recall, "speed_up": taken / of_faiss})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few vectors: that it runs, not what it gives")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sizes = (500, 20_000, 20_000) if options.quick else (options.images, options.texts, 500_000)
    found = measure(*sizes)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['num_images']:,} images, {found['num_texts']:,} texts, width {WIDTH}, {NUM_CANDIDATES} candidates")
    print(f"exact: {found['exact_share_of_product']:.2f} of a plain product's rate (goal {EXACT_GOAL})")
    for row in found["faiss"]:
        line = f"recall@{NUM_CANDIDATES} {row['recall']:.3f} (goal {RECALL_GOAL}), {row['speed_up']:.1f} x exact"
        print(f"faiss, {row['probes']} probes: {line}, index included")


if __name__ == "__main__":
    main()
