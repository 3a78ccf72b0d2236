"""What the generation core asks of a model beside `generate`, for models that know their answers by heart."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


class ByHeart:
    device, dtype, training = torch.device("cpu"), torch.float32, False
    config = SimpleNamespace(decoder_start_token_id=1, pad_token_id=0)
    keeps_packed = False
    quantise = None
    head = SimpleNamespace(products=())
    packed_weights = SimpleNamespace(clear=lambda: None)
    end_token_ids: tuple[int, ...] = ()

    def eval(self) -> "ByHeart":
        return self

    def train(self, mode: bool) -> "ByHeart":
        return self

    def guidance_scale(self, _: Any) -> float:
        return 1.0

    def plan_search(self, *_: Any) -> None:
        """It has no decoder to search with."""

    def num_given_tokens(self, prefix_ids: list[int]) -> int:
        return 1

    def encode(self, input_ids: Tensor, attention_mask: Tensor, image_features: Tensor | None) -> SimpleNamespace:
        states = torch.zeros(len(input_ids), 1, 1) if image_features is None else image_features
        return SimpleNamespace(last_hidden_state=states, attention_mask=torch.ones(states.shape[:2], dtype=torch.long))
