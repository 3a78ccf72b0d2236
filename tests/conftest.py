"""What all tests share."""

import io
import os
import signal
import sys
import tarfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

sys.path.append(str(Path(__file__).parent))  # for what tests of several rooms are made with
sys.path.append(str(Path(__file__).parents[1]))  # for what they share with `torture/`

# Some virtual machines announce AMX and then stop a bf16 product with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# What a shell starts in the background ignores Ctrl-C, and so does all that it starts: tests of Ctrl-C would fail.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same commit gives the same verdict; `make test-slow` searches with fresh examples.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("search", max_examples=500)
settings.load_profile(os.environ.get("BABELCAP_HYPOTHESIS", "repeatable"))


@pytest.fixture(scope="session")
def golden_fixtures() -> Path:
    """Tiny models in the published format with their outputs; in the repository, so that every clone has parity."""
    return Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def write_tar() -> Callable[..., Path]:
    """Writes files, name -> content, into a tar as the standard library does, and gives its path back."""

    def write(path: Path, files: Mapping[str, bytes], kind: int = tarfile.PAX_FORMAT) -> Path:
        with tarfile.open(path, "w", format=kind) as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return path

    return write


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real data, which lies beside the repository and is never part of it."""
    folder = Path(__file__).parent.parent.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the shared folder with real data is not beside the repository")
    return folder


@pytest.fixture(scope="session")
def tiny_gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from frozen_parts import make_gemma

    return make_gemma(tmp_path_factory.mktemp("parts") / "gemma-3")


@pytest.fixture(scope="session")
def tiny_backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from frozen_parts import make_backbones

    return make_backbones(tmp_path_factory.mktemp("backbones"))


@pytest.fixture(scope="session")
def bridge_tokenizer() -> Any:
    from frozen_parts import make_tokenizer

    return make_tokenizer()


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_training import make_corpus

    return make_corpus(tmp_path_factory.mktemp("corpus") / "tiny")


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from tiny_training import save_model

    return {kind: save_model(kind, tmp_path_factory.mktemp("models") / kind) for kind in ("bart", "gemma2")}


@pytest.fixture
def make_config(tiny_corpus: Path, tiny_models: dict[str, Path], tmp_path: Path) -> Callable[..., Any]:
    """A training of 20 steps; keyword arguments take a setting's place, `data__num_workers` one in a block."""
    from babelcap.config import build_config
    from babelcap.training.config import TrainConfig
    from tiny_training import train_values

    def make(kind: str = "bart", **settings: object) -> Any:
        return build_config(TrainConfig, train_values(tiny_models[kind], tiny_corpus, tmp_path / "run", **settings))

    return make


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A captioner with random weights and a vocabulary of the prefixes' words, as it lies on disk."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    from babelcap.languages import LANGUAGES
    from babelcap.models import Captioner, CaptionProcessor
    from babelcap.models.sizing.sizes import size_config

    folder = tmp_path_factory.mktemp("captioner")
    specials = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}
    words = dict.fromkeys([*specials.values(), *(word for entry in LANGUAGES for word in entry.prefix.split())])
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    sides = [PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials) for _ in range(2)]
    torch.manual_seed(0)
    config = size_config("micro-florence-s", encoder_vocab_size=len(words), decoder_vocab_size=len(words))
    Captioner(config).save_pretrained(folder)
    CaptionProcessor(*sides, image_size_px=config.image_size_px).save_pretrained(folder)
    return folder
