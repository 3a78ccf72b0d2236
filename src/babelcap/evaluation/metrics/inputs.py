"""References and hypotheses, checked once for all metrics: one orientation, [item][reference], and the same items."""

from collections.abc import Iterable, Mapping, Sequence

from babelcap.errors import UserError


def check_items(references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, str]) -> tuple[str, ...]:
    """The ids, in the references' order. Every item has a hypothesis and at least one reference, and no other has."""
    if not references:
        raise UserError("references: found 0 items; there is nothing to score")
    missing = [key for key in references if key not in hypotheses]
    unknown = [key for key in hypotheses if key not in references]
    if missing or unknown:
        example = f"'{missing[0]}' has no hypothesis" if missing else f"'{unknown[0]}' has no references"
        raise UserError(
            f"found references for {len(references)} items and hypotheses for {len(hypotheses)}; {example}; "
            "give one hypothesis for each item"
        )
    for key, texts in references.items():
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise UserError(f"references of '{key}': expected a list of texts, found {_kind(texts)}")
        if not len(texts):
            raise UserError(f"references of '{key}': found 0; each of the {len(references)} items needs at least 1")
    wrong = next((key for key, text in hypotheses.items() if not isinstance(text, str)), None)
    if wrong is not None:
        raise UserError(f"hypothesis of '{wrong}': expected one text, found {_kind(hypotheses[wrong])}")
    return tuple(references)


def check_lists(references: Sequence[Sequence[str]], hypotheses: Sequence[str]) -> list[list[str]]:
    """The same for lists: references are [item][reference]; sacreBLEU's [reference][item] is refused where it shows."""
    if len(references) != len(hypotheses):
        turned = " (they look transposed: give [item][reference])" if _transposed(references, len(hypotheses)) else ""
        raise UserError(
            f"found references for {len(references)} items and hypotheses for {len(hypotheses)}{turned}; "
            "give one list of references for each hypothesis"
        )
    keys = [str(number) for number in range(len(hypotheses))]
    named = dict(zip(keys, references, strict=True))
    check_items(named, dict(zip(keys, hypotheses, strict=True)))
    return [list(map(str, texts)) for texts in references]


def check_count(references: Mapping[str, Sequence[str]], num_references: int) -> None:
    """For a benchmark whose items have the same number of references, all of them."""
    for key, texts in references.items():
        if len(texts) != num_references:
            raise UserError(f"references of '{key}': expected {num_references}, found {len(texts)}")


def count_empty(hypotheses: Iterable[str]) -> int:
    return sum(not text.strip() for text in hypotheses)


def _transposed(references: Sequence[Sequence[str]], num_items: int) -> bool:
    return bool(len(references)) and all(not isinstance(row, str) and len(row) == num_items for row in references)


def _kind(value: object) -> str:
    return f"the text '{value[:30]}'" if isinstance(value, str) else f"a {type(value).__name__}"
