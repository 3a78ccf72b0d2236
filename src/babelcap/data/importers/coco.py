"""COCO captions, from its own annotation file or from a plain list of {file, captions}, with photos in a folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babelcap.coverage import CAPTION, Coverage, Style
from babelcap.data.importers.files import ImageKeys, is_file_below
from babelcap.data.importers.webdataset import unusable
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.data.store.tar import is_safe_name
from babelcap.errors import UserError
from babelcap.records import Annotation
from babelcap.storage import MAX_BYTES, read_bytes, read_json


def import_coco(output: str | Path, *, images: Path, captions: Path, split: str = "test") -> Corpus:
    """Photos that are not in the folder are left out and counted."""
    found = dict(_captions(read_json(captions, MAX_BYTES), captions))
    present = {name: texts for name, texts in sorted(found.items()) if is_file_below(images, name)}
    if not any(present.values()):
        raise UserError(f"{images} holds none of the {len(found)} photos that {captions} names")
    provenance = {
        "source": "COCO captions",
        "command": "babelcap data import coco",
        "parameters": {"images": str(images), "captions": str(captions), "split": split},
    }
    keys = ImageKeys(captions)
    with CorpusWriter(output, provenance=provenance, coverage=Coverage(seen=("caption-en",))) as writer:
        for name, texts in present.items():
            annotations = [
                Annotation(task=CAPTION, language="en", style=Style.SHORT, target=text, origin="coco") for text in texts
            ]
            key, extension = keys.add(name)
            writer.add(key, read_bytes(images / name), extension, split, annotations)
        writer.skip({"image is not in the folder": len(found) - len(present)})
    return Corpus.open(output)


def _captions(values: Any, path: Path) -> Iterator[tuple[str, list[str]]]:
    try:
        if isinstance(values, dict):  # COCO's own: images and annotations joined by image_id
            texts: dict[int, list[str]] = {}
            for item in values["annotations"]:
                texts.setdefault(item["image_id"], []).append(item["caption"])
            pairs = [(image["file_name"], texts.get(image["id"], [])) for image in values["images"]]
        else:
            pairs = [(item["file"], item["captions"]) for item in values]
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is neither COCO's caption file nor a list of {{file, captions}} ({error})") from None
    for name, captions in pairs:
        if not isinstance(name, str) or not is_safe_name(name):
            raise UserError(f"{path}: {name!r:.80} is not the name of a file in a folder")
        if not isinstance(captions, list) or not all(isinstance(text, str) for text in captions):
            raise UserError(f"{path}: the captions of '{name}' are not a list of texts")
        yield name, [text.strip() for text in captions if not unusable(text.strip())]
