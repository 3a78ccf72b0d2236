"""Captions of photographs, measured: language, retrieval, and closeness to what people wrote in German and French.

own        of the photograph itself             shuffled   the same captions, each judged as if of the next photograph
human      a person's caption, judged in the captioner's place: what the measure gives to one who has seen the picture
Intervals are over photographs. A caption starts with its language's prefix, which is no part of what is judged.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from babelcap.data.importers.multi30k import Text, load_texts
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.evaluation.metrics.conventions import convention_cider
from babelcap.evaluation.metrics.fidelity import language_fidelity
from babelcap.evaluation.metrics.retrieval import RidgeMap, Vectors, fit_ridge, ranks, recall_at
from babelcap.evaluation.metrics.sacre import chrf, sacre_bleu
from babelcap.evaluation.metrics.score import Score
from babelcap.evaluation.metrics.sentence_space import NAME, sentence_vectors
from babelcap.languages import PrefixMode
from babelcap.models.generation.core import GenerationCore
from babelcap.models.generation.requests import GenerationRequest, GenerationSettings
from babelcap.storage import read_json_lines, read_text, write_text

RECALLS = (1, 10)
NUM_FITTED = 400  # photographs that the map is fitted on, of which only what people wrote is needed
HUMAN, OWN, SHUFFLED = "human", "own", "shuffled"


class Measured(NamedTuple):
    language: str
    who: str  # own, shuffled or human
    score: Score

    def values(self) -> dict[str, object]:
        low, high = self.score.interval()
        return {"language": self.language, "who": self.who, **self.score.record(), "low": low, "high": high}


@dataclass(frozen=True)
class PhotographTexts:
    """What people wrote: of the photographs that are measured, and of others, to fit the map on."""

    folder: Path  # Multi30K's data
    keys: tuple[str, ...]  # of the measured photographs
    at_hand: frozenset[str]  # of all photographs of the corpus: the map is fitted on none of them

    def captions(self, key: str, language: str) -> list[str]:
        return [text.target for text in self._texts(key) if text.language == language and text.source is None]

    def sentence(self, key: str, language: str) -> str | None:
        """Task 1's, a translation of one of the English captions."""
        return next((t.target for t in self._texts(key) if t.language == language and t.source is not None), None)

    def _texts(self, key: str) -> list[Text]:
        found = load_texts(self.folder)
        if key not in found:
            raise UserError(f"{self.folder}: has no texts of photograph {key}")
        return found[key][1]

    @cached_property
    def outside(self) -> list[str]:
        """Photographs with captions that are not at hand, the same ones always."""
        known = load_texts(self.folder)
        others = [key for key in known if key not in self.at_hand and self.captions(key, "de")]
        if len(others) < NUM_FITTED:
            raise UserError(f"{self.folder}: has texts of {len(others)} other photographs; {NUM_FITTED} are needed")
        return others[:: len(others) // NUM_FITTED][:NUM_FITTED]

    def fit(self) -> RidgeMap:
        """From a caption in English, German or French to the photograph, as the other English captions tell it."""
        inputs, outputs = [], []
        for key in self.outside:
            first, *others = self.captions(key, "en")
            known = [first, self.captions(key, "de")[0], self.sentence(key, "fr")]
            said = [text for text in known if text]
            inputs += said
            outputs += [others] * len(said)
        return fit_ridge(sentence_vectors(inputs), _means(outputs))

    def photographs(self) -> Vectors:
        return _means([self.captions(key, "en") for key in self.keys])


def _means(texts: Sequence[Sequence[str]]) -> Vectors:
    """The mean vector of each list; equal lists are embedded once."""
    different = list(dict.fromkeys(tuple(some) for some in texts))
    flat = sentence_vectors([text for some in different for text in some])
    ends = np.cumsum([len(some) for some in different])
    found = dict(zip(different, (part.mean(axis=0) for part in np.split(flat, ends[:-1])), strict=True))
    return np.stack([found[tuple(some)] for some in texts])


def split_keys(index: CorpusIndex, split: str) -> dict[str, int]:
    """key -> number of the photographs of a split, in storage order."""
    return {index.key(number): number for number in index.images(split)}


def all_keys(corpus: Corpus) -> frozenset[str]:
    return frozenset(row.key for split in corpus.splits for row in corpus.rows(split))


def caption_photographs(
    core: GenerationCore,
    index: CorpusIndex,
    keys: Mapping[str, int],
    languages: Sequence[str],
    settings: GenerationSettings,
    prefix: PrefixMode = "always",
    batch_size: int = 32,
    prefix_texts: Mapping[str, str] | None = None,
    allowed_tokens: Sequence[int] | None = None,
) -> dict[str, dict[str, str]]:
    """language -> key -> caption without its prefix; `prefix_texts` of a language stand in for the captioner's own."""
    others = prefix_texts or {}
    found: dict[str, dict[str, str]] = {code: {} for code in languages}
    requests = (
        GenerationRequest(
            code,
            image=index.read_image(number),
            key=key,
            prefix=prefix,
            prefix_text=others.get(code),
            allowed_tokens=allowed_tokens,
            settings=settings,
        )
        for key, number in keys.items()
        for code in languages
    )
    for result in core.generate(requests, batch_size=batch_size):
        found[result.request.language][result.request.key] = result.texts[0].without_prefix.strip()
    return found


CAPTION_FIELDS = ("key", "language", "text")


class KeptCaptions:
    """Captions by language and key, kept in a file as they come, behind a line that says how they were asked for."""

    def __init__(self, path: Path | None, asked: Mapping[str, object]) -> None:
        self.path = path
        self.said: dict[str, dict[str, str]] = defaultdict(dict)
        if path is None:
            return
        if not path.exists():
            write_text(path, json.dumps(asked, ensure_ascii=False) + "\n")
            return
        lines = list(read_json_lines(path))
        if not lines or lines[0].value != asked:
            first = lines[0].value if lines else "nothing"
            raise UserError(f"{path}: has captions that were asked for otherwise ({first}); name another file")
        for number, line, error in lines[1:]:
            is_caption = isinstance(line, dict) and all(isinstance(line.get(name), str) for name in CAPTION_FIELDS)
            if error is not None or not is_caption:
                raise UserError(f"{path}: line {number} is no caption that was kept; remove it, or name another file")
            self.said[line["language"]][line["key"]] = line["text"]

    def add(self, said: Mapping[str, Mapping[str, str]]) -> None:
        """By language and key."""
        rows = [
            {"key": key, "language": code, "text": text} for code, some in said.items() for key, text in some.items()
        ]
        for row in rows:
            self.said[row["language"]][row["key"]] = row["text"]
        if self.path is not None:
            new = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
            write_text(self.path, read_text(self.path) + new)


class Places:
    """Where a caption's own photograph stands among all; the map is fitted once."""

    def __init__(self, texts: PhotographTexts) -> None:
        self.ridge = texts.fit()
        self.photographs = texts.photographs() - self.ridge.photograph_mean

    def of(self, said: Sequence[str]) -> NDArray[np.int64]:
        """Of one caption for each photograph, in their order; 1 is the first."""
        return ranks(self.ridge(sentence_vectors(said)), self.photographs)


def measure_captions(captions: Mapping[str, Mapping[str, str]], texts: PhotographTexts) -> list[Measured]:
    """`captions` are by language and key, of all photographs that `texts` names."""
    places = Places(texts)
    measured = []
    for language, of_language in captions.items():
        said = [of_language[key] for key in texts.keys]
        measured += _retrieved(language, OWN, said, texts.keys, places)
        measured += _retrieved(language, SHUFFLED, [*said[1:], *said[:1]], texts.keys, places)
        measured.append(Measured(language, OWN, language_fidelity(dict(of_language), language).outputs))
        measured += _against_people(language, dict(zip(texts.keys, said, strict=True)), texts)
        human = [_human(texts, key, language) for key in texts.keys]
        if all(human):
            measured += _retrieved(language, HUMAN, [text or "" for text in human], texts.keys, places)
    return measured


def _human(texts: PhotographTexts, key: str, language: str) -> str | None:
    """A caption of a person; in English there are others beside it, which stand for the photograph with it."""
    found = texts.captions(key, language)
    return found[0] if found else texts.sentence(key, language)


def _retrieved(language: str, who: str, said: Sequence[str], keys: Sequence[str], places: "Places") -> list[Measured]:
    found = places.of(said)
    choices = {"space": NAME, "lang": language, "among": len(keys), "fitted": NUM_FITTED}
    return [Measured(language, who, recall_at(k, keys, found, choices)) for k in RECALLS]


def _against_people(language: str, said: dict[str, str], texts: PhotographTexts) -> list[Measured]:
    """Where people wrote in the language; of five captions the first is a human's attempt, judged by the others."""
    captions = {key: texts.captions(key, language) for key in texts.keys}
    if all(len(found) > 1 for found in captions.values()):
        references = {key: found[1:] for key, found in captions.items()}
        human = {key: found[0] for key, found in captions.items()}
    else:
        sentences = {key: texts.sentence(key, language) for key in texts.keys}
        if not all(sentences.values()):
            return []
        references, human = {key: [text or ""] for key, text in sentences.items()}, {}
    found = []
    for who, hypotheses in ((OWN, said), (HUMAN, human)):
        if hypotheses:
            scores = (
                chrf(references, hypotheses),
                sacre_bleu(references, hypotheses, language),
                convention_cider(references, hypotheses, language, "divided"),
            )
            found += [Measured(language, who, score) for score in scores]
    return found
