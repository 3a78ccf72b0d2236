"""Plain webdataset tars for other trainers: KEY.jpg beside KEY.json (split and annotations), shard by shard.

SPLIT/SPLIT-NAME.tar                   names differ over all splits, as an index of them needs
SPLIT/SPLIT-NAME.annotations.parquet   the same texts, which `data index` finds: an export can be indexed again
export.json                            of which corpus it is, with its coverage
README.md                              its card: counts, languages, the hole, who made the texts, licences
"""

import json
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from babelcap.data.importers.webdataset import RECEIPT, annotations_beside
from babelcap.data.inspect.card import write_corpus_card
from babelcap.data.store.format import ImageRow, write_annotations
from babelcap.data.store.index import TarReader
from babelcap.data.store.licences import has_word, licence_of
from babelcap.data.store.manifest import Shard
from babelcap.data.store.store import Corpus
from babelcap.data.store.tar import TarFileWriter, is_safe_name, scan_tar
from babelcap.errors import BadSample, UserError
from babelcap.jobs.shards import map_shards
from babelcap.storage import atomic_file, read_json, write_json


class _Job(NamedTuple):
    corpus: Corpus
    shard: Shard
    split: str
    path: Path
    without: str | None  # texts of a licence with this word are left out


def export_webdataset(
    corpus: Corpus,
    folder: str | Path,
    *,
    split: str | None = None,
    exclude_licence: str | None = None,
    num_workers: int = 1,
) -> int:
    """Writes the tars of every split; the number of images. A tar that is there already is not made again.

    `exclude_licence` is a word: texts whose licence has it are left out, and images of which no text is left.
    """
    folder = Path(folder)
    splits = corpus.splits if split is None else (split,)
    for name in splits:
        corpus.num_images(name)  # an unknown split is a mistake
        if not is_safe_name(name) or "/" in name or name.startswith("."):
            raise UserError(f"the split {name!r:.80} cannot be the name of a folder; give it another name")
    receipt = {
        "format": "webdataset",
        "content_hash": corpus.content_hash,
        "coverage": corpus.coverage.model_dump(mode="json"),
    }
    if exclude_licence is not None:
        receipt["without_licence"] = exclude_licence
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not (folder / RECEIPT).is_file() or read_json(folder / RECEIPT) != receipt:
            raise UserError(f"{folder} holds something else than an export of this corpus; choose another output")
    else:
        write_json(folder / RECEIPT, receipt)
    jobs = [
        _Job(corpus, shard, name, path, exclude_licence)
        for name in splits
        for shard in corpus.manifest.shards
        if name in shard.splits and not (path := folder / name / f"{name}-{shard.tar}").is_file()
    ]
    map_shards(_export_shard, jobs, num_workers, "Exporting tars")
    write_corpus_card(corpus, folder)
    if exclude_licence is None:
        return sum(corpus.num_images(name) for name in splits)
    tars = [folder / name / f"{name}-{shard.tar}" for name in splits for shard in corpus.manifest.shards]
    return sum(pq.read_metadata(annotations_beside(path)).num_rows for path in tars if path.is_file())


def _export_shard(job: _Job) -> None:
    source = job.corpus.tar_path(job.shard.tar)
    names = {member.offset: member.name for member in scan_tar(source).members}
    reader = TarReader([source])
    rows: list[ImageRow] = []
    with atomic_file(job.path) as partial:
        writer = TarFileWriter(partial)
        try:
            for row in job.corpus.shard_rows(job.shard):
                if row.split != job.split:
                    continue
                if job.without is not None:
                    row = _without(row, job.without, job.corpus)
                    if not row.annotations:
                        continue
                if row.offset not in names:
                    raise UserError(
                        f"{source} does not hold '{row.key}' where the corpus says; see `babelcap data check`"
                    )
                values = {
                    "key": row.key,
                    "split": row.split,
                    "annotations": [annotation.model_dump(mode="json") for annotation in row.annotations],
                }
                offset = writer.add(names[row.offset], reader.read(0, row.offset, row.length))
                writer.add(f"{row.key}.json", json.dumps(values, ensure_ascii=False).encode("utf-8"))
                rows.append(row._replace(tar=job.path.name, offset=offset))
            writer.close()
        except BadSample as error:
            raise UserError(f"{source}: {error}; see `babelcap data check`") from None
        finally:
            writer.abandon()
        # Before the tar is in its place, which says that both are done.
        write_annotations(annotations_beside(job.path), rows, {})


def _without(row: ImageRow, word: str, corpus: Corpus) -> ImageRow:
    kept = (entry for entry in row.annotations if not has_word(licence_of(entry.origin, corpus.manifest), word))
    return row._replace(annotations=tuple(kept))
