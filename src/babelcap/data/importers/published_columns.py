"""Reading the published columns: pairs as lists or structs of two, texts, lists of either; what is not so is named."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelcap.data.store.format import open_parquet, python_rows, read_batches
from babelcap.errors import UserError


def read_rows(
    path: Path, columns: list[str], skipped: Counter[str], is_right: Any, plain: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    with open_parquet(path, pa.schema([])) as file:
        schema = file.schema_arrow
    key_column = "__key__" if "__key__" in schema.names else "key"
    for name in [key_column, *columns, *plain]:
        if name not in schema.names:
            raise UserError(f"{path}: column '{name}' is missing (found: {', '.join(schema.names)})")
        kind = schema.field(name).type
        judge = _is_text if name == key_column else _is_list if name in plain else is_right
        if not judge(kind):
            raise UserError(f"{path}: column '{name}' is of type {kind}, which is not that of the published files")
    for batch in read_batches(path, [key_column, *columns, *plain], 1024, pa.schema([])):
        for values in python_rows(batch, skipped):
            if not values[key_column]:
                skipped["annotation without key"] += 1
                continue
            yield {**values, "key": values[key_column]}


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_pair(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields == 2 and all(_is_text(kind.field(place).type) for place in range(2))
    return _is_list(kind) and _is_text(kind.value_type)


def is_list_of_pairs(kind: pa.DataType) -> bool:
    return _is_list(kind) and _is_pair(kind.value_type)


def is_text_or_pair(kind: pa.DataType) -> bool:
    return _is_text(kind) or _is_pair(kind) or is_list_of_pairs(kind)


def pairs_of(value: Any) -> list[tuple[str, str]]:
    """One pair or a list of them, each a list of two or a struct of two (English first), as plain tuples."""
    if not value:
        return []
    items = [value] if isinstance(value, dict) or any(isinstance(item, str) for item in value) else value
    pairs = [tuple(item.values()) if isinstance(item, dict) else tuple(item) for item in items if item]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[0] and pair[1]]


def first_text(value: Any) -> str:
    """Of a text, a list of texts or a list of pairs."""
    while isinstance(value, list | dict):
        value = next(iter(value.values() if isinstance(value, dict) else value), None)
    return value.strip() if isinstance(value, str) else ""
