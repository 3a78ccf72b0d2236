"""The sources as distributed: which pictures are for training and which for validation, and what people wrote of them.

multi30k          task 2: five captions in English and in German; task 1: translations into German and French
coco              Karpathy's train and restval: five English captions
image_paragraphs  train: one English paragraph
docci             train: one long English description
corpus            any corpus of this package: its captions and translations, train and eval
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from pydantic import Field

from babelcap.config import ConfigModel, resource
from babelcap.coverage import CAPTION, TRANSLATION, Style
from babelcap.data.distributed import coco, docci, image_paragraphs
from babelcap.data.distributed.files import Described
from babelcap.data.importers.multi30k import load_texts
from babelcap.data.importers.webdataset import unusable
from babelcap.data.store.store import Corpus, is_key
from babelcap.data.store.tar import is_safe_name
from babelcap.errors import UserError
from babelcap.jobs.receipts import ShardOutput
from babelcap.measures import EVAL, TRAIN

Format = Literal["multi30k", "coco", "image_paragraphs", "docci", "corpus"]
STYLES = {
    "multi30k": Style.SHORT,
    "coco": Style.SHORT,
    "image_paragraphs": Style.DETAILED,
    "docci": Style.MORE_DETAILED,
}
MULTI30K_SPLITS = {"train": TRAIN, "val": EVAL}
MULTI30K_ORIGIN = "https://shannon.cs.illinois.edu/DenotationGraph (Flickr30k)"


class SourceConfig(ConfigModel):
    format: Format
    folder: Path = resource(...)  # the dataset's, as distributed; its pictures lie in it unless `tars` are named
    tars: tuple[str, ...] = resource(())  # that hold the pictures: they stay as they are
    licence: str = ""  # of what people wrote
    captions_into: tuple[str, ...] | None = None  # languages by machine; None: those it has no captions in
    captions_as_pairs: bool = False  # a caption and its translation are a translation pair too
    num_images: dict[str, int] = Field({})  # split -> how many it has to have, where it is not what is distributed
    max_missing_share: float = Field(0.0, ge=0, le=1)  # of the pictures that may not be there


class Text(NamedTuple):
    """One text of one picture, as the columns of TEXTS."""

    key: str
    image: str  # path below the source's folder; empty where pictures lie in tars
    split: str
    number: int  # among its picture's texts
    task: str
    language: str
    style: str | None
    source: str | None
    target: str
    origin: str


TEXTS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("image", pa.string(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("number", pa.int32(), nullable=False),
        pa.field("task", pa.string(), nullable=False),
        pa.field("language", pa.string(), nullable=False),
        pa.field("style", pa.string()),
        pa.field("source", pa.string()),
        pa.field("target", pa.string(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
    ]
)


def text_files(source: SourceConfig) -> list[Path]:
    """The files that the texts are read from: inputs, known by their contents."""
    folder = source.folder
    if source.format == "corpus":
        corpus = Corpus.open(folder)
        return [corpus.annotations_path(shard) for shard in corpus.manifest.shards]
    if source.format == "multi30k":
        found = sorted(path for path in (folder / "data").rglob("*") if path.suffix in (".gz", ".txt"))
        if not (folder / "data" / "task1").is_dir():
            raise UserError(f"{folder / 'data'}: no task1 in it; get it from https://github.com/multi30k/dataset")
        return found
    names = {
        "coco": [coco.FILE],
        "docci": [docci.FILE],
        "image_paragraphs": [image_paragraphs.FILE, image_paragraphs.SPLIT_FILE.format(split="train")],
    }
    origins = {"coco": coco.ORIGIN, "docci": docci.ORIGIN, "image_paragraphs": image_paragraphs.ORIGIN}
    paths = [folder / name for name in names[source.format]]
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: no such file; get it from {origins[source.format]}")
    return paths


def read_source_shard(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    """All texts of a source that are for training or validation. Of a validation picture one of each pair is kept."""
    name = settings["name"]
    source = SourceConfig.model_validate(settings["source"] | {"folder": settings["folder"], "tars": settings["tars"]})
    rows: list[Text] = []
    drops: Counter[str] = Counter()
    seen: set[tuple[str, str, str]] = set()
    for text in _texts(name, source):
        pair = (text.key, text.task, text.language)
        reason = unusable(text.target) or (unusable(text.source or "") if text.task == TRANSLATION else None)
        if reason is None and text.split == EVAL and pair in seen:
            reason = "more than one of a pair in validation"
        if reason is None:
            rows.append(text)
            seen.add(pair)
        else:
            drops[reason] += 1
    rows.sort(key=lambda row: (row.key, row.number))
    if not rows:
        raise UserError(f"sources.{name}: {source.folder} has no texts for training")
    table = pa.table(list(zip(*rows, strict=True)), schema=TEXTS)
    return ShardOutput(table, len(rows) + drops.total(), len(rows), dict(drops))


def _texts(name: str, source: SourceConfig) -> Iterator[Text]:
    if source.format == "multi30k":
        yield from _multi30k(name, source)
    elif source.format == "corpus":
        yield from _corpus(name, source)
    else:
        for row in _described(source):
            image = row.image.as_posix().removeprefix(f"{source.folder.as_posix()}/")
            key = image_key(name, source, row.image.name)
            if not is_safe_name(image) or not is_key(key):  # foreign files must not name files elsewhere
                raise UserError(f"sources.{name}: {image!r:.80} is not the name of a picture below {source.folder}")
            style = STYLES[source.format]
            for number, text in enumerate(row.texts):
                yield Text(key, image, TRAIN, number, CAPTION, "en", style, None, " ".join(text.split()), name)


def _described(source: SourceConfig) -> Iterable[Described]:
    folder, num_images = source.folder, source.num_images
    if source.format == "docci":
        return docci.read_descriptions(folder, "train", num_images.get("train"))
    if source.format == "image_paragraphs":
        return image_paragraphs.read_paragraphs(folder, "train", num_images.get("train"))
    return [row for split in ("train", "restval") for row in coco.read_karpathy(folder, split, num_images.get(split))]


def _multi30k(name: str, source: SourceConfig) -> Iterator[Text]:
    for stem, (split, texts) in load_texts(source.folder / "data").items():
        if split not in MULTI30K_SPLITS:
            continue
        key, image = image_key(name, source, f"{stem}.jpg"), "" if source.tars else f"images/{stem}.jpg"
        for number, text in enumerate(texts):
            task, style, part = (CAPTION, Style.SHORT, "task2") if text.source is None else (TRANSLATION, None, "task1")
            place = (key, image, MULTI30K_SPLITS[split], number)
            yield Text(*place, task, text.language, style, text.source, text.target, f"{name}/{part}")


def _corpus(name: str, source: SourceConfig) -> Iterator[Text]:
    for row in Corpus.open(source.folder).rows():
        if row.split not in (TRAIN, EVAL):
            continue
        for number, entry in enumerate(row.annotations):
            place = (row.key, "", row.split, number)
            origin = f"{name}/{entry.origin}" if entry.origin else name
            yield Text(*place, entry.task, entry.language, entry.style, entry.source, entry.target, origin)


def image_key(name: str, source: SourceConfig, file: str) -> str:
    """Pictures that are packed carry the source's name, since Flickr and Visual Genome both call theirs by number."""
    stem = file.partition(".")[0]
    return stem if source.tars else f"{name}/{stem}"


def picture_tars(source: SourceConfig) -> tuple[str, ...]:
    """Where its pictures lie in tars already."""
    return (str(source.folder / "images"),) if source.format == "corpus" else source.tars
