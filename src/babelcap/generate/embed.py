"""Embedding as stages: the images of a tar, the English sides of a chunk of text; float16, normalised, memory-mapped.

Batches are fixed slices of a shard and part of the stage's hash, so that the same machine and versions give the same
bytes. An image that cannot be decoded is a drop.
"""

import importlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from babelcap.config import ConfigModel, resource
from babelcap.data.feed.images import decode_image
from babelcap.data.importers.assemble import image_members
from babelcap.data.store.tar import scan_tar
from babelcap.errors import BadSample, UserError
from babelcap.generate.backends.given import MISSING, GivenTexts, load_given
from babelcap.generate.models import hub_version
from babelcap.generate.schemas import IMAGE_VECTORS, TEXT_VECTORS, VECTORS
from babelcap.jobs.receipts import ShardOutput
from babelcap.storage import parquet_errors

Item = TypeVar("Item")
BACKENDS = {
    "transformers": "babelcap.generate.backends.dual_encoder:DualEncoder",
    "sentences": "babelcap.generate.backends.sentence_encoder:SentenceEncoder",
    "world": "babelcap.generate.backends.world:WorldEmbedder",
}
ARGUMENTS = {
    "transformers": ("model", "device", "dtype"),
    "sentences": ("model", "given"),
    "world": ("model", "noise", "seed"),
}
MAX_IMAGE_PX = 1024  # of a side: larger images are decoded at a smaller scale


class EmbedConfig(ConfigModel):
    backend: str = "transformers"
    model: str = "openai/clip-vit-base-patch16"
    batch_size: int = Field(64, ge=1)
    dtype: str = Field("float32", pattern="^(float32|float16|bfloat16)$")
    noise: float = Field(0.0, ge=0)  # of the world's backend, whose `model` is the world's folder
    seed: int = 0
    given: GivenTexts | None = None  # captions that stand for the images, where the encoder knows texts alone
    device: str = resource("cpu")


class Embedder(Protocol):
    """Vectors of length one, [n, width]. An image comes with its key."""

    def images(self, images: Sequence[tuple[str, Image.Image]]) -> NDArray[np.float32]: ...

    def texts(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


@lru_cache(maxsize=1)
def _load(backend: str, settings: str) -> Embedder:
    module, _, name = BACKENDS[backend].partition(":")
    embedder: Embedder = getattr(importlib.import_module(module), name)(**json.loads(settings))
    return embedder


def load_embedder(settings: dict[str, Any]) -> Embedder:
    """Once a process for each model."""
    backend = settings["backend"]
    if backend not in BACKENDS:
        raise UserError(f"embed.backend: '{backend}' is unknown; known: {', '.join(BACKENDS)}")
    return _load(backend, json.dumps({name: settings[name] for name in ARGUMENTS[backend]}, sort_keys=True))


def read_images(tar: Path, size_px: int, drops: Counter[str]) -> Iterator[tuple[str, Image.Image]]:
    """The images of a tar one by one, in its order; what cannot be decoded is counted by reason."""
    members = image_members(scan_tar(tar), drops)
    with tar.open("rb") as file:
        for key, member in members.items():
            file.seek(member.offset)
            try:
                yield key, decode_image(file.read(member.length), size_px)
            except BadSample as error:
                drops[error.reason] += 1


def embed_images(inputs: dict[str, Path], settings: dict[str, Any]) -> ShardOutput:
    drops: Counter[str] = Counter()
    keys: list[str] = []
    captions = load_given(settings["given"], "embed") if settings.get("given") else None

    def images() -> Iterator[tuple[str, Image.Image]]:
        for key, image in read_images(inputs["tar"], MAX_IMAGE_PX, drops):
            if captions is not None and not captions.get(key):
                drops[MISSING] += 1
                continue
            keys.append(key)
            yield key, image

    vectors = _in_batches(images(), load_embedder(settings).images, settings["batch_size"])
    table = pa.table([keys], schema=IMAGE_VECTORS)
    return _output(table, vectors, len(keys) + drops.total(), dict(drops), settings)


def embed_texts(inputs: dict[str, Path], settings: dict[str, Any]) -> ShardOutput:
    with parquet_errors(inputs["text"]):
        rows = pq.read_table(inputs["text"], columns=["hash", "en"])
    vectors = _in_batches(rows["en"].to_pylist(), load_embedder(settings).texts, settings["batch_size"])
    table = pa.table([rows["hash"].combine_chunks()], schema=TEXT_VECTORS)
    return _output(table, vectors, len(rows), {}, settings)


def _in_batches(
    items: Iterable[Item], embed: Callable[[Sequence[Item]], NDArray[np.float32]], batch_size: int
) -> NDArray[np.float16]:
    """One batch in memory at a time."""
    items = iter(items)
    parts = []
    while some := list(itertools.islice(items, batch_size)):
        parts.append(embed(some).astype(np.float16))
    return np.concatenate(parts) if parts else np.zeros((0, 1), np.float16)


def _output(
    table: pa.Table, vectors: NDArray[np.float16], num_in: int, drops: dict[str, int], settings: dict[str, Any]
) -> ShardOutput:
    return ShardOutput(
        table,
        num_in,
        len(table),
        drops,
        models=hub_version("embedder", settings["model"]) if settings["backend"] == "transformers" else {},
        device=str(settings.get("device", "cpu")),
        beside={VECTORS: vectors},
    )
