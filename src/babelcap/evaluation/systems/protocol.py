"""What a system under test can do: answer items of a benchmark, and say how likely given answers are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from babelcap.evaluation.benchmarks import Item


@dataclass(frozen=True)
class Answer:
    raw: str  # as generated
    text: str  # what is scored: prompt echoes, special tokens and prefix handled as the system says


class System(Protocol):
    """A thing that it cannot do is a UserError that names the system and the task."""

    @property
    def identity(self) -> Mapping[str, str | int | float | bool | None]:
        """All that decides its answers: name, model hash, prompts, prefix, image size, beams, tokens, dtype, ..."""

    @property
    def batch_size(self) -> int: ...

    def caption(self, items: Sequence[Item]) -> list[Answer]:
        """Of items of one benchmark, a batch, in any mix of languages."""

    def translate(self, items: Sequence[Item]) -> list[Answer]: ...

    def token_losses(self, items: Sequence[Item], answers: Sequence[str]) -> list[list[float]]:
        """Nats of each token of the given answer, first token included."""
