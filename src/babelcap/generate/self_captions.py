"""Captions in languages that nobody captioned in: the captioner's own, chosen by what people wrote in other languages.

candidates   the best texts of a search for an image and a language, started with the language's prefix
v(text)      by a multilingual encoder of sentences;  h_i  of image i: the mean over what people wrote about it
fit          cos(v, h_i) - mean_j cos(v, h_j): how much more a text says of its image than of any
place        share of the split's other images j with cos(v, h_j) >= cos(v, h_i)

Of the candidates in the right language the one that fits best is kept, where its place is good enough. Trained on
beside people's captions, these teach the captioner what its wording in those languages missed. No text by a person in
these languages is looked at.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from babelcap.coverage import CAPTION, Coverage, Pair, Style
from babelcap.data.importers.assemble import Assembly, assemble_corpus
from babelcap.data.store.format import ImageRow
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus
from babelcap.data.store.tar import TarScan
from babelcap.errors import UserError
from babelcap.generate.backends.sentence_encoder import MODEL, SentenceEncoder
from babelcap.generate.models import model_mark
from babelcap.identification import is_language
from babelcap.jobs.stages import CHECKSUMS
from babelcap.measures import TRAIN
from babelcap.models.checkpoints.weights import require_model, resolve_folder
from babelcap.models.generation.requests import GenerationRequest, GenerationSettings
from babelcap.models.generation.shortlist import build_shortlist
from babelcap.models.inference import CaptionPipeline, load
from babelcap.records import Annotation
from babelcap.storage import RememberedChecksums

ORIGIN = "self-caption"
TEXTS_AT_ONCE = 512
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class SelfCaptionSettings:
    languages: tuple[str, ...]
    split: str = TRAIN
    num_candidates: int = 4  # beams of the search, all of which are judged
    max_new_tokens: int = 32
    max_place: float = 0.02
    guidance_scale: float | None = None  # None: the captioner's own
    quantise: str | None = None
    batch_size: int = 16

    def __post_init__(self) -> None:
        if not self.languages:
            raise UserError("no language given")
        if not 0 < self.max_place <= 1:
            raise UserError(f"max-place is {self.max_place}; it is a share of the images, such as 0.02")


class Candidate(NamedTuple):
    image: int  # its place in the split
    language: str
    text: str


class Judged(NamedTuple):
    fit: float
    place: float


class Judge:
    """Which image a text is of, by the mean vectors of what people wrote about each."""

    def __init__(self, encoder: Any, human: Sequence[Sequence[str]]) -> None:
        """`encoder` has `texts`, which gives vectors of length one."""
        self.encoder = encoder
        flat = self._vectors([text for some in human for text in some])
        ends = np.cumsum([len(some) for some in human])
        means = np.stack([part.mean(axis=0) for part in np.split(flat, ends[:-1])])
        self.images: Vectors = means / np.linalg.norm(means, axis=1, keepdims=True)

    def __call__(self, candidates: Sequence[Candidate]) -> list[Judged]:
        if not candidates:
            return []
        similar = self._vectors([one.text for one in candidates]) @ self.images.T
        own = similar[np.arange(len(candidates)), [one.image for one in candidates]]
        others = max(1, len(self.images) - 1)
        places = ((similar >= own[:, None]).sum(axis=1) - 1) / others
        return [Judged(float(f), float(p)) for f, p in zip(own - similar.mean(axis=1), places, strict=True)]

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        parts = [
            self.encoder.texts(texts[start : start + TEXTS_AT_ONCE]) for start in range(0, len(texts), TEXTS_AT_ONCE)
        ]
        return np.concatenate(parts)


def choose(
    candidates: Sequence[Candidate], judged: Sequence[Judged], max_place: float, skipped: Counter[str]
) -> dict[tuple[int, str], tuple[str, Judged]]:
    """(image, language) -> its best-fitting candidate; those without one are counted by reason."""
    best: dict[tuple[int, str], tuple[str, Judged]] = {}
    asked: dict[tuple[int, str], str] = {}  # why there is none so far
    for candidate, found in zip(candidates, judged, strict=True):
        key = candidate.image, candidate.language
        if not candidate.text.strip() or not is_language(candidate.text, candidate.language):
            asked.setdefault(key, f"self-captions not in {candidate.language}")
        elif found.place > max_place:
            asked[key] = f"self-captions in {candidate.language} that fit other images as well"
        else:
            asked[key] = ""
            if key not in best or found.fit > best[key][1].fit:
                best[key] = candidate.text, found
    skipped.update(reason for key, reason in asked.items() if key not in best)
    return best


@dataclass(frozen=True)
class SelfCaptionMaker:
    """The rows of a corpus with the captioner's own captions beside those of people."""

    corpus: Path
    model: Path
    mark: str  # of the model's contents
    settings: SelfCaptionSettings
    tars: frozenset[str]  # whose images are captioned; the others' rows stay as they are

    def made_from(self, tar: Path) -> dict[str, Any]:
        known: dict[str, Any] = {"maker": "self-captions/1", "corpus": Corpus.open(self.corpus).content_hash}
        return known | ({"model": self.mark, **asdict(self.settings)} if tar.name in self.tars else {})

    def make_rows(self, scan: TarScan, skipped: Counter[str]) -> list[ImageRow]:
        corpus = Corpus.open(self.corpus)
        rows = [
            row for shard in corpus.manifest.shards if shard.tar == scan.path.name for row in corpus.shard_rows(shard)
        ]
        if scan.path.name not in self.tars:
            return rows
        teacher = _teacher(self.corpus, self.model, self.settings)
        wanted = [row.key for row in rows if row.key in teacher.places]
        candidates = teacher.candidates(wanted)
        chosen = choose(candidates, teacher.judge(candidates), self.settings.max_place, skipped)
        origin = f"{ORIGIN}:{self.mark[:40]}"
        made: dict[str, list[Annotation]] = defaultdict(list)
        for (image, language), (text, judged) in chosen.items():
            made[teacher.keys[image]].append(
                Annotation(
                    task=CAPTION, language=language, style=Style.SHORT, target=text, origin=origin, score=judged.fit
                )
            )
        return [row._replace(annotations=(*row.annotations, *made.get(row.key, ()))) for row in rows]


class Teacher:
    """The captioner, what it is asked for, and what people wrote: once a process."""

    def __init__(self, corpus: Path, model: Path, settings: SelfCaptionSettings) -> None:
        self.index, self.settings = CorpusIndex.open(corpus), settings
        human = human_captions(self.index.corpus, settings.split)
        numbers = {self.index.key(number): number for number in self.index.images(settings.split)}
        self.keys = [key for key in numbers if key in human]
        if not self.keys:
            raise UserError(f"{corpus}: no image of split '{settings.split}' has a caption in a seen language")
        self.numbers = [numbers[key] for key in self.keys]
        self.places = {key: place for place, key in enumerate(self.keys)}
        self.judge = Judge(SentenceEncoder(MODEL, None), [human[key] for key in self.keys])
        self.pipeline = load(model, quantise=settings.quantise)
        self.allowed = known_tokens(self.index.corpus, settings.split, self.pipeline)

    def candidates(self, keys: Sequence[str]) -> list[Candidate]:
        settings = self.settings
        found: list[Candidate] = []
        asked = GenerationSettings(
            num_beams=settings.num_candidates,
            num_return_sequences=settings.num_candidates,
            max_new_tokens=settings.max_new_tokens,
            guidance_scale=settings.guidance_scale,
            scores=False,
        )
        requests = (
            GenerationRequest(
                code,
                image=self.index.read_image(self.numbers[self.places[key]]),
                key=key,
                prefix="always",
                allowed_tokens=self.allowed,
                settings=asked,
            )
            for key in keys
            for code in settings.languages
        )
        for result in self.pipeline.generate(requests, batch_size=settings.batch_size, num_processes=1):
            place, code = self.places[result.request.key], result.request.language
            texts = dict.fromkeys(one.text.strip() for one in result.texts)
            found += [Candidate(place, code, text) for text in texts]
        return found


@lru_cache(maxsize=1)
def _teacher(corpus: Path, model: Path, settings: SelfCaptionSettings) -> Teacher:
    return Teacher(corpus, model, settings)


def human_captions(corpus: Corpus, split: str) -> Mapping[str, list[str]]:
    """key -> its captions in seen languages."""
    found = {}
    for row in corpus.rows(split):
        said = [one.target for one in row.annotations if one.task == CAPTION and corpus.coverage.is_seen(one.pair)]
        if said:
            found[row.key] = said
    return found


def known_tokens(corpus: Corpus, split: str, pipeline: CaptionPipeline) -> list[int]:
    """Of all languages' texts: a captioner trained on a head of the corpus' tokens knows no others."""
    tokenizer = pipeline.processor.decoder_tokenizer
    codes = {pair.language for pair in corpus.counts(split)}
    return sorted({token for code in codes for token in build_shortlist(corpus, code, tokenizer, split=split)})


def add_self_captions(
    corpus_folder: Path,
    model: str | Path,
    output: Path,
    settings: SelfCaptionSettings,
    *,
    num_tars: int | None = None,
    num_workers: int = 1,
) -> Corpus:
    """A new corpus on the same tars; images of at most `num_tars` are captioned.

    A stopped call goes on with the tars that are left, and a finished corpus with those that a higher number adds.
    """
    corpus = Corpus.open(corpus_folder)
    coverage = _coverage(corpus.coverage, settings.languages, corpus_folder)
    corpus.num_images(settings.split)
    folder = require_model(resolve_folder(model))
    mark = model_mark(str(folder), RememberedChecksums(folder / CHECKSUMS))
    tars = [corpus.tar_path(shard.tar).resolve() for shard in corpus.manifest.shards]
    maker = SelfCaptionMaker(corpus_folder, folder, mark, settings, frozenset(tar.name for tar in tars[:num_tars]))
    parameters = {"corpus": str(corpus_folder), "model": str(model), **asdict(settings)}
    provenance = {"source": "self-captions", "command": "babelcap data self-caption", "parameters": parameters}
    return assemble_corpus(output, tars, maker, Assembly(provenance, coverage, num_workers))


def _coverage(known: Coverage, languages: Iterable[str], where: Path) -> Coverage:
    """With captions in these languages seen, and no test split of unseen ones that is none any more."""
    new = [str(Pair(CAPTION, known.language(code).code)) for code in languages]
    if there := [pair for pair in new if pair in known.seen]:
        raise UserError(f"{where}: {there[0]} has captions already; ask for languages without any")
    return Coverage.model_validate(known.model_dump() | {"seen": (*known.seen, *new)})
