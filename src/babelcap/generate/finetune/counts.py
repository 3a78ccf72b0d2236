"""How many texts: what the paper states, what its code implies, what a configuration asks for, and what was built.

The paper's table and its code differ: the code also translates COCO's captions into five languages, Multi30K's into
German, and uses COCO, Image Paragraphs and DOCCI as translation pairs.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from babelcap.coverage import CAPTION, TRANSLATION
from babelcap.data.store.manifest import MANIFEST
from babelcap.data.store.store import Corpus
from babelcap.generate.finetune.config import FinetuneConfig
from babelcap.generate.finetune.rows import TRANSLATED
from babelcap.measures import TRAIN

PEOPLE, MACHINE = "people", "machine"
OTHERS = ("de", "fr", "es", "ru", "zh")
# As distributed, for training: format -> task, language -> texts of people
WRITTEN: dict[str, dict[tuple[str, str], int]] = {
    "coco": {(CAPTION, "en"): 566_435},
    "multi30k": {
        (CAPTION, "en"): 145_000,
        (CAPTION, "de"): 145_000,
        (TRANSLATION, "de"): 29_000,
        (TRANSLATION, "fr"): 29_000,
    },
    "image_paragraphs": {(CAPTION, "en"): 14_579},
    "docci": {(CAPTION, "en"): 9_647},
}
# format -> languages that its captions are translated into, and whether they are translation pairs too
PAPER = {"coco": ((), False), "multi30k": (OTHERS[1:], False), "image_paragraphs": (OTHERS, False),
         "docci": (OTHERS, False)}  # fmt: skip
CODE = {"coco": (OTHERS, True), "multi30k": (OTHERS, False), "image_paragraphs": (OTHERS, True),
        "docci": (OTHERS, True)}  # fmt: skip
COLUMNS = ("paper", "code", "configured", "built")


class Count(NamedTuple):
    source: str
    task: str
    language: str
    by: str  # PEOPLE or MACHINE
    paper: int | None = None
    code: int | None = None
    configured: int | None = None
    built: int | None = None


Numbers = dict[tuple[str, str, str], int]  # task, language, by -> texts


def asked(kind: str, captions_into: tuple[str, ...], as_pairs: bool) -> Numbers:
    """Texts of a source as distributed, with what is made of them."""
    written = WRITTEN[kind]
    numbers: Numbers = {(*pair, PEOPLE): number for pair, number in written.items()}
    english = written[CAPTION, "en"]
    for language in captions_into:
        numbers[CAPTION, language, MACHINE] = english
        if as_pairs:
            numbers[TRANSLATION, language, MACHINE] = english
    has_pairs = [language for task, language in written if task == TRANSLATION]
    for language in OTHERS if has_pairs else ():
        if language not in has_pairs:
            sentences = written[TRANSLATION, has_pairs[0]]
            numbers[TRANSLATION, language, MACHINE] = numbers.get((TRANSLATION, language, MACHINE), 0) + sentences
    return numbers


def counts(config: FinetuneConfig) -> list[Count]:
    """A row for each source, task, language and whether people or a machine made it; None where nobody knows."""
    built = built_counts(config)
    rows: list[Count] = []
    for name, source in config.sources.items():
        known = source.format in WRITTEN
        paper = asked(source.format, *PAPER[source.format]) if known else {}
        code = asked(source.format, *CODE[source.format]) if known else {}
        configured: Numbers = {}
        if known:
            lacking = tuple(code for code in OTHERS if (CAPTION, code) not in WRITTEN[source.format])
            into = lacking if source.captions_into is None else source.captions_into
            configured = asked(source.format, into, source.captions_as_pairs)
        of_source = built.get(name, {})
        order = {code: place for place, code in enumerate(("en", *OTHERS))}
        found = dict.fromkeys([*paper, *code, *configured, *of_source])
        for task, language, by in sorted(found, key=lambda key: (key[0], key[2] != PEOPLE, order.get(key[1], 99))):
            key = (task, language, by)
            rows.append(
                Count(
                    name, task, language, by,
                    paper.get(key, 0) if known else None,
                    code.get(key, 0) if known else None,
                    configured.get(key, 0) if known else None,
                    of_source.get(key, 0) if built else None,
                )
            )  # fmt: skip
    return rows


def totals(rows: list[Count]) -> dict[str, dict[str, int | None]]:
    """task -> column -> texts; None where no row knows."""
    return {task: dict(_sums([row for row in rows if row.task == task])) for task in (CAPTION, TRANSLATION)}


def _sums(rows: list[Count]) -> Iterator[tuple[str, int | None]]:
    for column in COLUMNS:
        known = [number for row in rows if (number := getattr(row, column)) is not None]
        yield column, sum(known) if known else None


def built_counts(config: FinetuneConfig) -> dict[str, Numbers]:
    """Of the finished corpus, by what its annotations say of their origin; nothing where there is none."""
    if not (config.output / MANIFEST).is_file():
        return {}
    corpus = Corpus.open(config.output)
    found: dict[str, Counter[tuple[str, str, str]]] = {name: Counter() for name in config.sources}
    for row in corpus.rows(TRAIN) if TRAIN in corpus.splits else ():
        for entry in row.annotations:
            origin, mark, _ = entry.origin.partition(TRANSLATED)
            name = origin.partition("/")[0]
            if name in found:
                found[name][entry.task, entry.language, MACHINE if mark else PEOPLE] += 1
    return {name: dict(numbers) for name, numbers in found.items()}
