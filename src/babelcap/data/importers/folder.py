"""Single images in a folder, with their texts in a CSV or a file of JSON lines: one line for each text of an image.

image, text                                  required: a path below the folder, and the text; an image may have many
language, task, style, source, split,
origin, score                                optional, as in the corpus; what is left out is taken from the options
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from babelcap.coverage import CAPTION, Coverage, Pair, Style
from babelcap.data.importers.files import ImageKeys, is_file_below
from babelcap.data.importers.webdataset import unusable
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.data.store.tar import IMAGE_EXTENSIONS, is_safe_name
from babelcap.errors import UserError
from babelcap.measures import TRAIN
from babelcap.records import Annotation
from babelcap.storage import read_bytes, read_json_lines, read_text

METADATA = ("metadata.csv", "metadata.jsonl")  # what a folder's texts are usually called, where none are named
NAMES = {"file_name": "image", "file": "image", "caption": "text", "target": "text"}  # other words for our columns
COLUMNS = ("image", "text", "language", "task", "style", "source", "split", "origin", "score")


class Line(NamedTuple):
    where: str
    values: dict[str, Any]  # column -> value, without empty ones


@dataclass(frozen=True)
class FolderDefaults:
    """What a line is where it does not say it."""

    language: str = "en"
    task: str = CAPTION
    split: str = TRAIN


@dataclass
class ImageTexts:
    split: str
    annotations: list[Annotation] = field(default_factory=list)


def import_folder(
    output: str | Path, images: Path, texts: Path | None = None, defaults: FolderDefaults | None = None
) -> Corpus:
    """Texts without an image in the folder are left out and counted."""
    if not images.is_dir():
        raise UserError(f"--images {images}: no such folder")
    texts = texts or next((images / name for name in METADATA if (images / name).is_file()), None)
    if texts is None:
        raise UserError(f"{images} holds neither {' nor '.join(METADATA)}; name the file of texts with --texts")
    skipped: Counter[str] = Counter()
    found = group_by_image(read_lines(texts), defaults or FolderDefaults(), skipped)
    provenance = {
        "source": "a folder of images",
        "command": "babelcap data import folder",
        "parameters": {"images": str(images), "texts": str(texts)},
    }
    coverage, keys = coverage_of(found.values()), ImageKeys(texts)
    with CorpusWriter(output, provenance=provenance, coverage=coverage) as writer:
        for name, of_image in sorted(found.items()):
            if is_file_below(images, name):
                key, extension = keys.add(name)
                writer.add(key, read_bytes(images / name), extension, of_image.split, of_image.annotations)
            else:
                skipped["image is not in the folder"] += 1
        writer.skip(skipped)
    return Corpus.open(output)


def group_by_image(lines: Iterator[Line], defaults: FolderDefaults, skipped: Counter[str]) -> dict[str, ImageTexts]:
    """Path of an image -> its split and texts."""
    found: dict[str, ImageTexts] = {}
    for where, values in lines:
        name, text = values.get("image"), values.get("text")
        if not isinstance(name, str) or not is_safe_name(name):
            raise UserError(f"{where}: image is {name!r:.80}; expected the path of a file below the folder")
        if name.rpartition(".")[2].lower() not in IMAGE_EXTENSIONS:
            raise UserError(f"{where}: image '{name:.80}' does not end in {', '.join(sorted(IMAGE_EXTENSIONS))}")
        reason = unusable(text.strip()) if isinstance(text, str) else "empty text"
        if reason:
            skipped[reason] += 1
            continue
        split = values.get("split", defaults.split)
        if not isinstance(split, str) or not split.isprintable():
            raise UserError(f"{where}: split is {split!r:.80}; a split is a name")
        of_image = found.setdefault(name, ImageTexts(split))
        if of_image.split != split:
            raise UserError(f"{where}: '{name}' is in split '{split}' and in '{of_image.split}'")
        of_image.annotations.append(_annotation(values, str(text).strip(), defaults, where))
    if not found:
        raise UserError(f"no line has a text that can be used ({dict(skipped)})")
    return found


def _annotation(values: dict[str, Any], text: str, defaults: FolderDefaults, where: str) -> Annotation:
    given: dict[str, Any] = {"task": defaults.task, "language": defaults.language}
    given |= {name: value for name, value in values.items() if name not in ("image", "text", "split")}
    if given["task"] == CAPTION:
        given.setdefault("style", Style.SHORT)
    try:
        return Annotation.model_validate({**given, "target": text})
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']:.300}") from None


def coverage_of(images: Any) -> Coverage:
    """That sees what the training split has, or what there is where there is none to train on."""
    pairs: dict[bool, set[Pair]] = {True: set(), False: set()}
    for image in images:
        pairs[image.split == TRAIN].update(annotation.pair for annotation in image.annotations)
    known = Coverage()
    for pair in sorted(pairs[True] | pairs[False]):
        known.language(pair.language)
        known.task(pair.task)
    seen = pairs[True] or pairs[False]
    return Coverage(seen=tuple(str(pair) for pair in known.all_pairs if pair in seen))


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a CSV (or .tsv) with a head line, or of a file of JSON lines, with our names for the columns."""
    if path.suffix in {".csv", ".tsv"}:
        return _read_csv(path, "\t" if path.suffix == ".tsv" else ",")
    if path.suffix in {".jsonl", ".json"}:
        return _read_json(path)
    raise UserError(f"{path}: texts are read from .csv, .tsv or .jsonl, not from '{path.suffix}'")


def _read_csv(path: Path, delimiter: str) -> Iterator[Line]:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=delimiter, strict=True)
    try:
        names = [NAMES.get(name.strip(), name.strip()) for name in next(reader, [])]
        twice = [name for name, number in Counter(names).items() if number > 1]
        if twice:
            raise UserError(f"{path}: the column '{twice[0]}' is there more than once")
        for name in ("image", "text"):
            if name not in names:
                raise UserError(f"{path}: column '{name}' is missing (found: {', '.join(names)[:200]})")
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                raise UserError(f"{path}:{reader.line_num}: {len(row)} values for {len(names)} columns")
            values = dict(zip(names, row, strict=True))
            yield Line(f"{path}:{reader.line_num}", {name: values[name] for name in COLUMNS if values.get(name)})
    except csv.Error as error:  # among them a field of more than 131,072 characters
        raise UserError(f"{path}:{reader.line_num}: not a readable CSV line ({error})") from None


def _read_json(path: Path) -> Iterator[Line]:
    for line in read_json_lines(path):
        if line.error is not None:
            raise UserError(line.error)
        if not isinstance(line.value, dict):
            raise UserError(f"{path}:{line.number}: a line is one JSON object, found {type(line.value).__name__}")
        values = {NAMES.get(name, name): value for name, value in line.value.items()}
        kept = {name: values[name] for name in COLUMNS if values.get(name) not in (None, "")}
        yield Line(f"{path}:{line.number}", kept)
