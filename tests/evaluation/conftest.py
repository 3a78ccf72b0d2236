"""A captioner with random weights for the tests of evaluation."""

from pathlib import Path

import pytest


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
