"""Alignment as stages: each image's nearest texts (search), what is taken of them (select), published columns (align).

Texts stream through memory chunk by chunk; what is kept of them is each image's candidates. Only the texts that are
candidates of some image are read by `select`.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from babelcap.config import ConfigModel, build_config, resource
from babelcap.data.sentences import join_sentences
from babelcap.errors import UserError
from babelcap.generate.schemas import (
    CANDIDATES,
    ENGLISH_CAPTION,
    PUBLISHED_CAPTION,
    PUBLISHED_TRANSLATION,
    SCORES,
    SELECTED,
    VECTORS,
)
from babelcap.generate.search import Candidates, SearchConfig, TextChunk, nearest_texts
from babelcap.generate.select import CandidateTable, SelectConfig, select_texts
from babelcap.jobs.receipts import ShardOutput, beside_path
from babelcap.storage import parquet_errors

TEXT_LIST = pa.list_(pa.string())
PAIR = pa.list_(TEXT_LIST)


class AlignConfig(ConfigModel):
    """`num_candidates` an image and language go into the choice; `num_texts` come out of it at most."""

    num_candidates: int = Field(32, ge=1)
    select: SelectConfig = SelectConfig()
    index: str = Field("exact", pattern="^(exact|faiss)$")
    faiss_lists: int = Field(0, ge=0)  # 0: four times the square root of the texts
    faiss_probes: int = Field(32, ge=1)
    faiss_training_sample: int = Field(200_000, ge=1)
    tars_per_search: int = resource(64, ge=1)  # whose images are searched for together, while the texts stream by once
    image_block: int = resource(4096, ge=1)
    text_block: int = resource(16384, ge=1)
    device: str = resource("cpu")
    num_threads: int | None = resource(None, ge=1)

    @property
    def search(self) -> SearchConfig:
        return SearchConfig(image_block=self.image_block, text_block=self.text_block, device=self.device)


def read_vectors(path: Path) -> NDArray[np.float16]:
    """Memory-mapped, [rows, width]."""
    try:
        vectors = np.load(beside_path(path, VECTORS), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{beside_path(path, VECTORS)} cannot be read ({error}); remove {path} to make it again"
        ) from None
    if vectors.ndim != 2 or vectors.dtype != np.float16:
        raise UserError(f"{beside_path(path, VECTORS)}: found {vectors.dtype} {vectors.shape}, expected float16 rows")
    return vectors


def read_columns(path: Path, *names: str) -> list[Any]:
    with parquet_errors(path):
        table = pq.read_table(path, columns=list(names))
    return [table.column(name) for name in names]


def text_chunks(paths: Sequence[Path]) -> Iterator[TextChunk]:
    for path in paths:
        (hashes,) = read_columns(path, "hash")
        yield TextChunk(hashes.to_numpy(), read_vectors(path))


def search_shard(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    """Inputs: the images' vectors of `tars`, and all of a language's text vectors, which are read once."""
    config = build_config(AlignConfig, _fields(AlignConfig, settings), "align")
    paths: list[Path] = inputs["images"]
    keys = [read_columns(path, "key")[0].to_pylist() for path in paths]
    tars = [[name] * len(some) for name, some in zip(settings["tars"], keys, strict=True)]
    filled = [read_vectors(path) for path, some in zip(paths, keys, strict=True) if some]
    images = np.concatenate(filled) if filled else np.zeros((0, 1), np.float16)
    if config.index == "faiss":
        from babelcap.generate.faiss_search import nearest_texts_faiss

        found = nearest_texts_faiss(images, list(text_chunks(inputs["texts"])), config)
    else:
        found = nearest_texts(images, text_chunks(inputs["texts"]), config.num_candidates, config.search)
    hashes, scores = _ragged(found)
    table = pa.table([[*chain(*tars)], [*chain(*keys)], hashes, scores], schema=CANDIDATES)
    return ShardOutput(table, len(images), len(images), device=config.device)


def _ragged(found: Candidates) -> tuple[pa.Array, pa.Array]:
    valid = np.isfinite(found.scores)
    offsets = np.concatenate([[0], np.cumsum(valid.sum(axis=1))]).astype(np.int32)
    lists = [pa.ListArray.from_arrays(offsets, pa.array(values[valid])) for values in found]
    return lists[0], lists[1]


def select_language(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    """Inputs: candidates of all tars, and the language's texts. `eval_keys` choose first."""
    config = build_config(AlignConfig, _fields(AlignConfig, settings), "align").select
    tables = [pq.read_table(path) for path in inputs["candidates"]]
    keys, tars = (
        np.array([value for table in tables for value in table[name].to_pylist()], dtype=object)
        for name in ("key", "tar")
    )
    order = np.argsort(keys, kind="stable")
    number_of = np.empty(len(keys), np.int64)
    number_of[order] = np.arange(len(keys))
    table = _flatten(tables, number_of)
    pairs = _read_texts(inputs["texts"], np.unique(table.hashes))
    held_out = set(settings["eval_keys"])
    is_eval = np.array([key in held_out for key in keys[order]], dtype=bool)
    taken = select_texts(table, is_eval, {text: sides[0] for text, sides in pairs.items()}, config)
    rows = []
    for row in taken.tolist():
        image, text = order[table.images[row]], int(table.hashes[row])
        rows.append((tars[image], keys[image], text, *pairs[text], float(table.scores[row])))
    rows.sort(key=lambda row: (row[0], row[1], -row[5], row[2]))
    columns = list(zip(*rows, strict=True)) or [()] * len(SELECTED)
    num_images = len({row[1] for row in rows})
    drops = {"image without a text above the threshold": len(keys) - num_images}
    return ShardOutput(pa.table(columns, schema=SELECTED), len(keys), num_images, drops)


def _flatten(tables: Sequence[pa.Table], number_of: NDArray[np.int64]) -> CandidateTable:
    images, hashes, scores, start = [], [], [], 0
    for table in tables:
        column = table["hashes"].combine_chunks()
        lengths = np.diff(column.offsets.to_numpy()) if len(column) else np.zeros(0, np.int64)
        images.append(np.repeat(number_of[start : start + len(table)], lengths))
        hashes.append(column.flatten().to_numpy())
        scores.append(table["scores"].combine_chunks().flatten().to_numpy())
        start += len(table)
    return CandidateTable(np.concatenate(images), np.concatenate(hashes), np.concatenate(scores))


def _read_texts(paths: Sequence[Path], wanted: NDArray[np.uint64]) -> dict[int, tuple[str, str]]:
    """Both sides of the pairs that are wanted, by hash."""
    found: dict[int, tuple[str, str]] = {}
    values = pa.array(wanted)
    for path in paths:
        with parquet_errors(path), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=100_000, columns=["hash", "en", "target"]):
                kept = batch.filter(pc.is_in(batch["hash"], values))
                sides = zip(kept["en"].to_pylist(), kept["target"].to_pylist(), strict=True)
                found.update(zip(kept["hash"].to_pylist(), sides, strict=True))
    return found


def align_shard(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    """The published columns of one tar: captions with their translation, and the texts that were taken, by language."""
    tar, languages = settings["tar"], settings["languages"]
    english: dict[str, str] = {}
    captions: dict[str, dict[str, list[list[str]]]] = {language: {} for language in settings["caption_languages"]}
    for role in ("captions", "eval_captions"):
        if role in inputs:
            _add_captions(inputs[role], english, captions)
    texts: dict[str, dict[str, list[tuple[str, str, float]]]] = {language: {} for language in languages}
    for language in languages:
        with parquet_errors(inputs[f"selected_{language}"]):
            table = pq.read_table(inputs[f"selected_{language}"], filters=[("tar", "=", tar)])
        for row in table.to_pylist():
            texts[language].setdefault(row["key"], []).append((row["en"], row["target"], row["score"]))
    keys = sorted(set(english).union(*texts.values()))
    columns: dict[str, Any] = {"key": pa.array(keys, pa.string())}
    columns[ENGLISH_CAPTION] = pa.array([[english[key]] if key in english else [] for key in keys], TEXT_LIST)
    for language, of_language in captions.items():
        values = [of_language.get(key, []) for key in keys]
        columns[PUBLISHED_CAPTION.format(language=language)] = pa.array(values, PAIR)
    for language in languages:
        rows = [texts[language].get(key, []) for key in keys]
        columns[PUBLISHED_TRANSLATION.format(language=language)] = pa.array(
            [[[en, other] for en, other, _ in row] for row in rows], PAIR
        )
        scores = [[score for _, _, score in row] for row in rows]
        columns[SCORES.format(language=language)] = pa.array(scores, pa.list_(pa.float64()))
    return ShardOutput(pa.table(columns), len(keys), len(keys))


def _add_captions(path: Path, english: dict[str, str], captions: dict[str, dict[str, list[list[str]]]]) -> None:
    """By key the English caption, and by language at most one (English, other) pair; sentences joined as they were."""
    with parquet_errors(path):
        rows = pq.read_table(path).to_pylist()
    for row in rows:
        text = english[row["key"]] = join_sentences(row["sentences"], "en")
        for language, of_language in captions.items():
            if row.get(language):
                of_language[row["key"]] = [[text, join_sentences(row[language], language)]]


def _fields(model: type[ConfigModel], settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in model.model_fields}
