"""Gemma-3 out of a GGUF file, as llama.cpp keeps it: weights taken out of their blocks of 4 to 8 bits, under the names
that transformers has for them, its settings, and its tokenizer.

llama.cpp stores a norm's weight with its one, 1 + w; transformers adds the one itself, so it is taken off again.
"""

import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from babelcap.errors import UserError
from babelcap.models.checkpoints.weights import require_finite, without_progress_bar

ENDING = ".gguf"
ARCHITECTURE = "gemma3"
BLOCK = r"blk\.(\d+)\."
LAYER = r"model.layers.\1."
# GGUF's name -> transformers', and whether the one of a norm is to be taken off.
GGUF_KEYS: tuple[tuple[str, str, bool], ...] = (
    (r"token_embd\.weight", "model.embed_tokens.weight", False),
    (r"output_norm\.weight", "model.norm.weight", True),
    (r"output\.weight", "lm_head.weight", False),
    (BLOCK + r"attn_(q|k|v)\.weight", LAYER + r"self_attn.\2_proj.weight", False),
    (BLOCK + r"attn_output\.weight", LAYER + "self_attn.o_proj.weight", False),
    (BLOCK + r"attn_(q|k)_norm\.weight", LAYER + r"self_attn.\2_norm.weight", True),
    (BLOCK + r"ffn_(gate|up|down)\.weight", LAYER + r"mlp.\2_proj.weight", False),
    (BLOCK + r"attn_norm\.weight", LAYER + "input_layernorm.weight", True),
    (BLOCK + r"post_attention_norm\.weight", LAYER + "post_attention_layernorm.weight", True),
    (BLOCK + r"ffn_norm\.weight", LAYER + "pre_feedforward_layernorm.weight", True),
    (BLOCK + r"post_ffw_norm\.weight", LAYER + "post_feedforward_layernorm.weight", True),
)
# GGUF's setting, behind the architecture's name -> transformers'.
GGUF_SETTINGS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
}
GGUF_IDS = {"bos_token_id": "bos", "eos_token_id": "eos", "padding_token_id": "pad"}


class GgufSource:
    """What the surgery asks of a decoder's checkpoint. Weights stay in the file, which is mapped, until asked for."""

    model_type = "gemma3_text"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = str(path)
        if not self.path.is_file():
            raise UserError(f"{path}: no such file")
        self._reader = _open(self.path)
        found = self._value("general.architecture")
        if found != ARCHITECTURE:
            raise UserError(f"{path}: its architecture is '{found}'; a GGUF file of {ARCHITECTURE} is needed here")

    @cached_property
    def config(self) -> dict[str, Any]:
        """As config.json of transformers has it. Scores are scaled by a head's width, as in all but the largest."""
        values = {ours: self._value(f"{ARCHITECTURE}.{name}") for name, ours in GGUF_SETTINGS.items()}
        for name, ours in GGUF_IDS.items():
            values[f"{ours}_token_id"] = self._value(f"tokenizer.ggml.{name}")
        missing = sorted(name for name, value in values.items() if value is None)
        if missing:
            raise UserError(f"{self.path}: says nothing of {', '.join(missing)}; it may be damaged")
        values["vocab_size"] = self.shapes["model.embed_tokens.weight"][0]
        values["query_pre_attn_scalar"] = values["head_dim"]
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": self._value(f"{ARCHITECTURE}.rope.freq_base")}
        factor = self._value(f"{ARCHITECTURE}.rope.scaling.factor")
        if factor not in (None, 1.0):
            rope |= {"rope_type": "linear", "factor": factor}
        sliding = {"rope_type": "default", "rope_theta": 10_000.0}
        values["rope_parameters"] = {"full_attention": rope, "sliding_attention": sliding}
        return values | {"model_type": self.model_type}

    @cached_property
    def _tensors(self) -> dict[str, tuple[Any, bool]]:
        found = {}
        for tensor in self._reader.tensors:
            row = next((row for row in GGUF_KEYS if re.fullmatch(row[0], tensor.name)), None)
            name = tensor.name if row is None else re.sub(row[0], row[1], tensor.name)
            found[name] = (tensor, row is not None and row[2])  # an unknown name stays, and stops the surgery
        return found

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(int(side) for side in reversed(tensor.shape)) for name, (tensor, _) in self._tensors.items()
        }

    def read(self, name: str) -> Tensor:
        from gguf.quants import dequantize

        tensor, has_one = self._tensors[name]
        try:
            values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        except (NotImplementedError, ValueError) as error:
            raise UserError(f"{self.path}: {tensor.name} cannot be read ({error})") from None
        weight = torch.from_numpy(values.reshape(self.shapes[name]))
        require_finite(weight, f"{self.path}: {tensor.name}")
        return weight - 1 if has_one else weight

    def _value(self, name: str) -> Any:
        field = self._reader.fields.get(name)
        return None if field is None else field.contents()

    def load_tokenizer(self) -> PreTrainedTokenizerBase:
        """Rebuilt by transformers from the file's tokens and their scores."""
        with without_progress_bar():
            return AutoTokenizer.from_pretrained(self.path.parent, gguf_file=self.path.name, trust_remote_code=False)


def _open(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ModuleNotFoundError:
        raise UserError("a GGUF file is read by the package gguf: pip install 'babelcap[photos]'") from None
    try:
        return GGUFReader(path)
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise UserError(f"{path}: no GGUF file, or a damaged one ({' '.join(str(error).split())[:200]})") from None
