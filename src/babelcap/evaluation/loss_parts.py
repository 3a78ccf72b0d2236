"""A target's tokens taken apart, so that the loss of a sample is the sum of three losses, exactly.

language  the tokens in which the choice of language is made: up to and with the first by which no text of another
          language begins
content   the tokens of words that say what is in the picture, where someone knows them (the world's grammar does)
wording   the rest, the end of the text among them
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from babelcap.measures import PARTS, Part

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONGEST_SHARED_OPENING = 32  # tokens; longer ones are shared by copies only
UNFINISHED = "\ufffd"  # what a decoder writes for the bytes of a character that is not whole yet

Spans = Sequence[tuple[int, int]]  # characters of a text, from and up to
ContentSpans = Callable[[str, str], Spans]  # (text, language) -> where its content is
Openings = set[tuple[int, ...]]  # of token sequences


class LossParts:
    """Says of each token of a target which part of the loss it belongs to."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        targets: Mapping[str, Iterable[Sequence[int]]],
        content_spans: ContentSpans | None = None,
    ) -> None:
        """`targets` are the token ids of texts in every language; without `content_spans` the parts are two."""
        self.tokenizer, self.content_spans = tokenizer, content_spans
        self.openings = {language: _openings(sequences) for language, sequences in targets.items()}

    @property
    def names(self) -> tuple[Part, ...]:
        return PARTS if self.content_spans is not None else ("language", "wording")

    def of(self, ids: Sequence[int], language: str) -> dict[Part, NDArray[np.bool_]]:
        """Part -> which of the tokens are its own. Each token is in one part."""
        places = np.arange(len(ids))
        choosing = places < self._num_choosing(ids, language)
        content = np.zeros(len(ids), dtype=bool)
        if self.content_spans is not None:
            text, ends = token_ends(self.tokenizer, ids)
            spans = self.content_spans(text, language)
            for place, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                content[place] = any(start < upto and begin < end for begin, upto in spans)
        content &= ~choosing
        return {"language": choosing, "content": content, "wording": ~(choosing | content)}

    def _num_choosing(self, ids: Sequence[int], language: str) -> int:
        others = [openings for code, openings in self.openings.items() if code != language]
        for length in range(1, min(len(ids), LONGEST_SHARED_OPENING) + 1):
            if not any(tuple(ids[:length]) in openings for openings in others):
                return length
        return min(len(ids), LONGEST_SHARED_OPENING)


def _openings(sequences: Iterable[Sequence[int]]) -> Openings:
    return {tuple(ids[:length]) for ids in sequences for length in range(1, min(len(ids), LONGEST_SHARED_OPENING) + 1)}


def token_ends(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> tuple[str, list[int]]:
    """The text of these tokens, and where in it each token ends.

    By decoding ever more of them: that holds for every tokenizer, whatever it does to spaces. A character that takes
    several tokens belongs to the last of them.
    """
    text = _decode(tokenizer, ids)
    ends = [min(len(_decode(tokenizer, ids[: place + 1]).rstrip(UNFINISHED)), len(text)) for place in range(len(ids))]
    return text, ends


def _decode(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text
