"""The texts nearest to each image by cosine, exactly, whatever the order of the texts and however they were cut.

    score(i, t) = <image_i, text_t>      both normalised, kept as float16

Blocks of images times blocks of text are multiplied in float32 on any device. A look at the maxima of a row tells where
something can reach the image's last place so far; what still can at the end of a chunk is scored again in float64 and
merged by (score, content hash). A float32 product of normalised vectors is off by less than TOLERANCE, which is allowed
for. The float64 score is exact in whatever order it is summed: products of two float16 are multiples of 2^-48, and
their sums stay below 2.

Memory: the images of one call, one block of products (image_block x text_block x 4 bytes), one block of either side in
float32, and about six times as many pairs as are wanted, 20 bytes each. Texts stream by, however many there are.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from babelcap.config import ConfigModel, resource

if TYPE_CHECKING:  # imported where it is used: stages that need none start faster
    from torch import Tensor

TOLERANCE = 1e-4  # d * 2^-24 for a width of 1,000, and some room
NOTHING = -np.inf
MANY = 4  # times as many as are wanted: then what has no place any more is thrown away
GROUP = 64  # columns of a block of products whose maximum is looked at


class Texts(Protocol):
    """A chunk of texts: content hashes [n], each once, and vectors [n, width], which may be memory-mapped."""

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


class Pairs(NamedTuple):
    """Rows of a block of images, places in a chunk of texts, and about what they score, [n] each."""

    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    scores: NDArray[np.float32]


NO_PAIRS = Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))


class SearchConfig(ConfigModel):
    """How the products are blocked and where: nothing here changes what is found."""

    image_block: int = resource(4096, ge=1)
    text_block: int = resource(1024, ge=1)
    device: str = resource("cpu")


def no_candidates(num_images: int, num_candidates: int) -> Candidates:
    size = (num_images, num_candidates)
    return Candidates(np.zeros(size, np.uint64), np.full(size, NOTHING))


def nearest_texts(
    images: NDArray[np.float16], chunks: Iterable[Texts], num_candidates: int, config: SearchConfig
) -> Candidates:
    """Equal scores are ordered by content hash, and one text counts once however many chunks it is in."""
    best = no_candidates(len(images), num_candidates)
    for chunk in chunks:
        for start in range(0, len(images), config.image_block):
            rows = slice(start, start + config.image_block)
            before = Candidates(best.hashes[rows], best.scores[rows])
            best.hashes[rows], best.scores[rows] = _search_block(images[rows], chunk, before, config)
    return best


def _search_block(images: NDArray[np.float16], chunk: Texts, best: Candidates, config: SearchConfig) -> Candidates:
    """`best` are those of the chunks before; what comes back are the best of all."""
    import torch

    queries = torch.from_numpy(np.array(images)).to(config.device).float()
    room = queries.new_empty((len(images), config.text_block))  # used again and again: fresh memory costs time
    num_wanted = best.scores.shape[1]
    floor = best.scores[:, -1] - TOLERANCE  # what a product has to reach for its text to have a place
    enough = torch.from_numpy(floor).to(room)
    found, num_found = [NO_PAIRS], 0
    for start, keys in _blocks(chunk.vectors, config):
        products = torch.mm(queries, keys.T, out=room if len(keys) == config.text_block else None)
        if len(keys) > num_wanted and bool(enough.isneginf().any()):  # of the first block as many as are wanted
            enough = torch.maximum(enough, products.topk(num_wanted).values[:, -1] - TOLERANCE)
        found.append(_reaching(products, enough, start))
        num_found += len(found[-1].rows)
        if num_found >= MANY * num_wanted * len(images):
            kept, floor = _pruned(found, enough.cpu().double().numpy(), num_wanted)
            if len(kept.rows) > MANY // 2 * num_wanted * len(images):  # so many that rounding cannot tell apart
                best, kept = add_pairs(best, images, chunk, kept), NO_PAIRS
                floor = best.scores[:, -1] - TOLERANCE
            found, num_found = [kept], len(kept.rows)
            enough = torch.from_numpy(floor).to(room)
    return add_pairs(best, images, chunk, _pruned(found, floor, num_wanted)[0])


def _blocks(vectors: NDArray[np.float16], config: SearchConfig) -> Iterator[tuple[int, "Tensor"]]:
    """(first place, vectors in float32 on the device); good until the next one: its memory is used again."""
    import torch

    size = (min(config.text_block, len(vectors)), vectors.shape[1])
    halves = torch.empty(size, dtype=torch.float16)
    keys = torch.empty(size, device=config.device)
    for start in range(0, len(vectors), config.text_block):
        some = vectors[start : start + config.text_block]
        halves.numpy()[: len(some)] = some
        yield start, keys[: len(some)].copy_(halves[: len(some)])


def _reaching(products: "Tensor", enough: "Tensor", start: int) -> Pairs:
    """All that reach their row's floor. Maxima of groups of columns are looked at first: in most nothing reaches it."""
    size = products.shape[1]
    group = GROUP if size % GROUP == 0 else size
    groups = products.view(len(products), -1, group)
    rows, places = (groups.amax(dim=2) >= enough[:, None]).nonzero(as_tuple=True)
    values = groups[rows, places]
    which, columns = (values >= enough[rows, None]).nonzero(as_tuple=True)
    scores = values[which, columns]
    rows, columns = rows[which], start + group * places[which] + columns
    return Pairs(rows.cpu().numpy(), columns.cpu().numpy(), scores.cpu().numpy())


def _pruned(found: Sequence[Pairs], floor: NDArray[np.float64], num_wanted: int) -> tuple[Pairs, NDArray[np.float64]]:
    """What can still have a place among what was found, and the floor that this gives."""
    rows, places, scores = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = _best_first(rows, scores)
    rows, places, scores = rows[order], places[order], scores[order]
    last = _rank(rows) == num_wanted - 1
    floor = floor.copy()
    floor[rows[last]] = np.maximum(floor[rows[last]], scores[last] - TOLERANCE)
    kept = scores >= floor[rows]
    return Pairs(rows[kept], places[kept], scores[kept]), floor


def _best_first(rows: NDArray[np.int64], scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """The order by row, and by falling score in it: both in one number, which is sorted several times as fast as two.

    Bits of floats rise with their values, of negative ones they fall."""
    bits = scores.view(np.int32).astype(np.int64)
    rising = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    return np.argsort((rows << 33) - rising)


def _rank(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each within its row, from 0; rows stand side by side."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)


def add_pairs(best: Candidates, images: NDArray[np.float16], chunk: Texts, found: Pairs) -> Candidates:
    """The best of `best` and of what was found, by their float64 scores."""
    if not len(found.rows):
        return best
    num_images, num_wanted = best.scores.shape
    scores = np.concatenate([best.scores.ravel(), rescored(images, chunk.vectors, found)])
    hashes = np.concatenate([best.hashes.ravel(), np.asarray(chunk.hashes)[found.places]])
    rows = np.concatenate([np.repeat(np.arange(num_images), num_wanted), found.rows])
    order = np.lexsort((hashes, -scores, rows))
    rows, hashes, scores = rows[order], hashes[order], scores[order]
    # One text has one score, so that its copies stand side by side.
    is_new = scores > NOTHING
    is_new[1:] &= (rows[1:] != rows[:-1]) | (hashes[1:] != hashes[:-1])
    rows, hashes, scores = rows[is_new], hashes[is_new], scores[is_new]
    rank = _rank(rows)
    kept = rank < num_wanted
    merged = no_candidates(num_images, num_wanted)
    merged.hashes[rows[kept], rank[kept]] = hashes[kept]
    merged.scores[rows[kept], rank[kept]] = scores[kept]
    return merged


def rescored(images: NDArray[np.float16], texts: NDArray[np.float16], pairs: Pairs) -> NDArray[np.float64]:
    """[n], from the float16 vectors themselves: no trace of how the products were blocked."""
    import torch

    order = np.lexsort((pairs.places, pairs.rows))  # memory-mapped files are read forwards
    rows, starts = np.unique(pairs.rows[order], return_index=True)
    scores = np.empty(len(order))
    for row, some in zip(rows.tolist(), np.split(order, starts[1:]), strict=True):
        vectors = torch.from_numpy(texts[pairs.places[some]]).float().numpy()  # torch is the faster one at this
        scores[some] = vectors.astype(np.float64) @ images[row].astype(np.float64)
    return scores
