"""Parallel text as it is distributed, read as (English, other) pairs, and cut into chunks of a million pairs.

moses     two aligned files, one sentence a line: corpus.en, corpus.de (also .gz), or a zip that holds both, as
          OPUS distributes CCMatrix; a third file that ends in `.scores` gives each pair's score
tsv       English and other in the first two columns (or score, English, other), also .gz
parquet   columns `en` and the language's code, or `translation` with both, and `score` where there is one
"""

import gzip
import itertools
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from babelcap.config import ConfigModel, build_config
from babelcap.errors import UserError
from babelcap.jobs.receipts import ShardOutput
from babelcap.storage import atomic_file, parquet_errors, read_lines

MAX_CHARACTERS = 20_000  # of a line; longer ones are cut there and dropped later for their length
LOW_SCORE = "scored below min_score by its source"
MAX_BYTES = 12 * MAX_CHARACTERS  # of a line, which may have two sides and a score
Lines = Iterator[str]
RAW = pa.schema([pa.field("line", pa.int64()), pa.field("en", pa.string()), pa.field("target", pa.string())])


class TextSource(ConfigModel):
    """One language's parallel text. `files` are one file, or two aligned ones with English first."""

    files: tuple[Path, ...]
    format: Literal["moses", "tsv", "parquet"] = "moses"
    origin: str = ""  # whose text it is, as annotations will say
    licence: str = ""
    min_score: float | None = None  # of the corpus' own score, where it has one
    max_pairs: int | None = Field(None, ge=1)


class RawPair(NamedTuple):
    line: int  # of the source, from 0
    source: str
    target: str


def read_pairs(source: TextSource, language: str, drops: Counter[str] | None = None) -> Iterator[RawPair]:
    """Pairs below the least score are counted in `drops`."""
    drops = Counter() if drops is None else drops
    for path in source.files:
        if not path.is_file():
            raise UserError(f"text.{language}.files: {path}: no such file")
    readers = {"moses": _read_moses, "tsv": _read_tsv, "parquet": _read_parquet}
    scored = readers[source.format](source, language)
    return itertools.islice(_well_scored(scored, source.min_score, drops), source.max_pairs)


def _well_scored(
    scored: Iterable[tuple[float | None, RawPair]], min_score: float | None, drops: Counter[str]
) -> Iterator[RawPair]:
    for score, pair in scored:
        if min_score is None or score is None or score >= min_score:
            yield pair
        else:
            drops[LOW_SCORE] += 1


def _read_moses(source: TextSource, language: str) -> Iterator[tuple[float | None, RawPair]]:
    with ExitStack() as stack:
        if len(source.files) == 1 and zipfile.is_zipfile(source.files[0]):
            first, second, scores = _open_zip(stack, source.files[0], language)
        elif len(source.files) in (2, 3):
            opened = [_open_text(stack, path) for path in source.files]
            first, second, scores = opened[0], opened[1], opened[2] if len(opened) == 3 else None
        else:
            raise UserError(
                f"text.{language}.files: moses takes two aligned files, English first, or one zip with both; "
                f"found {len(source.files)}"
            )
        lines = itertools.zip_longest(first, second, scores or ())
        for number, (english, other, score) in enumerate(lines):
            if english is None or other is None:
                shorter = source.files[0 if english is None else -1]
                raise UserError(f"{shorter} ends at line {number}, the other side goes on; they are not aligned")
            yield None if score is None else _number(score), RawPair(number, _line(english), _line(other))


def _open_zip(stack: ExitStack, path: Path, language: str) -> tuple[Lines, Lines, Lines | None]:
    found = {}
    try:
        archive = stack.enter_context(zipfile.ZipFile(path))
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise UserError(f"{path} cannot be unpacked ({error}); it may be damaged") from None
    for side in ("en", language, "scores"):
        names = [name for name in archive.namelist() if name.endswith(f".{side}")]
        if len(names) == 1:
            try:
                member = stack.enter_context(archive.open(names[0]))
            except (zipfile.BadZipFile, RuntimeError, EOFError, OSError) as error:  # RuntimeError: a password
                raise UserError(f"{path}: {names[0]} cannot be unpacked ({error})") from None
            found[side] = read_lines(member, path, MAX_BYTES)
        elif side != "scores":
            raise UserError(f"{path} holds {len(names)} files that end in .{side}, expected one")
    return found["en"], found[language], found.get("scores")


def _read_tsv(source: TextSource, language: str) -> Iterator[tuple[float | None, RawPair]]:
    for path in source.files:
        with ExitStack() as stack:
            for number, row in enumerate(_open_text(stack, path)):
                columns = row.split("\t")
                has_score = len(columns) > 2 and _is_number(columns[0])
                sides = columns[1:3] if has_score else columns[:2]
                if len(sides) < 2:
                    raise UserError(
                        f"{path}:{number + 1}: found {len(columns)} columns; write English, tab, {language}"
                    )
                yield float(columns[0]) if has_score else None, RawPair(number, _line(sides[0]), _line(sides[1]))


def _read_parquet(source: TextSource, language: str) -> Iterator[tuple[float | None, RawPair]]:
    for path in source.files:
        with parquet_errors(path), pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=10_000):
                for row in batch.to_pylist():
                    sides = row["translation"] if isinstance(row.get("translation"), dict) else row
                    if not isinstance(sides.get("en"), str) or not isinstance(sides.get(language), str):
                        known = ", ".join(file.schema_arrow.names)
                        raise UserError(
                            f"{path}: row {number} has no text in en and {language}; its columns are {known}"
                        )
                    score = row.get("score")
                    yield (
                        None if score is None else _number(score),
                        RawPair(number, _line(sides["en"]), _line(sides[language])),
                    )
                    number += 1


def _open_text(stack: ExitStack, path: Path) -> Lines:
    file = stack.enter_context(path.open("rb"))
    unpacked = stack.enter_context(gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file
    return read_lines(unpacked, path, MAX_BYTES)


def _line(text: str) -> str:
    return text.rstrip("\r\n")[:MAX_CHARACTERS]


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else float("-inf")


def read_shard(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    """Cuts one language's text into chunks, each a file of its own; the table names them. Chunks that a run before this
    one wrote are written again with the same bytes.
    """
    language = settings["language"]
    files = inputs["text"] if isinstance(inputs["text"], list) else [inputs["text"]]
    source = build_config(TextSource, settings["source"] | {"files": files}, f"text.{language}")
    folder = chunk_folder(Path(settings["output"]))
    drops: Counter[str] = Counter()
    pairs = read_pairs(source, language, drops)
    rows: list[tuple[str, int]] = []
    while some := list(itertools.islice(pairs, settings["pairs_per_chunk"])):
        name = f"en-{language}.{len(rows):05d}"
        lines, sources, targets = zip(*some, strict=True)
        with atomic_file(folder / f"{name}.parquet") as partial:
            pq.write_table(pa.table([lines, sources, targets], schema=RAW), partial, compression="zstd")
        rows.append((name, len(some)))
    if not rows:
        reason = f" above text.{language}.min_score" if drops else ""
        raise UserError(f"text.{language}: {source.files[0]} has no pairs{reason}")
    names, counts = zip(*rows, strict=True)
    total = sum(counts)
    table = pa.table({"chunk": names, "pairs": pa.array(counts, pa.int64())})
    return ShardOutput(table, total + drops.total(), total, dict(drops))


def chunk_folder(listing: Path) -> Path:
    """Where the chunks lie that a listing names."""
    return listing.with_name(f"{listing.name.removesuffix('.parquet')}-chunks")


def list_chunks(listing: Path) -> dict[str, Path]:
    """name -> file; none where one is missing, so that they are cut again."""
    with parquet_errors(listing):
        names = pq.read_table(listing, columns=["chunk"])["chunk"].to_pylist()
    paths = {name: chunk_folder(listing) / f"{name}.parquet" for name in names}
    return paths if all(path.is_file() for path in paths.values()) else {}
