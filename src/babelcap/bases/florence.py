"""The Florence-like base in small: transformers' Florence-2, taught to caption pictures in English.

The tower is taken as it was trained (tower.py) and stays as it is; projector and BART learn from its maps.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BartConfig, Florence2Config, Florence2ForConditionalGeneration, Florence2VisionConfig

from babelcap.bases.config import BaseConfig
from babelcap.bases.text import (
    Example,
    captioning_example,
    decoder_tensors,
    encode,
    padded_size,
    sorted_batches,
    train_on,
)
from babelcap.data.feed.batches import pad
from babelcap.models.network.loss import target_token_losses
from babelcap.models.sizing.sizes import get_size
from babelcap.world.scenes import Scene


def make_captioner(letter: str, tower: nn.Module, tokenizer: Any, seed: int) -> Florence2ForConditionalGeneration:
    size = get_size(f"micro-florence-{letter}")
    vocab_size = padded_size(len(tokenizer))
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    text = BartConfig(
        vocab_size=vocab_size,
        decoder_start_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=tokenizer.eos_token_id,
        **size.bart,
        **ids,
    )
    torch.manual_seed(seed)
    model: Florence2ForConditionalGeneration = Florence2ForConditionalGeneration(
        Florence2Config(
            text_config=text, vision_config=Florence2VisionConfig(**size.vision), image_token_id=vocab_size - 1, **ids
        )
    )
    model.model.vision_tower.load_state_dict(tower.state_dict())
    model.model.vision_tower.requires_grad_(False)
    return model


def train_captioner(
    letter: str, tower: nn.Module, maps: Tensor, scenes: Sequence[Scene], tokenizer: Any, config: BaseConfig
) -> tuple[Florence2ForConditionalGeneration, float]:
    """`maps` are the tower's of each scene's picture. Returns the model and its loss over the last tenth."""
    model = make_captioner(letter, tower, tokenizer, config.seed).train()
    num_samples = config.caption_steps * config.caption_batch_size
    unknown = tokenizer.mask_token or tokenizer.unk_token
    examples = [captioning_example(scenes, config.seed, index, unknown) for index in range(num_samples)]
    prompts = encode(tokenizer, [example.prompt for example in examples])
    targets = encode(tokenizer, [example.target for example in examples])
    lengths = [len(prompt) + len(target) for prompt, target in zip(prompts, targets, strict=True)]
    batches = list(sorted_batches(lengths, config.caption_batch_size, config.seed))
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss = train_on(
        f"English captioner {letter}",
        parameters,
        config.caption_learning_rate,
        batches,
        lambda batch: _loss(model, maps, batch, examples, prompts, targets, tokenizer),
    )
    return model.eval(), loss


def _loss(
    model: Florence2ForConditionalGeneration,
    maps: Tensor,
    batch: Sequence[int],
    examples: Sequence[Example],
    prompts: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    tokenizer: Any,
) -> Tensor:
    """As transformers' own forward computes it, from the tower's maps in place of pixels."""
    parts = model.model
    image = parts.multi_modal_projector(maps[[examples[place].picture for place in batch]])
    ids = pad([prompts[place] for place in batch], tokenizer.pad_token_id)
    states = torch.cat([image, parts.language_model.encoder.embed_tokens(ids)], dim=1)
    mask = torch.cat([ids.new_ones(image.shape[:2]), (ids != tokenizer.pad_token_id).long()], dim=1)
    inputs, labels = decoder_tensors([targets[place] for place in batch], tokenizer)
    encoded = parts.language_model.encoder(inputs_embeds=states, attention_mask=mask).last_hidden_state
    decoded = parts.language_model.decoder(
        input_ids=inputs, encoder_hidden_states=encoded, encoder_attention_mask=mask, use_cache=False
    ).last_hidden_state
    return target_token_losses(decoded, model.lm_head.weight, labels, 1 / int((labels >= 0).sum()))[0]
