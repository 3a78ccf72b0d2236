"""Gemma-3 out of a GGUF file. The reference is transformers' own reader of GGUF, which takes the same blocks apart."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3ForCausalLM

from babelcap.errors import UserError
from babelcap.models.surgery.gguf_source import GgufSource

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed: pip install 'babelcap[photos]'")

NAMES = (
    ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"), ("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"),
    ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"), ("post_feedforward_layernorm", "post_ffw_norm"),
)  # fmt: skip


def write_gguf(path: Path, model: Gemma3ForCausalLM, quantised: bool, architecture: str = "gemma3") -> None:
    """As llama.cpp's converter does: norms with their one, matrices in blocks of 8 bits where asked."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_sliding_window(config.sliding_window)
    writer.add_rope_freq_base(1_000_000.0)
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"t{n}" for n in range(config.vocab_size - 4))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(3)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        short = name.removeprefix("model.").removesuffix(".weight")
        if short.startswith("layers."):
            _, number, rest = short.split(".", 2)
            theirs = f"blk.{number}.{dict(NAMES)[rest]}.weight"
        else:
            theirs = {"embed_tokens": "token_embd.weight", "norm": "output_norm.weight"}[short]
        values = tensor.numpy().astype(np.float32) + (1 if "norm" in name else 0)
        if quantised and values.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(theirs, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(theirs, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_weights_and_settings_come_back(tiny_gemma: Path, tmp_path: Path) -> None:
    model = Gemma3ForCausalLM.from_pretrained(tiny_gemma)
    write_gguf(tmp_path / "tiny.gguf", model, quantised=False)
    source = GgufSource(tmp_path / "tiny.gguf")
    assert source.shapes.keys() == model.state_dict().keys() - {"lm_head.weight"}
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            torch.testing.assert_close(source.read(name), tensor, rtol=0, atol=1e-6)
    wanted = model.config.to_dict()
    for name, value in source.config.items():
        assert value == pytest.approx(wanted[name]) if isinstance(value, float) else value == wanted[name], name


def test_blocks_of_eight_bits_are_taken_apart_as_transformers_does(tiny_gemma: Path, tmp_path: Path) -> None:
    model = Gemma3ForCausalLM.from_pretrained(tiny_gemma)
    write_gguf(tmp_path / "tiny.gguf", model, quantised=True)
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype=torch.float32).state_dict()
    source = GgufSource(tmp_path / "tiny.gguf")
    for name in source.shapes:
        torch.testing.assert_close(source.read(name), reference[name], rtol=0, atol=1e-6)
    embedding = "model.embed_tokens.weight"
    assert not torch.equal(source.read(embedding), model.state_dict()[embedding])  # eight bits are not thirty-two


def test_other_files_are_refused(tiny_gemma: Path, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_bytes(b"no model" * 10)
    with pytest.raises(UserError, match="no GGUF file, or a damaged one"):
        GgufSource(tmp_path / "text.gguf")
    with pytest.raises(UserError, match="no such file"):
        GgufSource(tmp_path / "none.gguf")
    write_gguf(tmp_path / "other.gguf", Gemma3ForCausalLM.from_pretrained(tiny_gemma), False, architecture="llama")
    with pytest.raises(UserError, match="its architecture is 'llama'"):
        GgufSource(tmp_path / "other.gguf")
