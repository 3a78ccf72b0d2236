"""Test images in the sources' tars, as stages: every picture gets its fingerprint, and one look compares them all.

An image is left out where a benchmark has it, by name or by picture; a training image also where validation has it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from babelcap.data.importers.assemble import image_members
from babelcap.data.inspect.image_names import read_aliases
from babelcap.data.inspect.leakage import Leak, Pictures, find_leaks, gather, print_pictures
from babelcap.data.store.index import TarReader
from babelcap.data.store.tar import scan_tar
from babelcap.errors import UserError
from babelcap.generate.finetune.config import LeakageConfig
from babelcap.jobs.receipts import ShardOutput
from babelcap.jobs.stages import Shard
from babelcap.measures import EVAL
from babelcap.storage import parquet_errors

FILES_PER_SHARD = 1000
PRINTS = pa.schema(
    [
        pa.field("set", pa.string(), nullable=False),  # of a source: its name; of a test set: the benchmark's
        pa.field("name", pa.string(), nullable=False),
        pa.field("dct", pa.uint64()),  # null where there was no picture to look at
        pa.field("gradient", pa.uint64()),
    ]
)
LEAKS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("set", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("how", pa.string(), nullable=False),
        pa.field("distance", pa.int32()),
    ]
)
ImagesOfTests = Mapping[str, Sequence[Path]]  # benchmark -> its pictures' files, which may not be there


def check_tests(tests: ImagesOfTests, config: LeakageConfig) -> None:
    """Pictures of a benchmark are there, or it was said that they need not be; and so are the files of ids."""
    for path in config.ids:
        if not path.is_file():
            raise UserError(f"leakage.ids: {path}: no such file; without it images are known by their own ids alone")
    for name, paths in tests.items():
        missing = [path for path in paths if not path.is_file()]
        if missing and name not in config.without_pictures:
            raise UserError(
                f"leakage: {len(missing):,} of {len(paths):,} pictures of {name} are not there ({missing[0]}); without "
                f"them only names are compared. If that is meant, put it into leakage.without_pictures"
            )


def plan_tests(tests: ImagesOfTests) -> list[Shard]:
    """Shards of a benchmark's pictures; those that are not there are in it by name."""
    plan = []
    for name, paths in sorted(tests.items()):
        for number, start in enumerate(range(0, len(paths), FILES_PER_SHARD)):
            some = paths[start : start + FILES_PER_SHARD]
            present = [path for path in some if path.is_file()]
            names = ["/".join(path.parts[-3:]) for path in some]
            parameters = {"set": name, "names": names, "present": [path.is_file() for path in some]}
            plan.append(Shard(f"{name}-{number:03d}", {"images": present}, parameters))
    return plan


def print_test_shard(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    files = iter(inputs["images"])
    paths: list[Path] = [next(files) if there else Path() for there in settings["present"]]
    found = print_pictures([settings["set"]] * len(paths), settings["names"], paths.__getitem__)
    return _printed(found)


def print_tar_shard(inputs: dict[str, Path], settings: dict[str, Any]) -> ShardOutput:
    """Keys as they are in the tar."""
    members = image_members(scan_tar(inputs["tar"]), Counter())
    keys, places = list(members), list(members.values())
    reader = TarReader([inputs["tar"]])
    sets = [settings["source"]] * len(keys)
    return _printed(print_pictures(sets, keys, lambda row: reader.read(0, places[row].offset, places[row].length)))


def _printed(found: Pictures) -> ShardOutput:
    absent = ~found.is_printed
    columns = [pa.array(found.prints[:, number], mask=absent) for number in range(2)]
    table = pa.table([found.sets, found.names, *columns], schema=PRINTS)
    return ShardOutput(table, len(table), len(table), extra={"not_looked_at": dict(found.unreadable)})


def read_prints(paths: Sequence[Path]) -> Pictures:
    return gather(map(_read_prints, paths))


def _read_prints(path: Path) -> Pictures:
    with parquet_errors(path):
        table = pq.read_table(path, schema=PRINTS)
    columns = [table[name].combine_chunks().fill_null(0).to_numpy() for name in ("dct", "gradient")]
    is_printed = table["dct"].combine_chunks().is_valid().to_numpy(zero_copy_only=False)
    prints = np.stack(columns, axis=1).astype(np.uint64)
    return Pictures(table["set"].to_pylist(), table["name"].to_pylist(), prints, is_printed, Counter())


def leaks_shard(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    """All sources against all test sets, and training against validation. `folders` says whose names bare keys are."""
    found = read_prints(inputs["prints"])
    folders: dict[str, str] = settings["folders"]
    keys = {
        key if "/" in key or not folders[source] else f"{folders[source]}/{key}": key
        for source, key in zip(found.sets, found.names, strict=True)
    }
    own = found._replace(names=list(keys))
    held_out = _held_out(inputs["texts"])
    is_held_out = np.array([key in held_out for key in keys.values()], np.bool_)
    validation = _part(own, is_held_out)._replace(sets=[EVAL] * int(is_held_out.sum()))
    limit, aliases = settings["max_distance"], read_aliases(inputs.get("ids", []))
    leaks = find_leaks(own, read_prints(inputs["tests"]), limit, aliases)
    leaks += find_leaks(_part(own, ~is_held_out), validation, limit, aliases)
    rows = [leak._replace(key=keys[leak.key]) for leak in leaks]
    columns = list(zip(*rows, strict=True)) or [()] * len(LEAKS)
    return ShardOutput(pa.table(columns, schema=LEAKS), len(keys), len(keys))


def _part(pictures: Pictures, chosen: Any) -> Pictures:
    rows = np.flatnonzero(chosen).tolist()
    sets, names = [pictures.sets[row] for row in rows], [pictures.names[row] for row in rows]
    return Pictures(sets, names, pictures.prints[chosen], pictures.is_printed[chosen], Counter())


def _held_out(paths: Sequence[Path]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        with parquet_errors(path):
            found.update(pq.read_table(path, columns=["key"], filters=[("split", "=", EVAL)])["key"].to_pylist())
    return found


def read_leaks(path: Path) -> dict[str, Leak]:
    """key -> the first test image that it is; what a name tells before what the pictures tell."""
    with parquet_errors(path):
        rows = [Leak(**row) for row in pq.read_table(path).to_pylist()]
    found: dict[str, Leak] = {}
    for leak in sorted(rows, key=lambda leak: (leak.how, leak.distance or 0)):
        found.setdefault(leak.key, leak)
    return found
