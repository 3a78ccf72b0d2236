"""The corpus card: what an export says of itself, as the README.md that dataset hubs show.

Counts are those of the exported files, so that a split or a licence that was left out is not counted.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from babelcap.coverage import Coverage, Pair
from babelcap.data.importers.webdataset import annotations_beside
from babelcap.data.inspect.stats import annotation_fields
from babelcap.data.store.format import read_batches
from babelcap.data.store.licences import LICENCES, MADE_OF, NOT_SAID, licence_of
from babelcap.data.store.store import Corpus
from babelcap.errors import one_line
from babelcap.storage import read_text, write_text

CARD_FILE = "README.md"
WRITTEN_BY = "Written by `babelcap data export`; remove this line to keep what you change."
# Under which terms the makers of well-known sources publish them, to our knowledge; by a word of their names.
# What is not stated by its makers is called so: a guess here would be read as permission.
KNOWN_TERMS = {
    "cc12m": "Conceptual 12M: links and texts for any purpose, Google asks to be acknowledged; images belong to their "
    "owners",
    "ccmatrix": "CCMatrix: no licence is stated; texts of the web through Common Crawl, under its terms of use; texts "
    "belong to their authors",
    "llava": "LLaVA-NeXT: the licence of its language model (Mistral: Apache-2.0; Vicuna and Llama 3: Meta's community "
    "licences); it was trained on data for research, some of which GPT-4 wrote under OpenAI's terms",
    "nllb": "NLLB-200: CC BY-NC 4.0 (no commercial use)",
    "gemma": "Gemma: Gemma Terms of Use with its prohibited use policy, for models derived from it too",
    "florence": "Florence-2: MIT",
    "tatoeba": "Tatoeba: CC BY 2.0 FR, authors to be named (some sentences CC0)",
    "flickr30k": "Flickr30k: for research and teaching, not for commercial use; images under Flickr's terms",
    "multi30k": "Multi30K: texts for research; images are Flickr30k's, for research, under Flickr's terms",
    "coco": "COCO: annotations CC BY 4.0; images under Flickr's terms",
    "docci": "DOCCI: CC BY 4.0",
}


class Counts:
    """Images, texts by pair, and texts by who made them, of the files that were exported."""

    def __init__(self) -> None:
        self.images: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.origins: Counter[str] = Counter()

    def add(self, path: Path, split: str) -> None:
        for batch in read_batches(path, ["annotations"], 4096):
            self.images[split] += batch.num_rows
            fields = annotation_fields(batch)
            pairs = pc.binary_join_element_wise(fields["task"], fields["language"], "-")
            self.pairs.update({(split, pair): number for pair, number in _counted(pairs)})
            self.origins.update(dict(_counted(fields["origin"].fill_null(""))))


def _counted(values: pa.Array) -> list[tuple[str, int]]:
    return [(row["values"], row["counts"]) for row in values.value_counts().to_pylist()]


def write_corpus_card(corpus: Corpus, folder: Path) -> None:
    """Of all splits that are in the folder. A card without our line is its author's, and stays."""
    path = folder / CARD_FILE
    if path.is_file() and WRITTEN_BY not in read_text(path):
        return
    counts = Counts()
    for split in corpus.splits:
        for shard in corpus.manifest.shards:
            texts = annotations_beside(folder / split / f"{split}-{shard.tar}")
            if texts.is_file():
                counts.add(texts, split)
    write_text(path, corpus_card(corpus, counts, folder.name))


def corpus_card(corpus: Corpus, counts: Counts, name: str) -> str:
    coverage = corpus.coverage
    used = {pair.partition("-")[2] for _, pair in counts.pairs}
    languages = [language for language in coverage.languages if language.code in used]
    source = str(corpus.manifest.provenance.get("source", "not said"))
    lines = [
        "---",
        f"language: [{', '.join(language.code for language in languages)}]",
        "task_categories: [image-to-text, translation]",
        "license: other",
        "---",
        f"# {_plain(name)}",
        "",
        "Images with captions and image-aligned translations, as webdataset tars (`KEY.jpg`, `KEY.json`), for training",
        "captioners in languages in which they see translations only. Made with babelcap.",
        "",
        f"- Source: {_plain(source)}",
        f"- Images: {', '.join(f'{split} {number:,}' for split, number in counts.images.items()) or 'none'}",
        f"- Languages: {', '.join(f'{language.name} ({language.code})' for language in languages) or 'none'}",
        f"- Seen in training: {_listed(coverage.seen_pairs)}",
        f"- The hole (no text of it is in the training split): {_listed(coverage.hole)}",
        f"- Contents: `{corpus.content_hash}`",
        "",
        *_table(["split", "pair", "texts"], _pairs(counts, coverage)),
        "",
        "## Who made the texts, and licences",
        "",
        *_table(["made by", "texts", "licence"], _origins(corpus, counts)),
        "",
        *(f"- {terms}" for terms in known_terms(corpus, counts)),
        "",
        "This is what the corpus says, and what the makers of well-known sources publish to our knowledge. Check it",
        "before you hand the corpus on. Images and texts of others keep their own terms.",
        "",
        WRITTEN_BY,
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def known_terms(corpus: Corpus, counts: Counts) -> list[str]:
    """Of the sources that the corpus names, as its source or as who made a text."""
    licences = corpus.manifest.provenance.get(LICENCES)
    names = [str(corpus.manifest.provenance.get("source", "")), *counts.origins, *(licences or ())]
    text = " ".join(names).lower()
    return [terms for word, terms in KNOWN_TERMS.items() if word in text]


def _origins(corpus: Corpus, counts: Counts) -> list[list[str]]:
    together: Counter[str] = Counter()
    for origin, number in counts.origins.items():
        together[origin.removesuffix(MADE_OF)] += number
    return [
        [_plain(origin) or NOT_SAID, f"{number:,}", _plain(licence_of(origin, corpus.manifest))]
        for origin, number in sorted(together.items())
    ]


def _pairs(counts: Counts, coverage: Coverage) -> list[list[str]]:
    place = {str(pair): number for number, pair in enumerate(coverage.all_pairs)}
    splits = list(counts.images)
    order = sorted(counts.pairs, key=lambda key: (splits.index(key[0]), place.get(key[1], len(place)), key[1]))
    return [[_plain(split), pair, f"{counts.pairs[split, pair]:,}"] for split, pair in order]


def _table(names: list[str], rows: Iterable[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *rows)]


def _plain(text: str) -> str:
    """Names of others as text: neither Markdown's tables nor HTML."""
    return one_line(text).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def _listed(pairs: Iterable[Pair]) -> str:
    return ", ".join(map(str, pairs)) or "nothing"
