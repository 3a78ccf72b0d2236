"""A task is a row: visual question answering, added by one, goes from annotation to batch like the built-in ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from babelcap.coverage import CAPTION, TASKS, TRANSLATION, Coverage, Pair, Style, Task
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.feed.mixture import Mixture, MixtureConfig
from babelcap.data.feed.reader import BatchReader
from babelcap.data.feed.text import Tokenizers
from babelcap.data.inspect.check import check_corpus
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.errors import UserError
from babelcap.records import Annotation

ROW = Task(name="question", prompt="Answer the question: {question}", gives="answers in")
COVERAGE = Coverage(
    tasks=(*TASKS, ROW),
    seen=("caption-en", "translation-de", "question-en"),
    splits={"UQ": ("question-de",), "SC": ("caption-en",)},
)
QUESTION_EN, QUESTION_DE = Pair("question", "en"), Pair("question", "de")


def annotations(number: int) -> list[Annotation]:
    return [
        Annotation(task=CAPTION, language="en", style=Style.SHORT, target=f"{number} dogs"),
        Annotation(task=TRANSLATION, language="de", source=f"{number} dogs", target=f"{number} Hunde"),
        Annotation(task="question", language="en", source="How many {source} dogs?", target=str(number)),
    ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, make_image: Callable[..., bytes]) -> Corpus:
    folder = tmp_path_factory.mktemp("questions") / "corpus"
    with CorpusWriter(folder, provenance={"source": "a test"}, coverage=COVERAGE) as writer:
        for number in range(8):
            writer.add(f"{number:04d}", make_image(number), "jpg", "train", annotations(number))
        unseen = Annotation(task="question", language="de", source="How many dogs?", target="acht")
        writer.add("0008", make_image(8), "jpg", "eval", [unseen])
    return Corpus.open(folder)


def test_the_hole_the_splits_and_full_coverage() -> None:
    assert len(COVERAGE.all_pairs) == 6 + 5 + 6  # questions are answered in the source language too
    assert len(COVERAGE.hole) == 17 - 3
    assert COVERAGE.is_seen(QUESTION_EN)
    assert QUESTION_DE in COVERAGE.hole
    assert COVERAGE.split("UQ") == (QUESTION_DE,)
    assert [pair.language for pair in COVERAGE.pairs_of("question", seen=False)] == ["de", "fr", "es", "ru", "zh"]
    assert COVERAGE.full().hole == ()
    assert QUESTION_DE in COVERAGE.full().seen_pairs


def test_it_is_stored_indexed_and_checked(corpus: Corpus) -> None:
    assert corpus.coverage == COVERAGE
    assert corpus.counts("train") == {Pair(CAPTION, "en"): 8, QUESTION_EN: 8, Pair(TRANSLATION, "de"): 8}
    index = CorpusIndex.open(corpus)
    assert index.pairs("train") == (Pair(CAPTION, "en"), Pair(TRANSLATION, "de"), QUESTION_EN)
    assert index.annotation(int(index.rows("train", QUESTION_EN)[3])) == annotations(3)[2]
    assert index.annotation(int(index.rows("eval", QUESTION_DE)[0])).target == "acht"
    assert check_corpus(corpus).problems.places == {}


def test_it_is_mixed_and_read(corpus: Corpus, tokenizer: Any) -> None:
    index = CorpusIndex.open(corpus)
    mixture = Mixture(index, MixtureConfig(weights={"caption-en": 1, "question-en": 3}), COVERAGE, seed=1)
    assert mixture.counts(100) == {Pair(CAPTION, "en"): 25, QUESTION_EN: 75}
    config = BatchConfig(image_size_px=8, prefix_probability=1.0, source_mask_probability=0.9)
    reader = BatchReader(index, Tokenizers(tokenizer, tokenizer), config, COVERAGE)
    indices = np.arange(40)
    batch, bad = reader.read(mixture.pairs, indices, *mixture.resolve(indices))
    assert batch is not None
    assert bad == {}
    prompts = {tokenizer.decode(ids, skip_special_tokens=True) for ids in batch.input_ids}
    assert prompts == {  # a question is not masked, and what it says is not read as a template
        "The target language is English. What does the image describe?",
        "The target language is English. Answer the question: How many {source} dogs?",
    }
    is_question = batch.pair_numbers == mixture.pairs.index(QUESTION_EN)
    targets = [
        tokenizer.decode([token for token in labels.tolist() if token >= 0], skip_special_tokens=True)
        for labels in batch.labels[is_question]
    ]
    assert set(targets) <= set(map(str, range(8)))  # and its answer does not follow the captions' prefix


def test_a_question_without_its_question(tmp_path: Path, make_image: Callable[..., bytes]) -> None:
    for annotation, words in (
        (Annotation(task="question", language="en", target="2"), "question-en has no question text; a question needs"),
        (Annotation(task="riddle", language="en", target="2"), "unknown task 'riddle' .known: caption, translation, q"),
    ):
        with (
            pytest.raises(UserError, match=words),
            CorpusWriter(tmp_path / "c", provenance={}, coverage=COVERAGE) as writer,
        ):
            writer.add("0", make_image(0), "jpg", "train", [annotation])
    with pytest.raises(UserError, match=r"'riddle-en' is not a task-language pair; .* or question-LANGUAGE"):
        COVERAGE.pair("riddle-en")
