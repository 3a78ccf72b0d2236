"""Alignment as stages: each image's nearest texts (search), what is taken of them (select), published columns (align).

Texts stream through memory chunk by chunk; what is kept of them is each image's candidates, which `select` goes through
on disk.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
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
from babelcap.generate.candidates import CandidateRuns, TextStore
from babelcap.generate.schemas import (
    CANDIDATES,
    ENGLISH_CAPTION,
    PUBLISHED_CAPTION,
    PUBLISHED_TRANSLATION,
    SCORES,
    SELECTED,
    SENTENCES,
    VECTORS,
)
from babelcap.generate.search import Candidates, SearchConfig, TextChunk, nearest_texts
from babelcap.generate.select import CandidateTable, SelectConfig, concatenate, select_texts
from babelcap.jobs.receipts import ShardOutput, beside_path
from babelcap.storage import parquet_errors

TEXT_LIST = pa.list_(pa.string())
PAIR = pa.list_(TEXT_LIST)
ROWS_AT_ONCE = 50_000  # of the pairs that were taken, whose texts are read together


class AlignConfig(ConfigModel):
    """`num_candidates` an image and language go into the choice; `num_texts` come out of it at most."""

    num_candidates: int = Field(32, ge=1)
    select: SelectConfig = SelectConfig()
    index: str = Field("exact", pattern="^(exact|faiss)$")
    faiss_code: str = Field("pq", pattern="^(flat|sq8|pq)$")  # how an index keeps the texts' vectors
    faiss_lists: int = Field(512, ge=1, le=65_536)  # of a chunk; fewer where it has few texts
    faiss_probes: int = Field(128, ge=1)  # lists that are looked into for an image
    faiss_survivors: int = Field(16, ge=1, le=64)  # of a quantised index, times num_candidates, that are scored exactly
    faiss_training_sample: int = Field(40_000, ge=1)
    tars_per_search: int = resource(64, ge=1)  # whose images are searched for together, while the texts stream by once
    image_block: int = resource(4096, ge=1)
    text_block: int = resource(1024, ge=1)
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

        found = nearest_texts_faiss(images, text_chunks(inputs["texts"]), config)
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
    """Inputs: candidates of all tars, and the language's texts. `eval_keys` choose first.

    Memory: what `candidates` and `select` say of theirs, about 100 bytes an image, and the pairs that are taken.
    """
    config = build_config(AlignConfig, _fields(AlignConfig, settings), "align").select
    paths: list[Path] = inputs["candidates"]
    images = pa.concat_tables([pa.table(read_columns(path, "key", "tar"), ["key", "tar"]) for path in paths])
    order = pc.sort_indices(images, sort_keys=[("key", "ascending"), ("tar", "ascending")]).to_numpy()
    number_of = np.empty(len(order), np.int64)
    number_of[order] = np.arange(len(order))
    images = images.take(order)
    is_eval = pc.is_in(images["key"], pa.array(settings["eval_keys"], pa.string())).to_numpy()
    beside = Path(settings["output"]).parent if "output" in settings else None
    with tempfile.TemporaryDirectory(prefix=".select-", suffix=".partial", dir=beside) as scratch:
        runs = CandidateRuns(Path(scratch), config.min_score)
        start = 0
        for path in paths:
            hashes, scores = (column.combine_chunks() for column in read_columns(path, "hashes", "scores"))
            numbers = number_of[start : start + len(hashes)]
            start += len(hashes)
            lengths = hashes.value_lengths().to_numpy()
            runs.add(np.repeat(numbers, lengths), hashes.flatten().to_numpy(), scores.flatten().to_numpy())
        with closing(TextStore(Path(scratch) / "texts", inputs["texts"], runs.hashes)) as texts:
            taken = list(select_texts(runs.best_first, is_eval, len(runs.hashes), texts.words, config))
            table = _selected(taken, images, runs.hashes, texts)
    num_images = pc.count_distinct(table["key"]).as_py()
    drops = {"image without a text above the threshold": len(images) - num_images}
    return ShardOutput(table, len(images), num_images, drops)


def _selected(
    taken: Sequence[CandidateTable], images: pa.Table, hashes: NDArray[np.uint64], texts: TextStore
) -> pa.Table:
    """By tar, key and score, best first."""
    joined = concatenate(taken)
    tars = pc.rank(images["tar"], tiebreaker="dense").to_numpy()
    order = np.lexsort((joined.texts, -joined.scores, joined.images, tars[joined.images]))
    batches = []
    for start in range(0, len(order), ROWS_AT_ONCE):
        some = joined.only(order[start : start + ROWS_AT_ONCE])
        english, target = zip(*map(texts.pair, some.texts.tolist()), strict=True)
        of_image = images.take(some.images)
        columns = [of_image["tar"], of_image["key"], hashes[some.texts], english, target, some.scores]
        batches.append(pa.table(columns, schema=SELECTED))
    return pa.concat_tables(batches) if batches else SELECTED.empty_table()


def align_shard(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    """The published columns of one tar: captions with their translation, and the texts that were taken, by language."""
    tar, languages = settings["tar"], settings["languages"]
    # By language and key, sentence by sentence.
    captions: dict[str, dict[str, list[str]]] = {code: {} for code in ("en", *settings["caption_languages"])}
    for role in ("captions", "eval_captions"):
        if role in inputs:
            _add_captions(inputs[role], captions)
    texts: dict[str, dict[str, list[tuple[str, str, float]]]] = {language: {} for language in languages}
    for language in languages:
        with parquet_errors(inputs[f"selected_{language}"]):
            table = pq.read_table(inputs[f"selected_{language}"], filters=[("tar", "=", tar)])
        for row in table.to_pylist():
            texts[language].setdefault(row["key"], []).append((row["en"], row["target"], row["score"]))
    keys = sorted(set(captions["en"]).union(*texts.values()))
    columns: dict[str, Any] = {"key": pa.array(keys, pa.string())}
    joined = {
        language: {key: join_sentences(sentences, language) for key, sentences in of_language.items()}
        for language, of_language in captions.items()
    }
    english = joined.pop("en")
    columns[ENGLISH_CAPTION] = pa.array([[english[key]] if key in english else [] for key in keys], TEXT_LIST)
    for language, of_language in joined.items():
        values = [[[english[key], of_language[key]]] if key in of_language else [] for key in keys]
        columns[PUBLISHED_CAPTION.format(language=language)] = pa.array(values, PAIR)
    for language, sentences in captions.items():
        columns[SENTENCES.format(language=language)] = pa.array([sentences.get(key) for key in keys], TEXT_LIST)
    for language in languages:
        rows = [texts[language].get(key, []) for key in keys]
        columns[PUBLISHED_TRANSLATION.format(language=language)] = pa.array(
            [[[en, other] for en, other, _ in row] for row in rows], PAIR
        )
        scores = [[score for _, _, score in row] for row in rows]
        columns[SCORES.format(language=language)] = pa.array(scores, pa.list_(pa.float64()))
    return ShardOutput(pa.table(columns), len(keys), len(keys))


def _add_captions(path: Path, captions: dict[str, dict[str, list[str]]]) -> None:
    with parquet_errors(path):
        rows = pq.read_table(path).to_pylist()
    for row in rows:
        captions["en"][row["key"]] = row["sentences"]
        for language, of_language in captions.items():
            if row.get(language):
                of_language[row["key"]] = row[language]


def _fields(model: type[ConfigModel], settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in model.model_fields}
