"""Scores of complete predictions, by language: each with signature, interval, number of items and of empty answers.

What cannot be computed here (a jar, a model, an environment that is not there) is skipped, and one line says why.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.benchmarks.commute import pair_numbers
from babelcap.evaluation.benchmarks.xm3600 import RAW, read_xm3600
from babelcap.evaluation.metrics import (
    Score,
    chrf,
    coco_scores,
    contrastive_accuracy,
    convention_cider,
    gated,
    language_fidelity,
    sacre_bleu,
)
from babelcap.evaluation.metrics.clipscore import ClipSettings, clip_score
from babelcap.evaluation.metrics.comet import comet
from babelcap.evaluation.metrics.conventions import CONVENTIONS, WITHOUT_SPACES
from babelcap.evaluation.metrics.meteor import meteor
from babelcap.evaluation.metrics.score import Items
from babelcap.evaluation.predictions.folder import (
    ANSWERS,
    CAPTION,
    ITEM_SCORES,
    LOSSES,
    SCORES,
    TRANSLATION,
    Prediction,
    answer_lines,
)
from babelcap.jobs.progress import progress
from babelcap.storage import file_sha256, read_json_lines, read_json_object, sealed, unsealed, write_json, write_text

XM3600 = "xm3600"
# Benchmarks whose CIDEr is by named conventions, in the place of that of the COCO tools.
CONVENTIONS_OF = {XM3600: ("stanza", "ptb-raw", "spacy", "tokenized"), "world-captioning": ("divided",)}
CIDER = "CIDEr"
References = Mapping[str, Sequence[str]]
Texts = Mapping[str, str]


@dataclass(frozen=True)
class ScoreOptions:
    """Where optional metrics find what they need; without, they are skipped."""

    comet: Path | None = None  # else BABELCAP_COMET
    meteor_jar: Path | None = None  # else BABELCAP_METEOR_JAR
    clip: Path | None = None
    clip_text: Path | None = None  # M-CLIP, for languages other than English
    device: str = "cpu"


@dataclass
class Scored:
    """What was computed of one prediction, and what was not."""

    records: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    per_item: dict[str, dict[str, float]] = field(default_factory=dict)

    def add(self, language: str, score: Score, name: str | None = None) -> None:
        low, high = score.interval()
        self.records.append(
            {"language": language, **score.record(), "name": name or score.name, "low": low, "high": high}
        )
        for key, value in score.per_item.items():
            self.per_item.setdefault(key, {})[name or score.name] = value

    def skip(self, reason: str) -> None:
        if reason not in self.skipped:
            self.skipped.append(reason)


Named = Iterator[tuple[Score, str | None]]  # with the name it goes by, where that is not its own


@dataclass(frozen=True)
class Group:
    """The items of one language, with what was answered."""

    language: str
    items: Mapping[str, Item]
    answers: Mapping[str, dict[str, Any]]
    prediction: Prediction
    options: ScoreOptions

    @property
    def references(self) -> References:
        return {key: item.references for key, item in self.items.items()}

    @property
    def texts(self) -> Texts:
        return {key: str(row["text"]) for key, row in self.answers.items()}


def score_predictions(
    predictions: Sequence[Prediction], options: ScoreOptions, on_incomplete: Callable[[str], None]
) -> list[tuple[Prediction, Scored]]:
    """Scores the complete ones and writes what it found beside each; of others a line goes to `on_incomplete`."""
    found = []
    with progress("scoring", len(predictions)) as advance:
        for prediction in predictions:
            try:
                answers = prediction.answers()
            except UserError as error:
                on_incomplete(str(error))
            else:
                found.append((prediction, _write(prediction, score_prediction(prediction, answers, options))))
            advance(1)
    return found


def score_prediction(prediction: Prediction, answers: Mapping[str, dict[str, Any]], options: ScoreOptions) -> Scored:
    scored = Scored()
    metrics = METRICS[prediction.description.part]
    for language in dict.fromkeys(item.language for item in prediction.items.values()):
        items = {key: item for key, item in prediction.items.items() if item.language == language}
        group = Group(language, items, {key: answers[key] for key in items}, prediction, options)
        for metric in metrics:
            try:
                for score, name in metric(group):
                    scored.add(language, score, name)
            except UserError as error:
                scored.skip(str(error))
    return scored


def _write(prediction: Prediction, scored: Scored) -> Scored:
    lines = ({"id": key, "scores": scored.per_item.get(key, {})} for key in prediction.items)  # not those of pairs
    write_text(prediction.folder / ITEM_SCORES, answer_lines(lines))
    values = {
        "prediction": prediction.description.hash,
        "answers_sha256": file_sha256(prediction.folder / ANSWERS),
        "item_scores_sha256": file_sha256(prediction.folder / ITEM_SCORES),
        "scores": scored.records,
        "skipped": scored.skipped,
    }
    write_json(prediction.folder / SCORES, sealed(values))
    return scored


def _read(prediction: Prediction) -> dict[str, Any]:
    """What was written with the scores, as long as it is whole and of the answers that are there."""
    path, again = prediction.folder / SCORES, f"run `babelcap eval score {prediction.folder.parent}`"
    if not path.is_file():
        raise UserError(f"{prediction.folder} is not scored; {again}")
    values = unsealed(read_json_object(path), path, advice=again)
    for name, of_what in ((ANSWERS, "answers"), (ITEM_SCORES, "item_scores")):
        file = prediction.folder / name
        if not file.is_file() or values.get(f"{of_what}_sha256") != file_sha256(file):
            raise UserError(f"{path} is of other {of_what.replace('_', ' ')}; {again}")
    return values


def read_scores(prediction: Prediction) -> list[dict[str, Any]]:
    """The records of a prediction; one line where it was not scored, or scored before its answers changed."""
    records: list[dict[str, Any]] = _read(prediction)["scores"]
    return records


def read_item_scores(prediction: Prediction) -> dict[str, dict[str, float]]:
    """Item -> its scores; nothing of a prediction that was not scored."""
    rows = [line.value for line in read_json_lines(prediction.folder / ITEM_SCORES)] if is_scored(prediction) else []
    return {row["id"]: row["scores"] for row in rows}


def is_scored(prediction: Prediction) -> bool:
    try:
        return bool(read_scores(prediction))
    except UserError:
        return False


def _coco(group: Group) -> Named:
    """Of languages without spaces CIDEr alone: a sentence is one Penn Treebank token there, and has no n-grams."""
    has_convention = group.prediction.description.benchmark in CONVENTIONS_OF
    for score in coco_scores(group.references, group.texts).values():
        if not has_convention if score.name == CIDER else group.language not in WITHOUT_SPACES:
            yield score, None


def _gated_cider(group: Group) -> Named:
    if group.prediction.description.benchmark not in CONVENTIONS_OF:
        yield gated(_cider, group.references, group.texts, group.language), None


def _cider(references: References, texts: Texts) -> Score:
    return coco_scores(references, texts)[CIDER]


@lru_cache(maxsize=1)
def _xm3600(root: str, source: str) -> References:
    return {item.id: item.references for item in read_xm3600(Path(root), field=source)}


def _by_convention(convention: str) -> Callable[[Group], Named]:
    """CIDEr and its gated one. XM3600's references are of the convention's field, which lies in the benchmark."""

    def scores(group: Group) -> Named:
        if convention not in CONVENTIONS_OF.get(group.prediction.description.benchmark, ()):
            return
        references, source = group.references, CONVENTIONS[convention].field
        if source != RAW:
            found = _xm3600(str(group.prediction.description.given["data"]), source)
            if missing := [key for key in references if key not in found]:
                raise UserError(f"{CIDER} ({convention}): '{missing[0]}' has no {source} ({len(missing)} have none)")
            references = {key: found[key] for key in references}
        scorer = partial(convention_cider, language=group.language, name=convention)
        yield scorer(references, group.texts), f"{CIDER} ({convention})"
        yield gated(scorer, references, group.texts, group.language), f"gated {CIDER} ({convention})"

    return scores


def _chrf(group: Group) -> Named:
    yield chrf(group.references, group.texts), None
    yield gated(chrf, group.references, group.texts, group.language), None


def _fidelity(group: Group) -> Named:
    found = language_fidelity(group.texts, group.language, group.references)
    yield found.outputs, None
    if found.references is not None:
        yield found.references, None


def _bleu(group: Group) -> Named:
    yield sacre_bleu(group.references, group.texts, group.language), None


def _meteor(group: Group) -> Named:
    yield meteor(group.references, group.texts, group.language, group.options.meteor_jar), None


def _comet(group: Group) -> Named:
    sources = {key: item.source or "" for key, item in group.items.items()}
    yield comet(sources, group.references, group.texts, group.options.comet), None


def _clip(group: Group) -> Named:
    options = group.options
    if options.clip is None:
        raise UserError("CLIPScore: no model; give --clip FOLDER of a CLIP saved by transformers")
    if group.language != "en" and options.clip_text is None:
        raise UserError("multilingual CLIPScore: no text model; give --clip-text FOLDER of M-CLIP")
    text_model = None if group.language == "en" else options.clip_text
    settings = ClipSettings(options.clip, text_model, device=options.device)
    yield clip_score({key: item.image for key, item in group.items.items()}, group.texts, settings), None


def _contrastive(group: Group) -> Named:
    right, wrong = ({key: row[side] for key, row in group.answers.items()} for side in ("right", "wrong"))
    pairs = pair_numbers(len(right)) if len(right) % 2 == 0 else None
    found = contrastive_accuracy(right, wrong, pairs)
    yield found.items, None
    if found.pairs is not None:
        yield found.pairs, None
    tied = Items(tuple(right), np.array([float(key in found.ties) for key in right]))
    yield Score("ties", found.items.signature.replace("accuracy", "ties", 1), tied), None


_CONVENTIONS = tuple(_by_convention(name) for name in CONVENTIONS)
METRICS: dict[str, tuple[Callable[[Group], Named], ...]] = {
    CAPTION: (_coco, *_CONVENTIONS, _chrf, _fidelity, _gated_cider, _meteor, _clip),
    TRANSLATION: (_bleu, _chrf, _fidelity, _meteor, _comet),
    LOSSES: (_contrastive,),
}
