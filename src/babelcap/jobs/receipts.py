"""Receipts: what a stage made of a shard, and of what. A receipt travels in the metadata of the Parquet file it is of.
The file's own checksum lies beside it; one that is damaged was not made.

    rows in = rows out + drops by reason          always; a file that breaks this is never written

A drop is the data's fault and final. What is the machine's fault is a failure, is tried again, and has no receipt.
Nothing in it depends on when or where it was written: the same inputs, settings and versions give the same bytes.
"""

import hashlib
import importlib.metadata
import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, ValidationError, model_validator

from babelcap.config import ConfigModel
from babelcap.errors import UserError
from babelcap.storage import (
    RememberedChecksums,
    atomic_file,
    file_sha256,
    parquet_errors,
    parse_json,
    read_bytes,
    write_text,
)
from babelcap.version import VERSION

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

RECEIPT_KEY = b"babelcap.receipt"
JOURNAL = ".journal"  # of what a stage has so far of a shard and must not lose; gone when the shard is made
Inputs = Mapping[str, Path | Sequence[Path]]  # role -> a file, or files in their order


class Receipt(ConfigModel):
    stage: str
    stage_hash: str  # of the settings that matter, and of the stages before
    inputs: dict[str, str]  # role -> SHA-256 of its contents
    num_in: int
    num_out: int
    drops: dict[str, int] = Field({})  # reason -> rows
    models: dict[str, str] = Field({})  # role -> name of the model that was used, @ hash of its contents or revision
    device: str = "cpu"
    versions: dict[str, str] = Field({})  # of what computed it
    beside: dict[str, str] = Field({})  # suffix of a file that lies beside -> its SHA-256
    extra: dict[str, Any] = Field({})

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.num_in != self.num_out + sum(self.drops.values()):
            raise ValueError(f"{self.num_in} rows in, {self.num_out} out and {self.drops} do not add up")
        return self


@dataclass(frozen=True)
class MadeBy:
    """What the runner of a stage knows of a shard beside its rows."""

    stage: str
    stage_hash: str
    inputs: dict[str, str]
    models: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass
class ShardOutput:
    """What a stage's function gives back; the stage's runner writes it down."""

    table: "pa.Table"
    num_in: int
    num_out: int
    drops: dict[str, int] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)  # where the function knows better than the stage
    device: str = "cpu"
    beside: dict[str, "np.ndarray"] = field(default_factory=dict)  # suffix -> array, as `.npy`
    extra: dict[str, Any] = field(default_factory=dict)


def inputs_sha256(inputs: Inputs, checksums: RememberedChecksums | None = None) -> dict[str, str]:
    """By content: neither a file's name nor its time of change has a part in it."""
    digest_of = checksums.sha256 if checksums is not None else file_sha256
    found = {}
    for role, paths in inputs.items():
        if isinstance(paths, Path):
            found[role] = digest_of(paths)
        else:
            together = hashlib.sha256("\n".join(map(digest_of, paths)).encode())
            found[role] = together.hexdigest()
    return found


def versions_of(libraries: Iterable[str]) -> dict[str, str]:
    """Of Python, of this package and of the named distributions, where they are installed."""
    found = {"python": platform.python_version(), "babelcap": VERSION}
    for name in libraries:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def write_shard(path: Path, output: ShardOutput, made_by: MadeBy) -> Receipt:
    """The arrays beside it first, the Parquet file with the receipt last: where that is, all is."""
    import numpy as np
    import pyarrow.parquet as pq

    drops = {reason: number for reason, number in sorted(output.drops.items()) if number}
    if output.num_in != output.num_out + sum(drops.values()):
        raise RuntimeError(f"{path.name}: {output.num_in} rows in, {output.num_out} out and {drops} do not add up")
    beside = {}
    for suffix, array in sorted(output.beside.items()):
        with atomic_file(beside_path(path, suffix)) as partial, partial.open("wb") as file:
            np.save(file, array, allow_pickle=False)
        beside[suffix] = file_sha256(beside_path(path, suffix))
    receipt = Receipt(
        stage=made_by.stage,
        stage_hash=made_by.stage_hash,
        inputs=made_by.inputs,
        num_in=output.num_in,
        num_out=output.num_out,
        drops=drops,
        models=made_by.models | output.models,
        device=output.device,
        versions=made_by.versions,
        beside=beside,
        extra=output.extra,
    )
    metadata = {**(output.table.schema.metadata or {}), RECEIPT_KEY: receipt.model_dump_json().encode()}
    with atomic_file(path) as partial:
        pq.write_table(output.table.replace_schema_metadata(metadata), partial, compression="zstd")
        write_text(checksum_path(path), file_sha256(partial))  # before the file: one without it was not made
    return receipt


def checksum_path(path: Path) -> Path:
    """Of the file that holds the checksum of a shard's Parquet."""
    return path.with_name(f"{path.name}.sha256")


def beside_path(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name.removesuffix('.parquet')}.{suffix}.npy")


def read_receipt(path: Path) -> Receipt | None:
    """None where the file is not there or is none of ours; a damaged one is none too, and is made again."""
    import pyarrow.parquet as pq

    if not path.is_file():
        return None
    try:
        with parquet_errors(path):
            metadata = pq.read_metadata(path).metadata or {}
        if RECEIPT_KEY not in metadata:
            return None
        return Receipt.model_validate(parse_json(metadata[RECEIPT_KEY], path))
    except (UserError, ValidationError):
        return None


def is_done(path: Path, stage_hash: str, inputs: dict[str, str], checksums: RememberedChecksums | None = None) -> bool:
    """Whether a shard was made by these settings from these contents, and it and what lies beside it are whole."""
    receipt = read_receipt(path)
    if receipt is None or receipt.stage_hash != stage_hash or receipt.inputs != inputs:
        return False
    digest_of = checksums.sha256 if checksums is not None else file_sha256
    checksum = checksum_path(path)
    if not checksum.is_file() or read_bytes(checksum) != digest_of(path).encode():
        return False
    for suffix, digest in receipt.beside.items():
        place = beside_path(path, suffix)
        if not place.is_file() or digest_of(place) != digest:
            return False
    return True
