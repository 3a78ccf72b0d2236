"""Writes a world: a corpus in the store's format, with the truth, free text and tokenizers beside it.

images/ annotations/ corpus.json   the corpus, splits train, eval and holdout
truth.parquet                      key, split, scene (JSON)
parallel/en-xx.tsv.gz              the training translations once each, without their pictures
text/xx.web.txt.gz .captions...    monolingual text that belongs to no picture, for base language models
tokenizers/encoder, decoder        trained on the training split and the monolingual text
"""

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from babelcap.config import content_hash, resource
from babelcap.coverage import Coverage
from babelcap.data.store.manifest import MANIFEST, record_files
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.errors import UserError
from babelcap.jobs.shards import stream_shards
from babelcap.records import Annotation
from babelcap.storage import atomic_folder, parquet_errors, read_gzip_text
from babelcap.world.annotate import Wording, draw_free_text, evaluation_annotations, training_annotations
from babelcap.world.realise import LANGUAGE_CODES, realise
from babelcap.world.render import encode, render
from babelcap.world.scenes import Scene, draw_scene, generator

TRUTH = "truth.parquet"
SOURCE = "babelcap world"  # in the provenance of a world's manifest
TRAIN, EVAL, HOLDOUT = "train", "eval", "holdout"
TEXT_KINDS = ("web", "captions")
IMAGES_PER_TASK = 100
MAX_TOKENIZER_LINES = 20000
PARALLEL_FROM = 1000  # images; below, starting processes costs more than it saves


class WorldConfig(Wording):
    num_images: int = Field(5000, ge=0)  # of the training split
    num_eval_images: int = Field(500, ge=0)
    num_holdout_images: int = Field(200, ge=0)
    size_px: int = Field(64, ge=16, le=1024)
    image_format: Literal["png", "jpg"] = "png"
    seed: int = 0
    coverage: Coverage = Coverage()
    num_text_lines: int = Field(5000, ge=0)  # of each kind and language
    num_encoder_tokens: int = Field(1000, ge=300)
    num_decoder_tokens: int = Field(4000, ge=700)
    num_workers: int = resource(2, ge=1)


class Made(NamedTuple):
    key: str
    split: str
    image: bytes
    annotations: list[Annotation]
    scene: Scene


def make_world(folder: str | Path, config: WorldConfig) -> None:
    """The folder appears whole at the end or not at all."""
    unknown = [language.code for language in config.coverage.languages if language.code not in LANGUAGE_CODES]
    if unknown:
        raise UserError(f"coverage.languages: the world speaks {', '.join(LANGUAGE_CODES)}, not {', '.join(unknown)}")
    if not config.num_images + config.num_eval_images + config.num_holdout_images:
        raise UserError("num_images, num_eval_images and num_holdout_images are all 0; there is nothing to make")
    with atomic_folder(folder) as partial:
        truth: list[dict[str, str]] = []
        training: list[Annotation] = []
        provenance = {
            "source": SOURCE,
            "config": config.model_dump(mode="json"),
            "hash": content_hash(config),
        }
        with CorpusWriter(partial, provenance=provenance, coverage=config.coverage) as writer:
            for made in make_images(config):
                writer.add(made.key, made.image, config.image_format, made.split, made.annotations)
                truth.append({"key": made.key, "split": made.split, "scene": made.scene.model_dump_json()})
                training += made.annotations if made.split == TRAIN else []
        pq.write_table(pa.Table.from_pylist(truth), partial / TRUTH)
        _write_parallel(partial / "parallel", training, config.coverage)
        text = free_text(config)
        for (language, kind), lines in text.items():
            write_lines(partial / "text" / f"{language}.{kind}.txt.gz", lines)
        _write_tokenizers(partial / "tokenizers", training, text, config)
        record_files(partial)


def make_images(config: WorldConfig) -> Iterator[Made]:
    """All pictures in order of their keys: training, eval, hold-out."""
    total = config.num_images + config.num_eval_images + config.num_holdout_images
    tasks = [(config, start, min(start + IMAGES_PER_TASK, total)) for start in range(0, total, IMAGES_PER_TASK)]
    sizes = [end - start for _, start, end in tasks]
    num_workers = config.num_workers if total >= PARALLEL_FROM else 1
    for made in stream_shards(_make_range, tasks, num_workers, "drawing", sizes):
        yield from made


def _make_range(task: tuple[WorldConfig, int, int]) -> list[Made]:
    config, start, end = task
    return [make_image(config, index) for index in range(start, end)]


def make_image(config: WorldConfig, index: int) -> Made:
    """A pure function of the configuration and the index."""
    split, within = place_of(config, index)
    scene, rng = _drawn(config, split, within)
    picture = encode(render(scene, rng, config.size_px), config.image_format)
    rng = generator(config.seed, f"text/{split}", within)
    if split == TRAIN:
        annotations = training_annotations(scene, config.coverage, config, rng)
    else:
        held_out = split == HOLDOUT
        annotations = evaluation_annotations(scene, config.coverage, config, rng, within, avoid_held_out=not held_out)
    return Made(key_of(index), split, picture, annotations, scene)


def key_of(index: int) -> str:
    return f"{index:09d}"


def place_of(config: WorldConfig, index: int) -> tuple[str, int]:
    """Split and number within it of a picture. The splits follow each other."""
    after_training = index - config.num_images
    split = TRAIN if after_training < 0 else EVAL if after_training < config.num_eval_images else HOLDOUT
    return split, index if split == TRAIN else after_training - (config.num_eval_images if split == HOLDOUT else 0)


def _drawn(config: WorldConfig, split: str, within: int) -> tuple[Scene, Random]:
    """The scene, and what it is rendered with."""
    rng = generator(config.seed, f"image/{split}", within)
    return draw_scene(rng, config.scope, held_out=split == HOLDOUT), rng


def scene_of(config: WorldConfig, key: str) -> Scene:
    """What a picture of the world shows, without drawing it."""
    total = config.num_images + config.num_eval_images + config.num_holdout_images
    if not key.isdecimal() or int(key) >= total or key_of(int(key)) != key:
        raise UserError(f"'{key:.40}' is no picture of this world, which has {total}")
    return _drawn(config, *place_of(config, int(key)))[0]


def free_text(config: WorldConfig) -> dict[tuple[str, str], list[str]]:
    """(language, kind) -> lines. No two languages share their lines: nothing is parallel here."""
    return {
        (language.code, kind): [
            realise(draw_free_text(generator(config.seed, f"free/{language.code}/{kind}", index), kind), language.code)
            for index in range(config.num_text_lines)
        ]
        for language in config.coverage.languages
        for kind in TEXT_KINDS
    }


def load_truth(folder: str | Path) -> dict[str, Scene]:
    """key -> scene, for every picture of a world."""
    path = Path(folder) / TRUTH
    if not path.is_file():
        raise UserError(f"{path}: no such file; only a corpus made by `babelcap world make` knows its truth")
    if (Path(folder) / MANIFEST).is_file():
        Corpus.open(folder).file(TRUTH)  # damage is found here
    with parquet_errors(path):
        table = pq.read_table(path)
    missing = {"key", "scene"} - set(table.column_names)
    if missing:
        raise UserError(f"{path}: column '{min(missing)}' is missing; it may be damaged")
    try:
        keys, scenes = table["key"].to_pylist(), table["scene"].to_pylist()
        return {key: Scene.model_validate_json(scene) for key, scene in zip(keys, scenes, strict=True)}
    except (TypeError, ValueError) as error:  # among them pydantic's, and text that is not UTF-8
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} holds a scene that cannot be read ({reason}); it may be damaged") from None


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a time in its header a gzip file has the same bytes whenever it is made.
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        for line in lines:
            file.write(f"{line}\n".encode())


def read_lines(path: str | Path) -> list[str]:
    return read_gzip_text(path).splitlines()


def _write_parallel(folder: Path, annotations: list[Annotation], coverage: Coverage) -> None:
    """Sorted by the text: nothing of the order in which the pictures came is left."""
    pairs: dict[str, set[str]] = {}
    for annotation in annotations:
        if annotation.source is not None:
            pairs.setdefault(annotation.language, set()).add(f"{annotation.source}\t{annotation.target}")
    for language, lines in sorted(pairs.items()):
        write_lines(folder / f"{coverage.source_language}-{language}.tsv.gz", sorted(lines))


def _write_tokenizers(
    folder: Path, training: list[Annotation], text: dict[tuple[str, str], list[str]], config: WorldConfig
) -> None:
    from babelcap.world.tokenizers import save_tokenizers, train_decoder_tokenizer, train_encoder_tokenizer

    english, every = tokenizer_text(training, text, config.coverage)
    if english and every:
        encoder = train_encoder_tokenizer(english, config.coverage, config.num_encoder_tokens)
        decoder = train_decoder_tokenizer(every, config.coverage, config.num_decoder_tokens)
        save_tokenizers(folder, encoder, decoder)


def tokenizer_text(
    training: Iterable[Annotation], text: dict[tuple[str, str], list[str]], coverage: Coverage
) -> tuple[list[str], list[str]]:
    """What the encoder's and the decoder's tokenizer are trained on: evenly taken lines of all training text."""
    training = list(training)
    english = [annotation.source for annotation in training if annotation.source]
    english += [line for (code, _), lines in text.items() if code == coverage.source_language for line in lines]
    every = [annotation.target for annotation in training] + [line for lines in text.values() for line in lines]
    return _thinned(english), _thinned(every)


def _thinned(lines: list[str]) -> list[str]:
    return lines[:: max(1, len(lines) // MAX_TOKENIZER_LINES)]


def read_free_text(folder: str | Path, coverage: Coverage) -> dict[tuple[str, str], list[str]]:
    """(language, kind) -> lines, as `make_world` wrote them."""
    corpus = Corpus.open(folder)
    names = {
        (language.code, kind): f"text/{language.code}.{kind}.txt.gz"
        for language in coverage.languages
        for kind in TEXT_KINDS
    }
    present = {
        key: name for key, name in names.items() if name in corpus.manifest.files or (corpus.folder / name).is_file()
    }
    return {key: read_lines(corpus.file(name)) for key, name in present.items()}
