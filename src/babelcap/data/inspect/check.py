"""Looks for everything that would go wrong with a corpus in training, before training: files, offsets, images, texts.

Each finding has a reason, counted, and the first few places of each are named. Nothing that was remembered is believed:
every checksum is computed again, those of the tars' data with `full`.
"""

import hashlib
from collections import Counter
from typing import NamedTuple

import pyarrow as pa

from babelcap.coverage import Coverage
from babelcap.data.feed.images import decode_image
from babelcap.data.store.format import SCHEMA, ImageRow, read_batches
from babelcap.data.store.index import TarReader
from babelcap.data.store.index_build import index_name, is_whole
from babelcap.data.store.manifest import (
    INDEX,
    MANIFEST,
    Shard,
    SplitCounts,
    count_rows,
    describe_files,
    merge_counts,
    write_manifest,
)
from babelcap.data.store.store import Corpus
from babelcap.data.store.tar import TarMember, scan_tar
from babelcap.errors import BadSample, UserError
from babelcap.jobs.shards import map_shards
from babelcap.measures import TRAIN
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
    tar_sha256: str | None  # of all bytes, where they were read


class CheckResult(NamedTuple):
    problems: Findings
    notes: Findings  # worth knowing, but nothing that training would trip over
    num_images: int
    num_annotations: int
    not_checked: tuple[str, ...] = ()
    num_recorded: int = 0  # tars whose checksum was added to the manifest


class _Job(NamedTuple):
    corpus: Corpus
    shard: Shard
    full: bool  # compare the checksum of the tar's data, where there is one
    record: bool  # compute it, where there is none


def check_corpus(corpus: Corpus, *, full: bool = False, record: bool = False, num_workers: int = 1) -> CheckResult:
    """Checks every image and text. `full` compares the tars' checksums too, which reads every byte of them.

    `record` is full, and adds the checksums that are missing to the manifest of a corpus in which all is well.
    """
    full = full or record
    jobs = [_Job(corpus, shard, full, record) for shard in corpus.manifest.shards]
    checks = map_shards(_check_shard, jobs, num_workers, "Checking tars")
    problems, notes = Findings(), Findings()
    for check in checks:
        problems.merge(check.findings)
    _find_duplicates(checks, problems, notes)
    counts = merge_counts(check.splits for check in checks)
    if counts != corpus.manifest.splits:
        problems.add("counts differ from the manifest", str(corpus.folder / MANIFEST))
    _check_coverage(counts, corpus.coverage, problems)
    _check_files(corpus, problems)
    num_annotations = sum(sum(split.pairs.values()) for split in counts.values())
    if not num_annotations:
        wanted = corpus.manifest.provenance.get("images_only") is True
        (notes if wanted else problems).add("no annotations at all", str(corpus.folder))
    for shard in corpus.manifest.shards:
        for reason, number in shard.skipped.items():
            notes.add(f"left out when the corpus was made: {reason}", shard.tar, number)
    num_recorded = _record(corpus, checks) if record and not problems.counts else 0
    missing = [shard.tar for shard in corpus.manifest.shards if shard.tar_sha256 is None]
    not_checked = _not_checked(full, len(missing) if not num_recorded else 0, len(jobs))
    num_images = sum(split.num_images for split in counts.values())
    return CheckResult(problems, notes, num_images, num_annotations, not_checked, num_recorded)


def _not_checked(full: bool, num_missing: int, num_tars: int) -> tuple[str, ...]:
    if num_missing:
        return (f"changed bits inside images: {num_missing} tars have no checksum of their data; --record adds it",)
    return () if full else (f"changed bits inside images: the checksums of {num_tars} tars; --full compares them",)


def _check_files(corpus: Corpus, problems: Findings) -> None:
    """What lies beside images and annotations: truth, text and tokenizers of a world, and the index."""
    for name, state in corpus.manifest.files.items():
        path = corpus.folder / name
        if not path.is_file():
            problems.add("file is missing", name)
        elif path.stat().st_size != state.bytes or file_sha256(path) != state.sha256:
            problems.add("checksum of a file differs", name)
    index = corpus.folder / INDEX / index_name(corpus)
    if index.is_dir() and not is_whole(index, None):
        problems.add("index is damaged; it is built again when it is next opened", index.name)


def _record(corpus: Corpus, checks: list[ShardCheck]) -> int:
    pairs = list(zip(corpus.manifest.shards, checks, strict=True))
    shards = [shard.model_copy(update={"tar_sha256": shard.tar_sha256 or check.tar_sha256}) for shard, check in pairs]
    files = corpus.manifest.files or describe_files(corpus.folder)
    write_manifest(corpus.folder, corpus.manifest.model_copy(update={"shards": shards, "files": files}))
    return sum(shard.tar_sha256 is None for shard, _ in pairs)


def _check_shard(job: _Job) -> ShardCheck:
    findings = Findings()
    rows = _read_rows(job, findings)
    members, tar_sha256 = _check_tar(job, findings)
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
    return ShardCheck(findings, [(row.key, row.split) for row in rows], hashes, count_rows(rows), tar_sha256)


def _check_image(row: ImageRow, reader: TarReader, findings: Findings) -> bytes:
    try:
        content = reader.read(0, row.offset, row.length)
        decode_image(content)
    except BadSample as error:
        findings.add(error.reason, f"{row.tar}: {row.key}")
        return b""
    return hashlib.blake2b(content, digest_size=16).digest()


def _check_tar(job: _Job, findings: Findings) -> tuple[dict[int, TarMember], str | None]:
    """Compares the tar with the manifest; its members by the offset of their data, and its SHA-256 if computed."""
    shard, path = job.shard, job.corpus.tar_path(job.shard.tar)
    try:
        scan = scan_tar(path)
    except UserError as error:
        findings.add("tar cannot be read", str(error))
        return {}, None
    if scan.num_bytes != shard.tar_bytes or scan.headers_sha256 != shard.tar_headers_sha256:
        findings.add("tar differs from the manifest", shard.tar)
    digest = file_sha256(path) if job.record or (job.full and shard.tar_sha256 is not None) else None
    if digest is not None and shard.tar_sha256 not in (None, digest):
        findings.add("checksum of the tar's data differs", shard.tar)
    return {member.offset: member for member in scan.members}, digest


def _read_rows(job: _Job, findings: Findings) -> list[ImageRow]:
    path = job.corpus.annotations_path(job.shard)
    rows: list[ImageRow] = []
    try:
        if path.is_file() and file_sha256(path) != job.shard.annotations_sha256:
            findings.add("checksum of the annotations differs", path.name)
        for batch in read_batches(path, SCHEMA.names, 1024):
            for place in range(batch.num_rows):
                _read_row(batch.slice(place, 1), rows, path.name, findings)
    except UserError as error:
        findings.add("annotations cannot be read", str(error))
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
        if split != TRAIN or not of_split.pairs:
            continue
        for pair in map(str, coverage.seen_pairs):
            if not of_split.pairs.get(pair):
                problems.add("seen pair is missing", f"{split}: {pair}")
        for pair in map(str, coverage.hole):
            if of_split.pairs.get(pair):
                problems.add("unseen pair in training", f"{split}: {pair}", of_split.pairs[pair])
