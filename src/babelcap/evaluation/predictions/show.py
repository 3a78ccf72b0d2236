"""A page to look at predictions: pictures, references and the answers of several systems side by side, worst first.

One file that loads nothing: small copies of the pictures are in it, each once, up to a bound.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from babelcap.data.feed.images import decode_image
from babelcap.data.inspect.show import inline_picture
from babelcap.errors import BadSample, UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.predictions.folder import (
    ANSWERS,
    CAPTION,
    LOSSES,
    SHUFFLED,
    TRANSLATION,
    AskedItem,
    Prediction,
    read_lines,
)
from babelcap.evaluation.predictions.score import CIDER, read_item_scores
from babelcap.evaluation.tables.rows import label_of, system_labels
from babelcap.pages import render
from babelcap.storage import write_text

MAX_PICTURE_BYTES = 24 * 2**20  # of all pictures of a page
FIDELITY = "fidelity"
SHOWN_METRICS = {CAPTION: CIDER, TRANSLATION: "chrF", LOSSES: "margin"}


@dataclass
class Card:
    """An item with what each system said of it."""

    asked: AskedItem
    benchmark: str
    part: str
    answers: dict[str, dict[str, Any]]  # by system

    @property
    def score(self) -> float | None:
        """The mean over the systems; those that were shown another picture do not count beside others."""
        return self._mean("score")

    @property
    def rank(self) -> tuple[bool, float, float, str]:
        """Lowest first; many captions have a CIDEr of 0, among which chrF tells better from worse."""
        return self.score is None, self.score or 0.0, self._mean("chrf") or 0.0, self.asked.item.id

    def _mean(self, name: str) -> float | None:
        answers = [answer for answer in self.answers.values() if not answer["shuffled"]] or self.answers.values()
        found = [answer[name] for answer in answers if answer[name] is not None]
        return fmean(found) if found else None


def write_page(predictions: Sequence[Prediction], output: str | Path, *, limit: int, image_size_px: int) -> Path:
    path = Path(output)
    path = path if path.suffix == ".html" else path.with_name(f"{path.name}.html")
    cards = collect(predictions)
    if not cards:
        raise UserError("there is no answer yet; predict first")
    systems = list(dict.fromkeys(name for card in cards for name in card.answers))
    shown = worst(cards, limit)
    pictures = inline_pictures((card.asked for card in shown), image_size_px)
    page = render(
        "evaluation/predictions/show.html.jinja",
        num_items=len(cards),
        systems=systems,
        benchmarks=_counted(f"{card.benchmark}, {card.part}" for card in shown),
        languages=_counted(card.asked.item.language for card in shown),
        cards=[_values(card, systems, pictures) for card in shown],
        pictures=pictures,
    )
    write_text(path, page)
    return path


def collect(predictions: Sequence[Prediction]) -> list[Card]:
    """The items of all predictions, each once; also of predictions that are not complete."""
    labels = system_labels(predictions)
    cards: dict[tuple[str, str, str, str], Card] = {}
    for prediction in sorted(predictions, key=lambda one: (label_of(one, labels), one.description.pictures)):
        description = prediction.description
        name = label_of(prediction, labels) + (", pictures shuffled" if description.pictures == SHUFFLED else "")
        scores = read_item_scores(prediction)
        asked = {one.item.id: one for one in prediction.asked}
        for row, _ in read_lines(prediction.folder / ANSWERS):
            if row["id"] in asked:
                one = asked[row["id"]]
                place = (description.benchmark, description.part, row["id"], one.picture_sha256)
                card = cards.setdefault(place, Card(one, description.benchmark, description.part, {}))
                found = scores.get(row["id"], {})
                card.answers[name] = _answer(description.part, row, found, one.item) | {
                    "shuffled": description.pictures == SHUFFLED,
                    "chrf": found.get("chrF"),
                }
    return list(cards.values())


def _answer(part: str, row: Mapping[str, Any], scores: Mapping[str, float], item: Item) -> dict[str, Any]:
    """What is shown of one answer. Its score: CIDEr, chrF, or by how much the right answer is likelier."""
    if part == LOSSES:
        right, wrong = fmean(row["right"]), fmean(row["wrong"])
        verdict = "right" if right < wrong else "tie" if right == wrong else "wrong"
        text = f"{right:.3f} nats a token for the right answer, {wrong:.3f} for the wrong one"
        return {"text": text, "score": wrong - right, "shown": f"{wrong - right:+.3f}", "verdict": verdict}
    metric = SHOWN_METRICS[part]
    score = next((value for name, value in scores.items() if name.partition(" (")[0] == metric), None)
    score = None if score is None else 100 * score if part == CAPTION else score
    is_other = scores.get(FIDELITY) == 0
    verdict = "empty" if not row["text"].strip() else f"not {item.language}" if is_other else ""
    shown = "" if score is None else f"{score:.1f}"
    return {"text": row["text"], "score": score, "shown": shown, "verdict": verdict}


def worst(cards: Sequence[Card], limit: int) -> list[Card]:
    """The lowest scores, in turn from each part of each benchmark, whose scores are of different kinds."""
    groups: dict[tuple[str, str], list[Card]] = {}
    for card in cards:
        groups.setdefault((card.benchmark, card.part), []).append(card)
    ranked = [sorted(group, key=lambda card: card.rank) for group in groups.values()]
    turns = [card for place in range(max(map(len, ranked))) for group in ranked for card in group[place : place + 1]]
    chosen = {id(card) for card in turns[:limit]}
    return [card for group in ranked for card in group if id(card) in chosen]


def inline_pictures(asked: Iterable[AskedItem], size_px: int) -> dict[str, str]:
    """Content -> address of a small copy; none of a picture that cannot be read, or once the page is full."""
    found: dict[str, str] = {}
    num_bytes = 0
    for one in asked:
        if one.picture_sha256 in found or num_bytes > MAX_PICTURE_BYTES:
            continue
        try:
            image = decode_image(one.item.image, size_px)
        except BadSample:
            continue
        image.thumbnail((size_px, size_px))
        found[one.picture_sha256] = inline_picture(image)
        num_bytes += len(found[one.picture_sha256])
    return found


def _values(card: Card, systems: Sequence[str], pictures: Mapping[str, str]) -> dict[str, Any]:
    item = card.asked.item
    return {
        "id": item.id,
        "kind": f"{card.benchmark}, {card.part}",
        "metric": SHOWN_METRICS[card.part],
        "language": item.language,
        "picture": card.asked.picture_sha256 if card.asked.picture_sha256 in pictures else "",
        "source": item.source,
        "references": item.references,
        "contrast": item.contrast,
        "answers": [(name, card.answers[name]) for name in systems if name in card.answers],
        "score": card.score,
        "scores": [card.answers.get(name, {}).get("score") for name in systems],
    }


def _counted(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
