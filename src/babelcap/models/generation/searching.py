"""Greedy and beam search of one sample: which beams go on, which texts are finished, and when nothing better can come.

Token for token what transformers' generate does for a sample alone; a finished text's score is
sum of log p / (number of generated tokens) ** length_penalty. Nothing here knows a model or a tensor.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

UNLIKELY = -1.0e9  # of beams that are copies of the first, before they differ


@dataclass(frozen=True)
class SearchRules:
    num_beams: int
    max_length: int  # of a sequence, with what it was given
    ends: frozenset[int]
    min_length: int = 0
    num_returned: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    no_repeat_ngram_size: int = 0
    forced_first: int | None = None  # right behind a start token
    forced_last: tuple[int, ...] = ()

    @property
    def num_candidates(self) -> int:
        """As many that enough go on even if all of the best end."""
        return self.num_beams * max(2, 1 + len(self.ends)) if self.num_beams > 1 else 1

    def forced(self, length: int) -> tuple[int, ...]:
        """The only tokens possible behind a sequence of this length, where there are such."""
        if self.forced_last and length == self.max_length - 1:
            return self.forced_last
        return (self.forced_first,) if self.forced_first is not None and length == 1 else ()

    def banned(self, tokens: Sequence[int]) -> set[int]:
        """What must not follow these tokens: an end too early, or an n-gram that was there."""
        found = set(self.ends) if len(tokens) < self.min_length else set()
        size = self.no_repeat_ngram_size
        if size and len(tokens) + 1 >= size:
            last = tuple(tokens[len(tokens) - size + 1 :])
            for start in range(len(tokens) - size + 1):
                if tuple(tokens[start : start + size - 1]) == last:
                    found.add(tokens[start + size - 1])
        return found


class Beam(NamedTuple):
    tokens: tuple[int, ...]
    score: float  # sum of log p of what was generated
    parts: tuple[float, ...] = ()  # of each


Options = Sequence[tuple[float, int]]  # log p and token of what may follow a beam, best first


class Search:
    def __init__(self, given: Sequence[int], rules: SearchRules) -> None:
        self.rules, self.num_given = rules, len(given)
        self.running = [Beam(tuple(given), 0.0 if number == 0 else UNLIKELY) for number in range(rules.num_beams)]
        self.finished: list[Beam] = []  # best first; their scores are by length
        self.is_done = False

    @property
    def length(self) -> int:
        return len(self.running[0].tokens)

    def advance(self, options: Iterable[Options]) -> list[int]:
        """One step: the best continuations of all beams become beams. For each new one, the one that it continues."""
        rules, length = self.rules, self.length + 1
        candidates = [
            (beam.score + part, number, part, token)
            for number, (beam, following) in enumerate(zip(self.running, options, strict=True))
            for part, token in following
        ]
        candidates.sort(key=itemgetter(0), reverse=True)  # of equal scores, the first stays first
        going_on: list[tuple[Beam, int]] = []
        ending: list[tuple[Beam, int]] = []
        is_last = length >= rules.max_length
        for place, (score, number, part, token) in enumerate(candidates[: rules.num_candidates]):
            if len(going_on) == rules.num_beams:
                break
            tokens, _, parts = self.running[number]
            beam = Beam((*tokens, token), score, (*parts, part))
            if not is_last and token not in rules.ends:
                going_on.append((beam, number))
                continue
            ending.append((beam._replace(score=score + UNLIKELY), number))
            if place < rules.num_beams:  # the others are there so that enough go on
                self._finish(beam, length)
        kept = (going_on + ending)[: rules.num_beams]  # what ended only stands where nothing else is left
        kept += [kept[-1]] * (rules.num_beams - len(kept))
        self.running = [beam for beam, _ in kept]
        self.is_done = length >= rules.max_length or self._cannot_improve(length)
        return [number for _, number in kept]

    def _finish(self, beam: Beam, length: int) -> None:
        score = beam.score / (length - self.num_given) ** self.rules.length_penalty
        self.finished = sorted([*self.finished, beam._replace(score=score)], key=lambda found: -found.score)
        del self.finished[self.rules.num_beams :]

    def _cannot_improve(self, length: int) -> bool:
        rules = self.rules
        if len(self.finished) < rules.num_beams:
            return False
        if rules.num_beams == 1 or rules.early_stopping is True:
            return True
        is_never = rules.early_stopping == "never" and rules.length_penalty > 0
        num_tokens = (rules.max_length if is_never else length) - self.num_given
        return self.running[0].score / num_tokens**rules.length_penalty <= self.finished[-1].score

    def results(self) -> list[Beam]:
        return self.finished[: self.rules.num_returned]
