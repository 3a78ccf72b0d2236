"""The readings of the loss, by hand: a model of three words whose losses are known, and parts that add up."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from babelcap.coverage import Coverage, Pair
from babelcap.evaluation.calibration import Calibration, half_of
from babelcap.evaluation.loss import LossSums, Readings, loss_result
from babelcap.evaluation.loss_parts import LossParts, token_ends
from babelcap.languages import Language
from babelcap.measures import CALIBRATED_BY_CHANCE
from babelcap.world.parser import content_spans

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
WORDS = ["das", "la", "Bild", "photo", "imagen", "Hund", "rot"]
BOS, EOS, DAS, LA, BILD, PHOTO, IMAGEN, HUND, ROT = 0, 1, *range(4, 11)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    table = {word: place for place, word in enumerate([*SPECIALS.values(), *WORDS])}
    backend = Tokenizer(WordLevel(table, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIALS)


def spans_of_dogs(text: str, language: str) -> list[tuple[int, int]]:
    return [(text.index(word), text.index(word) + len(word)) for word in ("Hund", "rot") if word in text]


def language(code: str, prefix: str) -> Language:
    return Language(code=code, name=code, script="Latn", prefix=prefix, nllb=f"{code}_Latn")


@pytest.fixture
def readings(tokenizer: PreTrainedTokenizerFast) -> Readings:
    targets = {
        "de": [[BOS, DAS, BILD, HUND, EOS]],
        "fr": [[BOS, LA, PHOTO, HUND, EOS]],
        "es": [[BOS, LA, IMAGEN, HUND, EOS]],
    }
    rows = (language("de", "das Bild"), language("fr", "la photo"), language("es", "la imagen"))
    coverage = Coverage(
        languages=rows, source_language="de", seen=("caption-de",), splits={"UC": ("caption-fr", "caption-es")}
    )
    return Readings(tokenizer, coverage, LossParts(tokenizer, targets, spans_of_dogs))


def test_readings_by_hand(readings: Readings) -> None:
    losses = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
    found = readings.of([BOS, LA, PHOTO, ROT, HUND, EOS], losses, "fr")
    assert found == {
        "raw": LossSums(31.5, 6),
        "conditioned": LossSums(28.0, 3),  # without bos, la, photo
        "prefix_given": LossSums(28.0, 3),
        "language": LossSums(3.5, 6),  # "la" begins Spanish too, "la photo" does not
        "content": LossSums(12.0, 6),
        "wording": LossSums(16.0, 6),
    }


def test_a_target_that_does_not_begin_with_the_prefix_is_left_out_of_prefix_given(readings: Readings) -> None:
    losses = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    found = readings.of([BOS, PHOTO, LA, HUND, EOS], losses, "fr")
    assert "prefix_given" not in found
    assert found["conditioned"] == LossSums(12.0, 2)
    assert found["language"] == LossSums(1.5, 5)  # no other language begins with "photo"
    assert (found["content"], found["wording"]) == (LossSums(4.0, 5), LossSums(10.0, 5))


def test_the_language_is_chosen_at_once_where_the_first_word_says_it(readings: Readings) -> None:
    found = readings.of([BOS, DAS, BILD, EOS], np.array([1.0, 2.0, 4.0, 8.0]), "de")
    assert (found["language"], found["content"], found["wording"]) == (
        LossSums(3.0, 4),
        LossSums(0.0, 4),
        LossSums(12.0, 4),
    )


def test_without_a_grammar_the_parts_are_two(tokenizer: PreTrainedTokenizerFast) -> None:
    parts = LossParts(tokenizer, {"de": [[BOS, DAS, EOS]], "fr": [[BOS, LA, EOS]]})
    assert parts.names == ("language", "wording")
    found = parts.of([BOS, LA, HUND, EOS], "fr")
    assert [found[name].tolist() for name in parts.names] == [[True, True, False, False], [False, False, True, True]]


def test_parts_add_up_whatever_the_tokens(readings: Readings) -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        ids: Sequence[int] = [BOS, *generator.integers(4, 11, size=generator.integers(1, 12)).tolist(), EOS]
        losses = generator.exponential(size=len(ids))
        found = readings.of(ids, losses, str(generator.choice(["de", "fr", "es"])))
        parts = sum(found[name].total for name in ("language", "content", "wording"))
        assert parts == pytest.approx(found["raw"].total, abs=1e-12)


def test_ends_of_tokens(tokenizer: PreTrainedTokenizerFast) -> None:
    text, ends = token_ends(tokenizer, [BOS, LA, PHOTO, EOS])
    assert text == "la photo"
    assert ends == [0, 2, 8, 8]


@pytest.mark.parametrize(
    ("code", "text", "content"),
    [
        ("en", "You can see two orange stars on the grass.", ["two", "orange", "stars", "on the grass"]),
        ("fr", "La photo montre un petit chat marron.", ["un", "petit", "chat", "marron"]),
        ("zh", "图为草地上的两颗橙色的星星。", ["草地上", "两颗", "橙色", "星星"]),
    ],
)
def test_the_grammar_knows_the_content(code: str, text: str, content: list[str]) -> None:
    assert [text[start:end] for start, end in content_spans(text, code)] == content


PLACES = [[place for place in range(40) if half_of(place) == half][:2] for half in (0, 1)]


def test_calibration_by_hand() -> None:
    """Two words. The model says 9 to 1 for the first and is right half of the time: no certainty at all is best."""
    calibration = Calibration((1.0, 2.0, 1000.0))
    pair = Pair("caption", "es")
    logits = torch.tensor([[[math.log(9.0), 0.0]], [[math.log(9.0), 0.0]]]).repeat(2, 1, 1)
    calibration.add(pair, [*PLACES[0], *PLACES[1]], logits, torch.tensor([[0], [1], [0], [1]]))
    result = calibration.result("eval", Coverage())
    assert result.per_pair["caption-es"] == pytest.approx(math.log(2), abs=1e-5)
    assert result.per_split == {"UC": result.per_pair["caption-es"]}
    assert result.signature == {**CALIBRATED_BY_CHANCE, "temperature of UC": "1000, 1000"}
    assert result.num_samples == {"caption-es": 4}


def test_each_half_is_measured_by_the_temperature_of_the_other() -> None:
    calibration = Calibration((0.5, 1.0, 2.0))
    pair = Pair("caption", "es")
    logits = torch.tensor([[[math.log(9.0), 0.0]], [[math.log(9.0), 0.0]]])
    calibration.add(pair, [PLACES[0][0], PLACES[1][0]], logits, torch.tensor([[0], [1]]))  # one right, one wrong
    result = calibration.result("eval", Coverage())
    right = math.log(1 + 9**-0.5)  # at 2, which the wrong one prefers
    wrong = math.log(1 + 9**2)  # at .5, which the right one prefers
    assert result.per_pair["caption-es"] == pytest.approx((right + wrong) / 2)
    assert result.signature == {**CALIBRATED_BY_CHANCE, "temperature of UC": "2, 0.5"}


def test_halves_are_not_by_turns() -> None:
    """Rows that alternate in kind are in both halves alike."""
    halves = [half_of(place) for place in range(400)]
    assert 160 < sum(halves) < 240
    assert 60 < sum(halves[::2]) < 140


def test_the_error_of_a_mean_over_samples_by_hand() -> None:
    """Means of 1, 2 and 3 nats a token: a deviation of 1 over three samples. Pairs of a split share their pictures."""
    sums = {
        Pair("caption", "es"): [LossSums(2.0, 2), LossSums(2.0, 1), LossSums(9.0, 3)],
        Pair("caption", "zh"): [LossSums(1.0, 1), LossSums(1.0, 1)],  # no deviation
        Pair("caption", "en"): [LossSums(1.0, 1)],  # one sample tells no error
    }
    found = loss_result("sample_mean", "measure", "eval", Coverage(), sums)
    assert found.per_split["UC"] == pytest.approx(1.5)
    assert found.sampling_errors == {"UC": pytest.approx((1 / math.sqrt(3) + 0) / 2)}
    assert loss_result("token_mean", "measure", "eval", Coverage(), sums).sampling_errors == {}
