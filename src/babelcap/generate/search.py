"""The texts nearest to each image by cosine, exactly, whatever the order of the texts and however they were cut.

    score(i, t) = <image_i, text_t>      both normalised, kept as float16

Blocks of images times blocks of text are multiplied in float32 on any device, the best of each block survive, and
survivors are scored again in float64. A float32 product of two normalised vectors is off by less than TOLERANCE, so a
block also keeps all that is within it of the last place: what the rounding of one cut loses, no other cut finds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from babelcap.config import ConfigModel, resource

if TYPE_CHECKING:  # imported where it is used: stages that need none start faster
    from torch import Tensor

TOLERANCE = 1e-4  # d * 2^-24 for a width of 1,000, and some room
NOTHING = -np.inf
MAX_ABOVE = 4  # times as many as are wanted, of each row


class Texts(Protocol):
    """A chunk of texts: content hashes [n] and vectors [n, width], which may be memory-mapped."""

    @property
    def hashes(self) -> NDArray[np.uint64]: ...

    @property
    def vectors(self) -> NDArray[np.float16]: ...


@dataclass(frozen=True)
class TextChunk:
    hashes: NDArray[np.uint64]
    vectors: NDArray[np.float16]


class Candidates(NamedTuple):
    """[images, k], best first; where an image has fewer, hash 0 and a score of minus infinity."""

    hashes: NDArray[np.uint64]
    scores: NDArray[np.float64]


class SearchConfig(ConfigModel):
    """How the products are blocked and where: nothing here changes what is found."""

    image_block: int = resource(4096, ge=1)
    text_block: int = resource(16384, ge=1)
    device: str = resource("cpu")


class Found(NamedTuple):
    """Places in a chunk that survive for each image of a block: [images, kept] with float64 scores; -1 is none."""

    places: NDArray[np.int64]
    scores: NDArray[np.float64]


def nearest_texts(
    images: NDArray[np.float16], chunks: Iterable[Texts], num_candidates: int, config: SearchConfig
) -> Candidates:
    """Equal scores are ordered by content hash, and one text counts once however often it comes."""
    best = Candidates(
        np.zeros((len(images), num_candidates), np.uint64), np.full((len(images), num_candidates), NOTHING)
    )
    for chunk in chunks:
        for start in range(0, len(images), config.image_block):
            rows = slice(start, start + config.image_block)
            found = _search_block(images[rows], chunk.vectors, best.scores[rows], config)
            hashes = np.where(found.places >= 0, chunk.hashes[np.maximum(found.places, 0)], np.uint64(0))
            merged = merge_candidates(
                [Candidates(best.hashes[rows], best.scores[rows]), Candidates(hashes, found.scores)], num_candidates
            )
            best.hashes[rows], best.scores[rows] = merged
    return best


def _search_block(
    images: NDArray[np.float16], texts: NDArray[np.float16], before: NDArray[np.float64], config: SearchConfig
) -> Found:
    """`before` [images, wanted] are the best scores of the chunks before: nothing below the last of them is wanted."""
    import torch

    queries = torch.from_numpy(np.array(images)).to(config.device).float()
    kept: list[tuple[Tensor, Tensor]] = []
    num_wanted = before.shape[1]
    floor = torch.from_numpy(before[:, -1] - TOLERANCE).to(config.device, torch.float32)
    for start in range(0, len(texts), config.text_block):
        keys = torch.from_numpy(np.array(texts[start : start + config.text_block])).to(config.device)
        products = queries @ keys.float().T
        found = _above(products, floor, MAX_ABOVE * num_wanted)
        scores, places = found if found is not None else _best_of(products, num_wanted, floor)
        kept.append((scores, places + start))
        if len(kept) > 1:
            kept = [_keep(kept, num_wanted)]
        if kept[0][0].shape[1] >= num_wanted:
            floor = torch.maximum(floor, kept[0][0].topk(num_wanted).values[:, -1] - TOLERANCE)
    if not kept:
        return Found(np.full((len(images), 0), -1), np.full((len(images), 0), NOTHING))
    scores, places = kept[0]
    kept_places = torch.where(scores.isneginf(), -1, places).cpu().numpy()
    return Found(kept_places, rescored(images, texts, kept_places))


def _above(scores: "Tensor", floor: "Tensor", most: int) -> tuple["Tensor", "Tensor"] | None:
    """All that reach their row's floor, padded to equal numbers: one look at each, where sorting takes many.

    None where there is no floor yet, or more than `most` a row on average reach it.
    """
    import torch

    if bool(floor.isneginf().any()):
        return None
    reached = scores >= floor[:, None]
    counts = reached.sum(dim=1)
    if int(counts.sum()) > most * len(scores):
        return None
    rows, columns = reached.nonzero(as_tuple=True)
    starts = counts.cumsum(0) - counts
    slots = torch.arange(len(rows), device=scores.device) - starts[rows]
    width = max(1, int(counts.max())) if len(counts) else 1
    values = scores.new_full((len(scores), width), NOTHING)
    places = torch.zeros((len(scores), width), dtype=torch.long, device=scores.device)
    values[rows, slots], places[rows, slots] = scores[rows, columns], columns
    return values, places


def _best_of(scores: "Tensor", num_wanted: int, floor: "Tensor") -> tuple["Tensor", "Tensor"]:
    """The best of each row, and all that rounding cannot tell from the last of them."""
    import torch

    size = min(num_wanted, scores.shape[1])
    last = scores.topk(size).values[:, -1] - TOLERANCE if size == num_wanted else torch.full_like(floor, NOTHING)
    enough = torch.maximum(last, floor)
    width = int((scores >= enough[:, None]).sum(dim=1).max().clamp(min=1))
    best = scores.topk(width)
    return best.values.masked_fill(best.values < enough[:, None], NOTHING), best.indices


def _keep(parts: Sequence[tuple["Tensor", "Tensor"]], num_wanted: int) -> tuple["Tensor", "Tensor"]:
    import torch

    scores = torch.cat([part[0] for part in parts], dim=1)
    places = torch.cat([part[1] for part in parts], dim=1)
    best, order = _best_of(scores, num_wanted, torch.full_like(scores[:, 0], NOTHING))
    return best, places.gather(1, order)


def rescored(images: NDArray[np.float16], texts: NDArray[np.float16], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """In float64, from the float16 vectors themselves: no trace of how the products were blocked."""
    scores = np.full(places.shape, NOTHING)
    for row, columns in enumerate(places):
        valid = columns >= 0
        order = np.sort(columns[valid])  # memory-mapped files are read forwards
        values = np.asarray(texts[order], np.float64) @ images[row].astype(np.float64)
        scores[row, valid] = values[np.searchsorted(order, columns[valid])]
    return scores


def merge_candidates(parts: Sequence[Candidates], num_candidates: int) -> Candidates:
    """Best first by (score, content hash), each hash once, cut or padded to `num_candidates`."""
    hashes = np.concatenate([part.hashes for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    order = np.lexsort((hashes, -scores), axis=1)
    hashes, scores = np.take_along_axis(hashes, order, 1), np.take_along_axis(scores, order, 1)
    # One text has one score, so that its copies stand side by side.
    copies = np.zeros(scores.shape, bool)
    copies[:, 1:] = (hashes[:, 1:] == hashes[:, :-1]) & (scores[:, 1:] == scores[:, :-1])
    scores = np.where(copies, NOTHING, scores)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :num_candidates]
    hashes, scores = np.take_along_axis(hashes, order, 1), np.take_along_axis(scores, order, 1)
    missing = num_candidates - hashes.shape[1]
    if missing > 0:
        hashes = np.pad(hashes, ((0, 0), (0, missing)))
        scores = np.pad(scores, ((0, 0), (0, missing)), constant_values=NOTHING)
    return Candidates(np.where(np.isneginf(scores), np.uint64(0), hashes), scores)
