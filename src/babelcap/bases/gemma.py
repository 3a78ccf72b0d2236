"""The Gemma-like base in small: transformers' Gemma 2, a language model of the world's six languages.

It sees no picture. How the languages share its text sets T, the loss before training, at a fixed size and a fixed
amount of training.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Gemma2Config, Gemma2ForCausalLM

from babelcap.bases.config import BaseConfig
from babelcap.bases.text import decoder_tensors, encode, language_line, padded_size, sorted_batches, train_on
from babelcap.models.network.loss import target_token_losses
from babelcap.models.sizing.sizes import get_size


def make_language_model(letter: str, tokenizer: Any, seed: int) -> Gemma2ForCausalLM:
    settings = dict(get_size(f"micro-gemma-{letter}").gemma or {})
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    torch.manual_seed(seed)
    model: Gemma2ForCausalLM = Gemma2ForCausalLM(
        Gemma2Config(vocab_size=padded_size(len(tokenizer)), tie_word_embeddings=True, **settings, **ids)
    )
    return model


def train_language_model(
    letter: str, shares: Mapping[str, float], tokenizer: Any, config: BaseConfig
) -> tuple[Gemma2ForCausalLM, float]:
    """The model, and its loss per token over the last tenth of its training."""
    model = make_language_model(letter, tokenizer, config.seed).train()
    num_lines = config.language_steps * config.language_batch_size
    ids = encode(tokenizer, [language_line(shares, config.seed, index) for index in range(num_lines)])
    batches = list(sorted_batches(list(map(len, ids)), config.language_batch_size, config.seed))

    def loss_of(batch: Sequence[int]) -> Tensor:
        inputs, labels = decoder_tensors([ids[place] for place in batch], tokenizer)
        states = model.model(input_ids=inputs, use_cache=False).last_hidden_state
        softcap = model.config.final_logit_softcapping
        scale = 1 / int((labels >= 0).sum())
        return target_token_losses(states, model.lm_head.weight, labels, scale, softcap=softcap)[0]

    parameters, rate = list(model.parameters()), config.language_learning_rate
    loss = train_on(f"language model {letter}", parameters, rate, batches, loss_of)
    return model.eval(), loss
