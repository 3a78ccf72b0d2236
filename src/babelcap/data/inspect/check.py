"""Looks for everything that would go wrong with a corpus in training, before training: files, offsets, images, texts.

Each finding has a reason, counted, and the first few places of each are named.
"""

import hashlib
from collections import Counter
from typing import NamedTuple

import pyarrow as pa

from babelcap.coverage import Coverage
from babelcap.data.feed.images import decode_image
from babelcap.data.store.format import (
    SCHEMA,
    TRAINING_SPLIT,
    ImageRow,
    Shard,
    SplitCounts,
    count_rows,
    merge_counts,
    open_parquet,
)
from babelcap.data.store.index import TarReader
from babelcap.data.store.store import Corpus
from babelcap.data.store.tar import TarMember, scan_tar
from babelcap.errors import BadSample, UserError
from babelcap.jobs.shards import map_shards
from babelcap.storage import file_sha256

MAX_PLACES = 5  # named per reason


class Findings:
    """Reasons with their counts and their first places."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.places: dict[str, list[str]] = {}

    def add(self, reason: str, place: str, number: int = 1) -> None:
        self.counts[reason] += number
        places = self.places.setdefault(reason, [])
        if len(places) < MAX_PLACES:
            places.append(place)

    def merge(self, other: "Findings") -> None:
        for reason, number in other.counts.items():
            self.counts[reason] += number
            places = self.places.setdefault(reason, [])
            places += other.places[reason][: MAX_PLACES - len(places)]


class ShardCheck(NamedTuple):
    findings: Findings
    keys: list[tuple[str, str]]  # key and split
    image_hashes: list[bytes]  # of each image's bytes, in the order of the keys
    splits: dict[str, SplitCounts]


class CheckResult(NamedTuple):
    problems: Findings
    notes: Findings  # worth knowing, but nothing that training would trip over
    num_images: int
    num_annotations: int


class _Job(NamedTuple):
    corpus: Corpus
    shard: Shard
    full: bool


def check_corpus(corpus: Corpus, *, full: bool = False, num_workers: int = 1) -> CheckResult:
    """Checks every image and text. `full` also compares the tars' checksums, which reads every byte of them."""
    jobs = [_Job(corpus, shard, full) for shard in corpus.manifest.shards]
    checks = map_shards(_check_shard, jobs, num_workers, "Checking tars")
    problems, notes = Findings(), Findings()
    for check in checks:
        problems.merge(check.findings)
    _find_duplicates(checks, problems, notes)
    counts = merge_counts(check.splits for check in checks)
    if counts != corpus.manifest.splits:
        problems.add("counts differ from the manifest", str(corpus.folder / "corpus.json"))
    _check_coverage(counts, corpus.coverage, problems)
    for shard in corpus.manifest.shards:
        if full and shard.tar_sha256 is None:
            notes.add("no checksum of the tar's data was recorded", shard.tar)
        for reason, number in shard.skipped.items():
            notes.add(f"left out when the corpus was made: {reason}", shard.tar, number)
    num_annotations = sum(sum(split.pairs.values()) for split in counts.values())
    return CheckResult(problems, notes, sum(split.num_images for split in counts.values()), num_annotations)


def _check_shard(job: _Job) -> ShardCheck:
    findings = Findings()
    rows = _read_rows(job, findings)
    members = _check_tar(job, findings)
    reader = TarReader([job.corpus.tar_path(job.shard.tar)])
    needed = {task.name: task.text for task in job.corpus.coverage.tasks}
    hashes = []
    for row in rows:
        place = f"{row.tar}: {row.key}"
        member = members.get(row.offset)
        if member is None or member.length != row.length or member.key != row.key or row.tar != job.shard.tar:
            findings.add("offset is not that of the image in the tar", place)
        hashes.append(_check_image(row, reader, findings))
        for annotation in row.annotations:
            if not annotation.target.strip():
                findings.add("empty text", f"{place}: {annotation.pair}")
            if annotation.task not in needed:
                findings.add("unknown task", f"{place}: {annotation.pair}")
            elif needed[annotation.task] is not None and not (annotation.source or "").strip():
                findings.add(f"{annotation.task} without {needed[annotation.task]} text", f"{place}: {annotation.pair}")
            if "\ufffd" in annotation.target or "\0" in annotation.target:
                findings.add("text with replacement characters", f"{place}: {annotation.pair}")
    return ShardCheck(findings, [(row.key, row.split) for row in rows], hashes, count_rows(rows))


def _check_image(row: ImageRow, reader: TarReader, findings: Findings) -> bytes:
    try:
        content = reader.read(0, row.offset, row.length)
        decode_image(content)
    except BadSample as error:
        findings.add(error.reason, f"{row.tar}: {row.key}")
        return b""
    return hashlib.blake2b(content, digest_size=16).digest()


def _check_tar(job: _Job, findings: Findings) -> dict[int, TarMember]:
    """Compares the tar with the manifest; its members by the offset of their data."""
    shard, path = job.shard, job.corpus.tar_path(job.shard.tar)
    try:
        scan = scan_tar(path)
    except UserError as error:
        findings.add("tar cannot be read", str(error))
        return {}
    if scan.num_bytes != shard.tar_bytes or scan.headers_sha256 != shard.tar_headers_sha256:
        findings.add("tar differs from the manifest", shard.tar)
    if job.full and shard.tar_sha256 is not None and file_sha256(path) != shard.tar_sha256:
        findings.add("checksum of the tar's data differs", shard.tar)
    return {member.offset: member for member in scan.members}


def _read_rows(job: _Job, findings: Findings) -> list[ImageRow]:
    path = job.corpus.annotations_path(job.shard)
    try:
        file = open_parquet(path)
    except UserError as error:
        findings.add("annotations cannot be read", str(error))
        return []
    with file:
        if file_sha256(path) != job.shard.annotations_sha256:
            findings.add("checksum of the annotations differs", path.name)
        rows: list[ImageRow] = []
        try:
            for batch in file.iter_batches(batch_size=1024, columns=SCHEMA.names):
                for place in range(batch.num_rows):
                    _read_row(batch.slice(place, 1), rows, path.name, findings)
        except (pa.ArrowInvalid, OSError) as error:
            findings.add("annotations cannot be read", f"{path.name}: {str(error).splitlines()[0]}")
    return rows


def _read_row(batch: pa.RecordBatch, rows: list[ImageRow], name: str, findings: Findings) -> None:
    try:
        rows.append(ImageRow.from_values(batch.to_pylist()[0]))
    except UnicodeDecodeError:  # a ValueError too, so it comes before the rest
        findings.add("text is not UTF-8", f"{name}, after {rows[-1].key if rows else 'the start'}")
    except ValueError as error:
        findings.add("bad annotation", f"{name}, after {rows[-1].key if rows else 'the start'}: {str(error)[:120]!r}")


def _find_duplicates(checks: list[ShardCheck], problems: Findings, notes: Findings) -> None:
    """The same picture twice in a split is worth knowing; in two splits it means testing on what was trained on."""
    keys: set[str] = set()
    images: dict[bytes, tuple[str, str]] = {}
    for check in checks:
        for (key, split), digest in zip(check.keys, check.image_hashes, strict=True):
            if key in keys:
                problems.add("duplicate key", key)
            keys.add(key)
            if not digest:
                continue
            other, other_split = images.setdefault(digest, (key, split))
            if other_split != split:
                problems.add("image in two splits", f"{key} ({split}) is the same as {other} ({other_split})")
            elif other != key:
                notes.add("duplicate image", f"{key} is the same as {other}")


def _check_coverage(counts: dict[str, SplitCounts], coverage: Coverage, problems: Findings) -> None:
    """A training split has all the pairs that are seen and none of the hole; a split of images alone has no say."""
    for split, of_split in counts.items():
        if split != TRAINING_SPLIT or not of_split.pairs:
            continue
        for pair in map(str, coverage.seen_pairs):
            if not of_split.pairs.get(pair):
                problems.add("seen pair is missing", f"{split}: {pair}")
        for pair in map(str, coverage.hole):
            if of_split.pairs.get(pair):
                problems.add("unseen pair in training", f"{split}: {pair}", of_split.pairs[pair])
