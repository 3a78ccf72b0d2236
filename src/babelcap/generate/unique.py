"""Copies and near-copies of a language's pairs, over all chunks: of those with one key the plainest is kept.

repeats   a group of a language's keys -> the pairs to leave out; it reads every chunk's keys, and keeps its own
unique    a clean chunk -> the same without them

Plainest: the fewest characters that are no lower-case letters, then the smallest hash, then the first chunk. So what is
kept does not depend on how the text was cut or ordered. Memory: one chunk's keys, 16 bytes for each pair of the group,
of which there are about `clean.pairs_per_group`, and more only for those that come more than once.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from babelcap.generate.schemas import REPEATS, TEXT
from babelcap.jobs.receipts import ShardOutput
from babelcap.storage import parquet_errors

COPY, NEAR_COPY = "copy of another pair", "near-copy of another pair"
COLUMNS = ("near", "plainness", "hash")


def find_repeats(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    """Inputs: the clean chunks in the order of their names, `chunks`. Of `num_groups` groups it is the `group`-th.

    Goes through the chunks twice: for the keys that come more than once, and for the pairs that have these.
    """
    keys = np.concatenate([_keys_of(path, settings) for path in inputs["text"]])
    keys.sort()
    repeated = pa.array(np.unique(keys[1:][keys[1:] == keys[:-1]]), pa.uint64())
    parts = []
    for number, path in enumerate(inputs["text"]):
        table = _read(path, COLUMNS)
        table = table.filter(pc.is_in(table["near"], repeated))
        parts.append(table.append_column("chunk", pa.array(np.full(len(table), number, np.int32))))
    table = pa.concat_tables(parts)
    near, plainness, digest, chunk = (table[name].to_numpy() for name in (*COLUMNS, "chunk"))
    order = np.lexsort((chunk, digest, plainness, near))
    near, digest, chunk = near[order], digest[order], chunk[order]
    is_first = np.concatenate([[True], near[1:] != near[:-1]])[: len(near)]
    kept_of = np.maximum.accumulate(np.where(is_first, np.arange(len(near)), 0))
    is_copy = digest == digest[kept_of]
    names = np.array(settings["chunks"], dtype=object)
    columns = [names[chunk[~is_first]], digest[~is_first], is_copy[~is_first]]
    found = pa.table(columns, schema=REPEATS).sort_by([("chunk", "ascending"), ("hash", "ascending")])
    return ShardOutput(found, len(keys), len(keys))


def _keys_of(path: Path, settings: dict[str, Any]) -> NDArray[np.uint64]:
    """Those of the group."""
    keys: NDArray[np.uint64] = _read(path, ("near",))["near"].to_numpy()
    return keys[keys % np.uint64(settings["num_groups"]) == settings["group"]]


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    with parquet_errors(path):
        return pq.read_table(path, columns=list(columns))


def keep_unique(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    """Inputs: a clean chunk, called `chunk`, and the repeats of its language."""
    table = _read(inputs["text"], TEXT.names)
    repeats = pa.concat_tables([_repeats_of(path, settings["chunk"]) for path in inputs["repeats"]])
    kept = table.filter(pc.invert(pc.is_in(table["hash"], repeats["hash"].combine_chunks())))
    num_copies = int(pc.sum(repeats["is_copy"]).as_py() or 0)
    drops = {COPY: num_copies, NEAR_COPY: len(repeats) - num_copies}
    return ShardOutput(kept.replace_schema_metadata(None), len(table), len(kept), drops)


def _repeats_of(path: Path, chunk: str) -> pa.Table:
    with parquet_errors(path):
        return pq.read_table(path, filters=[("chunk", "=", chunk)])
