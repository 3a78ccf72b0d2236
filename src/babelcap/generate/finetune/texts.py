"""What is to be translated: English captions and sentences of a tar's images, with a description as context.

Short captions go whole, with the description of their picture; longer texts go sentence by sentence, without.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from babelcap.config import build_config
from babelcap.coverage import CAPTION, Style
from babelcap.data.feed.images import decode_image
from babelcap.data.importers.assemble import image_members
from babelcap.data.sentences import split_sentences
from babelcap.data.store.index import TarReader
from babelcap.data.store.tar import scan_tar
from babelcap.errors import BadSample
from babelcap.generate.backends.captioners import Question
from babelcap.generate.caption import load_captioner
from babelcap.generate.finetune.config import DescribeConfig
from babelcap.generate.finetune.leaks import read_leaks
from babelcap.generate.finetune.sources import Text
from babelcap.jobs.receipts import JOURNAL, ShardOutput
from babelcap.storage import parquet_errors

DESCRIPTIONS = pa.schema([pa.field("key", pa.string(), nullable=False), pa.field("text", pa.string(), nullable=False)])
TO_TRANSLATE = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),  # `text_id`
        pa.field("sentences", pa.list_(pa.string()), nullable=False),
        pa.field("description", pa.string()),
    ]
)


def text_id(text: Text) -> str:
    return f"{text.key}#{text.number}"


def read_texts(path: Path, keys: Sequence[str]) -> list[Text]:
    """The texts of some images, by key and number."""
    with parquet_errors(path):
        table = pq.read_table(path, filters=pc.field("key").isin(list(keys)))
    return [Text(**row) for row in table.to_pylist()]


def english_of(texts: Sequence[Text], task: str) -> dict[str, tuple[Text, str]]:
    """text id -> what is to be translated: English captions, or each English side of translations once an image."""
    found: dict[tuple[str, str], tuple[Text, str]] = {}
    for text in texts:
        english = text.source if text.task != CAPTION else text.target if text.language == "en" else None
        if text.task == task and english:
            found.setdefault((text.key, english), (text, english))
    return {text_id(text): (text, english) for text, english in found.values()}


def is_short(text: Text) -> bool:
    """Captions say so; what translations start from are single captions."""
    return text.task != CAPTION or text.style in (Style.SHORT, None)


def prepare_shard(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    """Rows for the translator, of images that are no test image."""
    members = image_members(scan_tar(inputs["tar"]), Counter())
    leaks = read_leaks(inputs["leaks"])
    descriptions: dict[str, str] = {}
    if "descriptions" in inputs:
        with parquet_errors(inputs["descriptions"]):
            table = pq.read_table(inputs["descriptions"])
        descriptions = dict(zip(table["key"].to_pylist(), table["text"].to_pylist(), strict=True))
    rows, num_leaked = [], 0
    for name, (text, english) in english_of(read_texts(inputs["texts"], list(members)), settings["task"]).items():
        if text.key in leaks:
            num_leaked += 1
        elif is_short(text):
            rows.append((name, [english], descriptions.get(text.key)))
        else:
            rows.append((name, split_sentences(english, "en"), None))
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    drops = {"of a test image": num_leaked}
    return ShardOutput(pa.table(columns, schema=TO_TRANSLATE), len(rows) + num_leaked, len(rows), drops)


def describe_shard(inputs: dict[str, Any], settings: dict[str, Any]) -> ShardOutput:
    """A description of each picture whose short texts are to be translated."""
    fields = {name: value for name, value in settings.items() if name in DescribeConfig.model_fields}
    config = build_config(DescribeConfig, fields, "describe")
    is_server = config.backend == "server"
    journal = str(Path(settings["output"]).with_suffix(JOURNAL)) if is_server else None
    batch_size = 4 * config.max_in_flight if is_server else config.batch_size
    captioner = load_captioner(config, journal)
    members = image_members(scan_tar(inputs["tar"]), Counter())
    leaks = read_leaks(inputs["leaks"])
    captions: dict[str, str] = {}
    for text in read_texts(inputs["texts"], list(members)):
        if is_short(text) and text.key not in leaks:
            english = text.source or (text.target if text.language == "en" else "")
            captions.setdefault(text.key, english)
    drops: Counter[str] = Counter()
    rows = []
    questions = _questions(inputs["tar"], captions, config, drops)
    while batch := list(itertools.islice(questions, batch_size)):
        for question, answer in zip(batch, captioner.answer(batch), strict=True):
            description = " ".join(f"{question.answer_start}{answer.text}".split())
            if answer.drop is not None or not answer.text.strip():
                drops[answer.drop or "empty description"] += 1
            else:
                rows.append((question.key, description))
    columns = list(zip(*rows, strict=True)) or [(), ()]
    return ShardOutput(
        pa.table(columns, schema=DESCRIPTIONS),
        len(rows) + drops.total(),
        len(rows),
        dict(drops),
        models={"describer": config.model},
        device=config.device,
        extra={"licence": config.licence},
    )


def _questions(tar: Path, captions: dict[str, str], config: DescribeConfig, drops: Counter[str]) -> Iterator[Question]:
    reader = TarReader([tar])
    for key, member in image_members(scan_tar(tar), Counter()).items():
        if key not in captions:
            continue
        prompt = config.prompt
        if config.with_caption and captions[key]:
            prompt += config.alt_text_prompt.format(alt_text=captions[key])
        try:
            image = decode_image(reader.read(0, member.offset, member.length), config.image_size_px)
        except BadSample as error:
            drops[error.reason] += 1
        else:
            yield Question(key, image, prompt, config.answer_start)
