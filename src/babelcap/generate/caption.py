"""English captions of a tar's images by a captioner that sees the image and, where there is one, its alt-text.

A caption is kept as a list of sentences. One that was cut for lack of room keeps its whole sentences.
"""

import importlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image
from pydantic import Field

from babelcap.config import ConfigModel, build_config, resource
from babelcap.coverage import Style
from babelcap.data.sentences import split_sentences
from babelcap.data.store.tar import scan_tar
from babelcap.errors import UserError
from babelcap.generate.backends.captioners import REFUSAL, Answer, CaptionBackend, Question
from babelcap.generate.backends.given import GivenTexts
from babelcap.generate.embed import read_images
from babelcap.generate.models import hub_version
from babelcap.generate.schemas import CAPTION
from babelcap.identification import may_be
from babelcap.jobs.receipts import JOURNAL, ShardOutput
from babelcap.storage import parse_json

BACKENDS = {
    "transformers": "babelcap.generate.backends.captioners:VisionLanguageModel",
    "server": "babelcap.generate.backends.server:ChatServer",
    "babelcap": "babelcap.generate.backends.own:OwnCaptioner",
    "given": "babelcap.generate.backends.given:GivenCaptioner",
    "world": "babelcap.generate.backends.world:WorldCaptioner",
}
ARGUMENTS = {
    "transformers": ("model", "device", "dtype", "max_new_tokens", "num_beams"),
    "server": ("model", "urls", "max_in_flight", "timeout_seconds", "patience_seconds", "max_new_tokens", "journal"),
    "babelcap": ("model", "device", "dtype", "max_new_tokens", "num_beams", "style"),
    "given": ("given",),
    "world": ("model", "error_share", "seed"),
}
MIN_REFUSALS = 8  # of a shard, with nothing else, that say something of the server
MAX_ALT_TEXT = 300  # characters
SENTENCE_END = ".!?…"


class CaptionConfig(ConfigModel):
    backend: str = "transformers"
    model: str = "llava-hf/llava-v1.6-mistral-7b-hf"
    licence: str = ""
    given: GivenTexts | None = None  # of the "given" backend, whose `model` says whose captions they are
    prompt: str = "Describe the image in one to three sentences. Name what is seen, where it is and what it does."
    alt_text_prompt: str = " The image was published with this text, which may be wrong: {alt_text}"
    alt_text: str | None = None  # extension of the tar's members that hold it: txt, or json:FIELD
    style: Style = Style.DETAILED  # that a captioner of this package is asked for
    batch_size: int = Field(8, ge=1)
    max_new_tokens: int = Field(128, ge=1)
    num_beams: int = Field(1, ge=1)
    image_size_px: int = Field(672, ge=16)  # images are decoded no smaller than this
    max_sentences: int = Field(6, ge=1)
    check_language: bool = True
    error_share: float = Field(0.0, ge=0, le=1)  # of the world's backend, whose `model` is the world's folder
    seed: int = 0
    dtype: str = Field("float32", pattern="^(float32|float16|bfloat16)$")
    device: str = resource("cpu")
    urls: tuple[str, ...] = resource(("http://localhost:8000/v1",))
    max_in_flight: int = resource(32, ge=1)
    timeout_seconds: float = resource(120.0, gt=0)
    patience_seconds: float = resource(600.0, gt=0)


@lru_cache(maxsize=1)
def _load(backend: str, settings: str) -> CaptionBackend:
    module, _, name = BACKENDS[backend].partition(":")
    made: CaptionBackend = getattr(importlib.import_module(module), name)(**json.loads(settings))
    return made


def load_captioner(config: CaptionConfig, journal: str | None = None) -> CaptionBackend:
    if config.backend not in BACKENDS:
        raise UserError(f"caption.backend: '{config.backend}' is unknown; known: {', '.join(BACKENDS)}")
    known = config.model_dump(mode="json") | {"journal": journal}
    return _load(config.backend, json.dumps({name: known[name] for name in ARGUMENTS[config.backend]}, sort_keys=True))


def read_alt_texts(tar: Path, member: str | None) -> dict[str, str]:
    """key -> alt-text. What cannot be read is left out: a caption needs none."""
    if member is None:
        return {}
    extension, _, field = member.partition(":")
    found = {}
    with tar.open("rb") as file:
        for entry in scan_tar(tar).members:
            if entry.extension != extension or entry.length > 1_000_000:
                continue
            file.seek(entry.offset)
            text = _alt_text(file.read(entry.length).decode("utf-8", errors="replace"), field)
            if text.strip():
                found[entry.key] = " ".join(text.split())[:MAX_ALT_TEXT]
    return found


def count_images(tar: Path) -> int:
    """That a tar has, whatever their state; counted apart from those that were captioned or dropped."""
    scan = scan_tar(tar)
    return sum(member.is_image for member in scan.members) + scan.problems.total()


def _alt_text(content: str, field: str) -> str:
    if not field:
        return content
    try:
        values = parse_json(content, field)
    except UserError:
        return ""
    text = values.get(field) if isinstance(values, dict) else None
    return text if isinstance(text, str) else ""


def sentences_of(answer: Answer, config: CaptionConfig) -> tuple[list[str], str | None]:
    """The sentences of an answer, or why it is dropped."""
    if answer.drop is not None:
        return [], answer.drop
    sentences = split_sentences(answer.text, "en")
    if answer.is_cut and sentences and sentences[-1][-1:] not in SENTENCE_END:
        sentences = sentences[:-1]
        if not sentences:
            return [], "cut before its first sentence ended"
    if not sentences:
        return [], "empty caption"
    if config.check_language and not may_be(" ".join(sentences), "en"):
        return [], "not English"
    return sentences[: config.max_sentences], None


def caption_shard(inputs: dict[str, Path], settings: dict[str, Any]) -> ShardOutput:
    fields = {name: value for name, value in settings.items() if name in CaptionConfig.model_fields}
    config = build_config(CaptionConfig, fields, "caption")
    is_server = config.backend == "server"
    journal = str(Path(settings["output"]).with_suffix(JOURNAL)) if is_server else None
    batch_size = 4 * config.max_in_flight if is_server else config.batch_size  # keeps all of the server's slots busy
    captioner = load_captioner(config, journal)
    drops: Counter[str] = Counter()
    alt_texts = read_alt_texts(inputs["tar"], config.alt_text)
    questions = _questions(read_images(inputs["tar"], config.image_size_px, drops), alt_texts, config)
    rows: list[tuple[str, list[str]]] = []
    while batch := list(itertools.islice(questions, batch_size)):
        for question, answer in zip(batch, captioner.answer(batch), strict=True):
            sentences, reason = sentences_of(answer, config)
            if reason is None:
                rows.append((question.key, sentences))
            else:
                drops[reason] += 1
    if drops[REFUSAL] >= MIN_REFUSALS and not rows:  # that is not the data: nothing is recorded
        Path(str(journal)).unlink(missing_ok=True)
        raise UserError(
            f"caption.urls: all {drops[REFUSAL]} requests were refused; does the server's model take images, "
            f"{config.max_new_tokens} new tokens and this prompt?"
        )
    columns = list(zip(*rows, strict=True)) or [(), ()]
    return ShardOutput(
        pa.table(columns, schema=CAPTION),
        count_images(inputs["tar"]),
        len(rows),
        dict(drops),
        models=hub_version("captioner", config.model) if config.backend == "transformers" else {},
        device=config.device,
        extra={"licence": config.licence},
    )


def _questions(
    images: Iterator[tuple[str, Image.Image]], alt_texts: dict[str, str], config: CaptionConfig
) -> Iterator[Question]:
    for key, image in images:
        prompt = config.prompt
        if key in alt_texts:
            prompt += config.alt_text_prompt.format(alt_text=alt_texts[key])
        yield Question(key, image, prompt)
