"""Pictures that came as single files, packed into tars once: the corpus is then opened, copied and read as any other.

The bytes of the pictures stay as they are. A tar's bytes depend on its pictures' names and contents alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelcap.data.store.tar import TarFileWriter
from babelcap.errors import UserError
from babelcap.generate.finetune.sources import SourceConfig
from babelcap.jobs.receipts import Receipt, ShardOutput
from babelcap.jobs.stages import Shard
from babelcap.storage import atomic_file

PACKED = pa.schema([pa.field("key", pa.string(), nullable=False)])
MAX_NAMED = 3


def present_pictures(name: str, source: SourceConfig, images: Mapping[str, str], origin: str) -> dict[str, Path]:
    """key -> file of the pictures that are there; too many that are not are one line that names the first."""
    paths = {key: source.folder / image for key, image in images.items()}
    found = {key: path for key, path in paths.items() if path.is_file()}
    require_share(name, source, sorted(str(paths[key]) for key in paths.keys() - found.keys()), len(paths), origin)
    return found


def require_share(name: str, source: SourceConfig, missing: list[str], total: int, origin: str) -> None:
    """A corpus of the half of a source is made only where that is meant."""
    if len(missing) > source.max_missing_share * total:
        first = ", ".join(missing[:MAX_NAMED])
        raise UserError(
            f"sources.{name}: {len(missing):,} of {total:,} pictures are not there ({first} ...); get them from "
            f"{origin}, or set sources.{name}.max_missing_share"
        )


def pack_plan(name: str, pictures: Mapping[str, Path], images_per_tar: int) -> list[Shard]:
    """One shard a tar, in the order of the keys."""
    keys = sorted(pictures)
    plan = []
    for number, start in enumerate(range(0, len(keys), images_per_tar)):
        some = keys[start : start + images_per_tar]
        files = [pictures[key] for key in some]
        names = [f"{key}{path.suffix.lower()}" for key, path in zip(some, files, strict=True)]
        plan.append(Shard(f"{name}-{number:05d}", {"images": files}, {"names": names}))
    return plan


def pack_shard(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    tar = Path(settings["folder"]) / f"{Path(settings['output']).stem}.tar"
    names: list[str] = settings["names"]
    with atomic_file(tar) as partial:
        writer = TarFileWriter(partial)
        try:
            for name, path in zip(names, inputs["images"], strict=True):
                writer.add(name, path.read_bytes())
            writer.close()
        finally:
            writer.abandon()
    keys = [name.rpartition(".")[0] for name in names]
    extra = {"tar_bytes": writer.num_bytes, "tar_sha256": writer.sha256}
    return ShardOutput(pa.table([keys], schema=PACKED), len(keys), len(keys), extra=extra)


def is_packed(tar: Path, receipt: Receipt) -> bool:
    """Someone may have removed a tar, or cut it short."""
    return tar.is_file() and tar.stat().st_size == receipt.extra.get("tar_bytes")
