import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from babelcap.coverage import CAPTION, TRANSLATION, Coverage, Pair, Style
from babelcap.data.feed.batches import IGNORED_LABEL, Batch, BatchConfig, pad
from babelcap.data.feed.images import decode_image, square_pixels
from babelcap.data.feed.reader import MAX_ATTEMPTS, BadSamples, BatchReader
from babelcap.data.feed.text import Tokenizers
from babelcap.errors import BadSample, UserError
from babelcap.records import Annotation

COVERAGE = Coverage()
CAPTION_DE, TRANSLATION_FR = Pair(CAPTION, "de"), Pair(TRANSLATION, "fr")
PAIRS = (CAPTION_DE, TRANSLATION_FR)


class Texts:
    """A corpus of given annotations; the image of row n has number 100 + n."""

    def __init__(self, annotations: list[Annotation], make_image: Callable[..., bytes], bad_rows: Any = ()) -> None:
        self.annotations, self.make_image, self.bad_rows = annotations, make_image, set(bad_rows)

    def annotation(self, row: int) -> Annotation:
        return self.annotations[row]

    def image_number(self, row: int) -> int:
        return 100 + row

    def read_image(self, image_number: int) -> bytes:
        return b"not one" if image_number - 100 in self.bad_rows else self.make_image(image_number)

    def text_bytes(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [self.annotations[row] for row in rows]
        return np.array([len(a.source or "") for a in found]), np.array([len(a.target) for a in found])


def caption(text: str, style: Style = Style.SHORT) -> Annotation:
    return Annotation(task=CAPTION, language="de", style=style, target=text)


def translation(source: str | None, target: str) -> Annotation:
    return Annotation(task=TRANSLATION, language="fr", source=source, target=target)


ANNOTATIONS = [caption("ein Hund"), translation("a red house", "une maison rouge"), caption("zwei", Style.DETAILED)]
NUMBERS = np.array([0, 1, 0])


def make_reader(tokenizer: Any, corpus: Any, seed: int = 0, **options: Any) -> BatchReader:
    features = options.pop("image_features", None)
    config = BatchConfig(**{"image_size_px": 16, "max_prompt_tokens": 200, **options})
    return BatchReader(corpus, Tokenizers(tokenizer, tokenizer), config, COVERAGE, seed=seed, image_features=features)


def read(reader: BatchReader, numbers: np.ndarray = NUMBERS, **options: Any) -> Batch:
    batch, bad = reader.read(PAIRS, 7 + np.arange(len(numbers)), numbers, np.arange(len(numbers)), **options)
    assert batch is not None
    assert bad == {}
    return batch


def test_what_a_batch_holds(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    batch = read(make_reader(tokenizer, Texts(ANNOTATIONS, make_image)))
    pad_id, bos, eos = tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id
    prompts = [tokenizer.decode(ids, skip_special_tokens=True) for ids in batch.input_ids]
    assert prompts == [
        "The target language is German. What does the image describe?",
        "The target language is French. Translate the following text: a red house",
        "The target language is German. Describe in detail what is shown in the image.",
    ]
    assert (batch.input_ids[:, 0] == bos).all()
    assert torch.equal(batch.attention_mask == 0, batch.input_ids == pad_id)
    for place, annotation in enumerate(ANNOTATIONS):
        num_tokens = len(annotation.target) + 2
        labels, inputs = batch.labels[place].tolist(), batch.decoder_input_ids[place].tolist()
        assert tokenizer.decode(labels[1 : num_tokens - 1]) == annotation.target
        assert [labels[0], labels[num_tokens - 1]] == [bos, eos]
        assert set(labels[num_tokens:]) <= {IGNORED_LABEL}
        assert inputs[0] == eos  # the decoder starts with it
        assert inputs[1:num_tokens] == labels[: num_tokens - 1]
        assert set(inputs[num_tokens:]) <= {pad_id}
    assert batch.num_target_tokens.tolist() == [10, 18, 6]
    assert batch.num_target_tokens.tolist() == (batch.labels != IGNORED_LABEL).sum(dim=1).tolist()
    assert batch.pair_numbers.tolist() == [0, 1, 0]
    assert batch.indices.tolist() == [7, 8, 9]
    assert batch.rows.tolist() == [0, 1, 2]
    assert batch.image_numbers.tolist() == [100, 101, 102]
    assert batch.pairs == PAIRS


def test_pixels_travel_as_bytes_and_arrive_as_they_would_have(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    corpus = Texts(ANNOTATIONS, make_image)
    batch = read(make_reader(tokenizer, corpus))
    assert batch.pixels is not None
    assert batch.pixels.dtype == torch.uint8
    inputs = batch.model_inputs()
    assert set(inputs) == {"input_ids", "attention_mask", "decoder_input_ids", "labels", "pixel_values"}
    expected = np.stack([square_pixels(decode_image(corpus.read_image(100 + row), 16), 16) for row in range(3)])
    assert np.array_equal(inputs["pixel_values"].numpy(), expected)
    assert inputs["pixel_values"].is_contiguous()


def test_a_picture_of_a_corpus_is_upright_in_the_batch(tokenizer: Any) -> None:
    """Stored as the camera held it: red on the left. Its metadata says that it was turned, so red is above."""
    stored = Image.new("RGB", (32, 32), "blue")
    stored.paste("red", (0, 0, 16, 32))
    turned, encoded = Image.Exif(), io.BytesIO()
    turned[0x0112] = 6
    stored.save(encoded, "PNG", exif=turned)
    reader = make_reader(tokenizer, Texts(ANNOTATIONS, lambda _: encoded.getvalue()))
    red, _, blue = read(reader).model_inputs()["pixel_values"][0]
    assert (red[0] > blue[0]).all()
    assert (red[-1] < blue[-1]).all()


def test_a_large_picture_among_small_ones(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    """Pillow keeps it in pieces, and hands it over with three bytes a pixel in place of four."""

    def sizes(number: int) -> bytes:
        return make_image(number, 3000, 20) if number == 100 else make_image(number, 2200, 2000, "PNG")

    corpus = Texts(ANNOTATIONS, sizes)
    pixels = read(make_reader(tokenizer, corpus)).model_inputs()["pixel_values"]
    expected = [square_pixels(decode_image(corpus.read_image(100 + row), 16), 16) for row in range(3)]
    assert np.array_equal(pixels.numpy(), np.stack(expected))


def test_features_stand_in_for_pixels(tokenizer: Any) -> None:
    def features(image_number: int) -> torch.Tensor:
        return torch.full((5, 3), float(image_number), dtype=torch.bfloat16)

    def no_image(*_: Any) -> bytes:
        raise AssertionError("an image was read")

    inputs = read(make_reader(tokenizer, Texts(ANNOTATIONS, no_image), image_features=features)).model_inputs()
    assert "pixel_values" not in inputs
    assert inputs["image_features"].shape == (3, 5, 3)
    assert inputs["image_features"][:, 0, 0].tolist() == [100, 101, 102]


def test_truncation_keeps_eos(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    reader = make_reader(tokenizer, Texts(ANNOTATIONS, make_image), max_prompt_tokens=12, max_target_tokens=8)
    batch = read(reader)
    assert batch.input_ids.shape == (3, 12)
    assert batch.labels.shape == (3, 8)
    assert (batch.input_ids[:, -1] == tokenizer.eos_token_id).all()
    assert (batch.labels[:2, -1] == tokenizer.eos_token_id).all()


def test_a_prefix_is_given_and_not_scored(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    batch = read(make_reader(tokenizer, Texts(ANNOTATIONS, make_image), prefix_probability=1.0))
    plain = read(make_reader(tokenizer, Texts(ANNOTATIONS, make_image)))
    inputs, labels = batch.decoder_input_ids[0].tolist(), batch.labels[0].tolist()
    num_given = 1 + len("Das Bild zeigt")
    assert tokenizer.decode(inputs, skip_special_tokens=True) == "Das Bild zeigt ein Hund"
    assert labels[:num_given] == [IGNORED_LABEL] * num_given
    assert tokenizer.decode([label for label in labels if label != IGNORED_LABEL]) == " ein Hund<eos>"
    assert batch.num_target_tokens[0] == len(" ein Hund") + 1
    # Every scored label is the next input: what is shifted is the whole target, prefix and all.
    scored = [place for place, label in enumerate(labels) if label not in (IGNORED_LABEL, tokenizer.eos_token_id)]
    assert [inputs[place + 1] for place in scored] == [labels[place] for place in scored]
    # A translation never begins with one.
    assert torch.equal(
        batch.labels[1][batch.labels[1] != IGNORED_LABEL], plain.labels[1][plain.labels[1] != IGNORED_LABEL]
    )


def test_the_prefix_is_a_function_of_seed_and_index(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    corpus = Texts([caption("ein Hund")] * 200, make_image)
    numbers = np.zeros(200, dtype=int)

    def with_prefix(seed: int) -> list[bool]:
        batch = read(make_reader(tokenizer, corpus, seed, prefix_probability=0.5), numbers)
        return (batch.labels[:, 0] == IGNORED_LABEL).tolist()

    first = with_prefix(1)
    assert first == with_prefix(1)
    assert first != with_prefix(2)
    assert 70 < sum(first) < 130


def test_words_of_a_source_are_hidden(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    corpus = Texts([translation("one two three four five six", "un deux")] * 100, make_image)
    numbers = np.ones(100, dtype=int)
    batches = [read(make_reader(tokenizer, corpus, source_mask_probability=0.3), numbers) for _ in range(2)]
    assert torch.equal(batches[0].input_ids, batches[1].input_ids)
    num_hidden = (batches[0].input_ids == tokenizer.mask_token_id).sum().item()
    assert 130 < num_hidden < 230
    assert (batches[0].labels == batches[0].labels[0]).all()


BAD = {
    "empty target": caption("  "),
    "empty source": translation(None, "une maison"),
    "target is not UTF-8": caption("a\ud800"),
    "not an image": caption("ein Bild"),
}


@pytest.mark.parametrize("reason", list(BAD))
def test_a_bad_sample_is_replaced_and_counted(tokenizer: Any, make_image: Callable[..., bytes], reason: str) -> None:
    corpus = Texts([ANNOTATIONS[0], BAD[reason], *ANNOTATIONS], make_image, bad_rows=[1] if "image" in reason else [])
    number = PAIRS.index(BAD[reason].pair)
    asked: list[tuple[int, int, int]] = []

    def substitute(index: int, pair_number: int, attempt: int) -> int:
        asked.append((index, pair_number, attempt))
        return 1 if attempt < 3 else 2 + number  # bad twice more, then good

    batch, bad = make_reader(tokenizer, corpus).read(
        PAIRS, np.array([50, 51]), np.array([0, number]), np.array([0, 1]), substitute
    )
    assert batch is not None
    assert bad == {reason: 3}
    assert asked == [(51, number, 1), (51, number, 2), (51, number, 3)]
    assert batch.rows.tolist() == [0, 2 + number]
    assert batch.indices.tolist() == [50, 51]


def test_without_a_substitute_bad_ones_are_left_out(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    corpus = Texts([caption(""), caption("ein Hund")], make_image)
    reader = make_reader(tokenizer, corpus)
    batch, bad = reader.read(PAIRS, np.arange(2), np.zeros(2, dtype=int), np.arange(2))
    assert batch is not None
    assert batch.rows.tolist() == [1]
    assert bad == {"empty target": 1}
    assert reader.read(PAIRS, np.arange(1), np.zeros(1, dtype=int), np.zeros(1, dtype=int)) == (
        None,
        {"empty target": 1},
    )


def test_when_nothing_is_usable_the_reasons_are_told(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    reader = make_reader(tokenizer, Texts([caption("")], make_image))
    with pytest.raises(
        UserError, match=rf"{MAX_ATTEMPTS + 1} attempts at one index \(empty target: {MAX_ATTEMPTS + 1}\)"
    ):
        reader.read(PAIRS, np.zeros(1, dtype=int), np.zeros(1, dtype=int), np.zeros(1, dtype=int), lambda *_: 0)


def test_features_that_are_missing_count_as_bad(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    def features(image_number: int) -> torch.Tensor:
        raise BadSample("no features", str(image_number))

    reader = make_reader(tokenizer, Texts(ANNOTATIONS, make_image), image_features=features)
    assert reader.read(PAIRS, np.arange(1), np.zeros(1, dtype=int), np.arange(1)) == (None, {"no features": 1})


def test_an_index_of_another_corpus_is_noticed(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    reader = make_reader(tokenizer, Texts([translation("a", "b")], make_image))
    with pytest.raises(UserError, match="annotation 0 is translation-fr where caption-de was expected"):
        reader.read(PAIRS, np.arange(1), np.zeros(1, dtype=int), np.arange(1))


def test_a_batch_survives_the_way_between_processes(tokenizer: Any, make_image: Callable[..., bytes]) -> None:
    batch = read(make_reader(tokenizer, Texts(ANNOTATIONS, make_image)))
    again = pickle.loads(pickle.dumps(batch))
    assert again.config == batch.config
    for name, tensor in batch.model_inputs().items():
        assert torch.equal(tensor, again.model_inputs()[name])


def test_padding() -> None:
    assert pad([[1, 2, 3], [4]], -1).tolist() == [[1, 2, 3], [4, -1, -1]]


def test_too_many_bad_samples_stop_and_the_reasons_are_told() -> None:
    bad = BadSamples(0.01)
    for _ in range(5):
        bad.add(200, {"corrupt image": 2})
    with pytest.raises(UserError, match=r"13 of 1100 samples are bad.*max_bad_share = 0.01") as raised:
        bad.add(100, {"empty target": 3})
    assert str(raised.value).endswith("raise the share (corrupt image: 10, empty target: 3)")


def test_a_few_bad_samples_at_the_start_do_not_stop_a_run_unless_none_is_allowed() -> None:
    BadSamples(0.01).add(10, {"corrupt image": 5})
    BadSamples(0.0).add(10, {})
    with pytest.raises(UserError, match="1 of 10 samples"):
        BadSamples(0.0).add(10, {"corrupt image": 1})
