"""Pictures with captions in every language as the page shows them: whole captions, their wrong words marked."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from babelcap.laws.runs import MAIN
from babelcap.measures import Variant
from babelcap.report.gallery_file import ShownCaption, ShownPicture
from babelcap.report.study_folder import KIND_NAMES, Study

SHOWN: dict[Variant, str] = {"prefix": "with prefix", "plain": "prompt alone"}
OTHER_LANGUAGE = "other language"


def picture_cards(study: Study) -> dict[str, Any]:
    kinds = {record.run: record.kind for record in study.records}
    unseen = set(study.unseen_languages)
    shown = [
        caption
        for picture in study.pictures
        for caption in picture.captions
        if kinds.get(caption.run, MAIN) == MAIN and caption.variant == "prefix" and caption.language in unseen
    ]
    judged = [caption for caption in shown if caption.right is not None]
    return {
        "titles": list(SHOWN.values()),
        "num_shown": len(shown),
        "num_judged": len(judged),
        "num_right": sum(caption.right is True for caption in judged),
        "source_language": study.coverage.source_language,
        "pictures": [_card(picture, study, kinds) for picture in study.pictures],
    }


def _card(picture: ShownPicture, study: Study, kinds: Mapping[str, str]) -> dict[str, Any]:
    runs = list(dict.fromkeys(caption.run for caption in picture.captions))
    runs.sort(key=lambda run: kinds.get(run, MAIN) != MAIN)  # stable: main first
    return {
        "key": picture.key,
        "png": picture.png_base64,
        "truth": picture.truth,
        "runs": [
            {
                "name": KIND_NAMES.get(kinds.get(run, MAIN), run),
                "languages": _languages([caption for caption in picture.captions if caption.run == run], study),
            }
            for run in runs
        ],
    }


def _languages(captions: Sequence[ShownCaption], study: Study) -> list[dict[str, Any]]:
    by_place = {(caption.language, caption.variant): caption for caption in captions}
    unseen = set(study.unseen_languages)
    return [
        {
            "code": code,
            "name": study.language_name(code),
            "is_unseen": code in unseen,
            "captions": [_caption(by_place.get((code, variant)), study) for variant in SHOWN],
        }
        for code in study.caption_languages
    ]


def _caption(caption: ShownCaption | None, study: Study) -> dict[str, Any] | None:
    if caption is None:
        return None
    prefix = study.coverage.language(caption.language).prefix if caption.variant == "prefix" else ""
    text = caption.text
    if prefix and caption.marks is None and not text.startswith(prefix):
        text = prefix + text  # as earlier galleries have it: what follows the prefix
    given = prefix if prefix and text.startswith(prefix) else ""
    wrong = [what for _, _, what in caption.marks or ()]
    verdict = "right" if caption.right else ""
    if not caption.language_right:
        verdict = OTHER_LANGUAGE
    elif caption.right is False:
        verdict = "wrong: " + ", ".join(dict.fromkeys(wrong)) if wrong else "not well formed, or nothing named"
    return {"parts": marked_parts(text, len(given), caption.marks or []), "is_right": caption.right, "verdict": verdict}


def marked_parts(text: str, num_given: int, marks: Sequence[tuple[int, int, str]]) -> list[dict[str, str]]:
    """The text cut where its look changes: `given` by the prefix, or wrong in one of the ways that `marks` name.

    Marks may overlap: a word can be of the wrong size and the wrong colour at once.
    """
    spans = [(max(0, start), min(len(text), end), what) for start, end, what in marks]
    edges = sorted({0, len(text), num_given, *(edge for span in spans for edge in span[:2] if edge <= len(text))})
    parts = []
    for start, end in pairwise(edges):
        wrong = list(dict.fromkeys(what for low, high, what in spans if low <= start and end <= high))
        parts.append({"text": text[start:end], "wrong": ", ".join(wrong), "look": "prefix" if end <= num_given else ""})
    return parts
