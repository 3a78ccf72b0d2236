"""A small corpus on disk, and a tokenizer of bytes, for the tests of sampling, batches and loading."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from babelcap.coverage import CAPTION, TRANSLATION, Pair, Style
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import CorpusWriter
from babelcap.records import Annotation

WORDS = ["red", "dog", "a", "house", "under", "the", "tree", "runs", "bicycle", "blue"]


def encoded_image(seed: int, width: int = 40, height: int = 30, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    """A picture with edges and gradients, unlike noise close to what a camera gives."""
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (5, 5, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).convert(mode)
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def sentence(generator: np.random.Generator, longest: int = 12) -> str:
    return " ".join(generator.choice(WORDS, generator.integers(2, longest)))


def annotations_of(generator: np.random.Generator) -> list[Annotation]:
    found = [
        Annotation(task=CAPTION, language="en", style=Style.SHORT, target=sentence(generator)),
        Annotation(task=CAPTION, language="en", style=Style.DETAILED, target=sentence(generator, 30)),
        Annotation(task=CAPTION, language="de", style=Style.SHORT, target=sentence(generator)),
        # A caption of an unseen pair, which training must never draw.
        Annotation(task=CAPTION, language="es", style=Style.SHORT, target=sentence(generator)),
    ]
    for code in ("de", "fr", "es", "ru", "zh"):
        for _ in range(generator.integers(0, 4)):
            text = sentence(generator, 40)
            found.append(Annotation(task=TRANSLATION, language=code, source=text, target=text.upper()))
    return found


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 images in 6 tars of train, 12 of eval."""
    folder = tmp_path_factory.mktemp("corpus") / "small"
    generator = np.random.default_rng(0)
    with CorpusWriter(folder, provenance={"source": "a test"}, images_per_tar=10) as writer:
        for number in range(72):
            split = "train" if number < 60 else "eval"
            writer.add(f"{number:09d}", encoded_image(number), "jpg", split, annotations_of(generator))
    return folder


@pytest.fixture(scope="session")
def small_index(small_corpus: Path) -> CorpusIndex:
    return CorpusIndex.open(small_corpus)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Every byte is a token, so that lengths are known and every text can be written."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer()


class FakeRows:
    """A corpus of which the mixture knows sizes only: rows of a pair are consecutive numbers."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = {Pair.parse(name): size for name, size in sizes.items()}
        starts = np.cumsum([0, *self.sizes.values()])
        self.starts = dict(zip(self.sizes, starts.tolist(), strict=False))

    def pairs(self, split: str) -> tuple[Pair, ...]:
        return tuple(self.sizes)

    def rows(self, split: str, pair: Pair) -> np.ndarray:
        return np.arange(self.sizes[pair], dtype=np.int64) + self.starts[pair]


@pytest.fixture(scope="session")
def fake_rows() -> type[FakeRows]:
    return FakeRows


@pytest.fixture(scope="session")
def make_image() -> Callable[..., bytes]:
    return encoded_image
