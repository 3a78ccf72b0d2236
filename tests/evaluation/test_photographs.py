"""Captions of photographs against what people wrote, in a space of sentences that is planted and so known by hand."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from babelcap.coverage import Coverage
from babelcap.data.importers.multi30k import load_texts
from babelcap.errors import UserError
from babelcap.evaluation import photograph_study, photographs
from babelcap.evaluation.photograph_study import measure_photographs
from babelcap.evaluation.photographs import KeptCaptions, PhotographTexts, measure_captions

NUM_OTHERS = 12  # photographs that the map is fitted on
NUM_MEASURED = 20


def planted_vectors(texts: Sequence[str]) -> np.ndarray:
    """A text names a number: its direction among 40, with a shift by language, as real spaces have."""
    vectors = np.zeros((len(texts), 43))
    for row, text in enumerate(texts):
        if text.strip():
            language, number = text.split()[:2]
            vectors[row, int(number) % 40] = 1
            vectors[row, 40 + ("en", "de", "fr").index(language)] = 2
    return vectors


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PhotographTexts:
    load_texts.cache_clear()
    monkeypatch.setattr(photographs, "sentence_vectors", planted_vectors)
    monkeypatch.setattr(photographs, "NUM_FITTED", NUM_OTHERS)
    splits = {"train": range(NUM_OTHERS), "val": range(20, 20 + NUM_MEASURED)}
    for split, numbers in splits.items():
        files = {f"task1/image_splits/{split}.txt": "".join(f"{n}.jpg\n" for n in numbers)}
        files[f"task2/image_splits/{split}_images.txt"] = files[f"task1/image_splits/{split}.txt"]
        for code in ("en", "de", "fr"):
            files[f"task1/raw/{split}.{code}.gz"] = "".join(f"{code} {n} sentence\n" for n in numbers)
            for place in range(1, 6) if code != "fr" else ():
                lines = "".join(f"{code} {n} caption\n" for n in numbers)
                files[f"task2/raw/{split}.{place}.{code}.gz"] = lines
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    keys = tuple(str(number) for number in splits["val"])
    return PhotographTexts(tmp_path, keys, frozenset(keys))


def test_the_map_is_fitted_on_other_photographs(texts: PhotographTexts) -> None:
    assert set(texts.outside) == {str(number) for number in range(NUM_OTHERS)}
    assert set(texts.outside).isdisjoint(texts.keys)


def test_right_captions_find_their_photograph_and_wrong_ones_do_not(
    texts: PhotographTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted map knows 12 directions only; so photographs are given those."""
    monkeypatch.setattr(photographs, "sentence_vectors", lambda some: planted_vectors(_folded(some)))
    keys = texts.keys[:NUM_OTHERS]
    few = PhotographTexts(texts.folder, keys, texts.at_hand)
    captions = {"fr": {key: f"fr {key} légende" for key in keys}, "de": {key: f"de {key} caption" for key in keys}}
    found = {(entry.language, entry.who, entry.score.name): entry.score for entry in measure_captions(captions, few)}
    for language in ("fr", "de"):
        assert found[language, "own", "R@1"].value == 100.0
        assert found[language, "shuffled", "R@1"].value == 0.0
        assert found[language, "human", "R@1"].value == 100.0
    assert found["de", "own", "chrF"].value == pytest.approx(100.0)
    assert found["de", "human", "BLEU"].value >= 0.0
    assert ("fr", "human", "chrF") not in found  # one sentence alone: no second person to judge it by
    values = next(entry for entry in measure_captions(captions, few) if entry.score.name == "R@10").values()
    assert values["low"] <= values["value"] <= values["high"]


def test_measures_of_a_study(texts: PhotographTexts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right captions with the prefix, those of the next photograph without it; half of them in the wrong language."""
    monkeypatch.setattr(photographs, "sentence_vectors", lambda some: planted_vectors(_folded(some)))
    monkeypatch.setattr(photograph_study, "is_language", lambda text, code: text.startswith(code))
    keys = texts.keys[:NUM_OTHERS]
    few = PhotographTexts(texts.folder, keys, texts.at_hand)
    coverage = Coverage(seen=("caption-en", "caption-de"), splits={"UC": ("caption-fr",), "SC": ("caption-de",)})
    right = {code: {key: f"{code} {key} x" for key in keys} for code in ("de", "fr")}
    wrong = {
        code: dict(zip(keys, [*said.values()][1:] + [*said.values()][:1], strict=True)) for code, said in right.items()
    }
    wrong["fr"] |= {key: wrong["fr"][key].replace("fr", "de") for key in keys[::2]}
    results, judged = measure_photographs({"plain": wrong, "prefix": right}, few, coverage)
    found = {result.measure: result for result in results}
    assert found["captions/found_first/prefix"].per_split == {"UC": 1.0, "SC": 1.0, "unseen": 1.0}
    assert found["captions/found_first/plain"].per_split["UC"] == 0.0
    assert found["captions/found_first/chance"].per_split["unseen"] == 0.0
    assert found["captions/language/plain"].per_pair == {"caption-de": 1.0, "caption-fr": 0.5}
    assert found["captions/found/prefix"].num_samples == {"caption-de": len(keys), "caption-fr": len(keys)}
    assert len(judged) == 2 * 2 * len(keys)
    line = json.loads(judged[0].line())
    assert line["key"] == keys[0]
    assert line["score"] == {"right_language": True, "place": judged[0].place}


def test_captions_are_kept_and_not_made_again(tmp_path: Path) -> None:
    path, asked = tmp_path / "captions.jsonl", {"model": "photos", "prefix": "always"}
    KeptCaptions(path, asked).add({"fr": {"1": "un chien"}, "zh": {"1": "一只狗"}})
    again = KeptCaptions(path, asked)
    assert again.said == {"fr": {"1": "un chien"}, "zh": {"1": "一只狗"}}
    again.add({"fr": {"2": "un chat"}})
    assert KeptCaptions(path, asked).said["fr"] == {"1": "un chien", "2": "un chat"}
    with pytest.raises(UserError, match="asked for otherwise"):
        KeptCaptions(path, asked | {"prefix": "none"})


@pytest.mark.parametrize(
    "line", ["", "{", "[1]", '{"key": "1"}', '{"key": 1, "language": "fr", "text": "x"}', "9" * 9999]
)
def test_a_damaged_file_of_kept_captions_is_told_in_one_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "captions.jsonl"
    path.write_text(f'{{"prefix": "own"}}\n{line}\n' if line else "")
    with pytest.raises(UserError, match=r"line 2 is no caption" if line else "asked for otherwise"):
        KeptCaptions(path, {"prefix": "own"})


def _folded(some: Sequence[str]) -> list[str]:
    return [f"{text.split()[0]} {int(text.split()[1]) % 20} x" if text.strip() else text for text in some]
