"""The captioner's parts: Gemma stays Gemma behind closed gates, layers are chosen, configurations come back."""

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForImageTextToText, Gemma2ForCausalLM, Gemma3ForCausalLM

from babelcap.errors import UserError
from babelcap.models import Captioner, CaptionerConfig
from babelcap.models.network.attention import attend, attend_few

GEMMAS = {"gemma2": Gemma2ForCausalLM, "gemma3": Gemma3ForCausalLM}


@pytest.mark.parametrize("kind", GEMMAS)
def test_behind_closed_gates_is_gemma_itself(
    make_captioner: Callable[..., Captioner], inputs: dict[str, Tensor], kind: str
) -> None:
    model = make_captioner(kind)
    torch.manual_seed(0)
    gemma = GEMMAS[kind](model.config.decoder_config).eval()
    own = {
        name.removeprefix("model."): weight for name, weight in gemma.state_dict().items() if name != "lm_head.weight"
    }
    added = model.decoder.load_state_dict(own, strict=False).missing_keys
    assert all(".encoder_attn" in name or "post_encoder_attention_layernorm" in name for name in added)
    for name, parameter in model.named_parameters():
        if name.endswith("gate"):
            torch.nn.init.zeros_(parameter)
    ids = torch.randint(3, 90, (2, 9), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        ours = model(**inputs, decoder_input_ids=ids).logits
        theirs = gemma(ids, attention_mask=torch.ones_like(ids)).logits
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", GEMMAS)
def test_a_fresh_model_has_closed_gates(make_captioner: Callable[..., Captioner], kind: str) -> None:
    fresh = Captioner(make_captioner(kind).config)
    gates = [parameter for name, parameter in fresh.named_parameters() if name.endswith("gate")]
    assert len(gates) == 4
    assert not any(gate.any() for gate in gates)


@pytest.mark.parametrize("kind", GEMMAS)
@pytest.mark.parametrize(
    ("choice", "layers"),
    [
        ({"cross_attention_every": 2}, [0, 2]),
        ({"cross_attention_every": 3}, [0, 3]),
        ({"cross_attention_layers": [1]}, [1]),
    ],
)
def test_layers_with_cross_attention(
    make_captioner: Callable[..., Captioner],
    inputs: dict[str, Tensor],
    kind: str,
    choice: dict[str, Any],
    layers: list[int],
) -> None:
    model = make_captioner(kind, **choice)
    assert [index for index, layer in enumerate(model.decoder.layers) if hasattr(layer, "encoder_attn")] == layers
    cached = model.generate(**inputs, num_beams=3, max_new_tokens=12)
    assert cached.tolist() == model.generate(**inputs, num_beams=3, max_new_tokens=12, use_cache=False).tolist()


def test_image_tokens_in_the_configured_order(
    make_captioner: Callable[..., Captioner], inputs: dict[str, Tensor]
) -> None:
    mean_first = make_captioner("bart")
    config = mean_first.config
    config.encoder_config.image_feature_source = ["temporal_avg_pool", "spatial_avg_pool"]
    mean_last = Captioner(config).eval()
    mean_last.load_state_dict(mean_first.state_dict())
    first, last = (model.encode_images(inputs["pixel_values"]) for model in (mean_first, mean_last))
    assert torch.equal(first, last.roll(1, dims=1))
    assert first.shape == (2, 1 + 4 * 4, 32)


def test_too_many_positions(captioner: Captioner, inputs: dict[str, Tensor]) -> None:
    with pytest.raises(
        UserError, match="17 image tokens and 50 prompt tokens are more than the encoder's 64 positions"
    ):
        captioner.encoder(torch.ones(1, 50, dtype=torch.long), pixel_values=inputs["pixel_values"][:1])
    with pytest.raises(UserError, match="images of 32x480 px give more than the 50 positions"):
        captioner.encode_images(torch.zeros(1, 3, 32, 480))


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("boolean", [True, False])
def test_attention_by_hand(softcap: float | None, boolean: bool) -> None:
    """Against the plain formula, head by head, with two query heads to each key."""
    generator = torch.Generator().manual_seed(5)
    query, key, value = (
        torch.randn(2, heads, length, 8, generator=generator) for heads, length in ((4, 3), (2, 5), (2, 5))
    )
    seen = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], dtype=torch.bool)[:, None, None]
    mask = seen if boolean else torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    ours = attend(query, key, value, mask, scaling=0.3, softcap=softcap)
    for head in range(4):
        scores = query[:, head] @ key[:, head // 2].transpose(1, 2) * 0.3
        scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        expected = torch.softmax(scores.masked_fill(~seen[:, 0], -torch.inf), dim=-1) @ value[:, head // 2]
        torch.testing.assert_close(ours[:, head], expected, atol=1e-5, rtol=1e-5)


def test_faster_attention_only_where_it_is_equal(captioner: Captioner) -> None:
    has_softcap = getattr(captioner.config.decoder_config, "attn_logit_softcapping", None) is not None
    assert captioner.decoder.config._attn_implementation == ("eager" if has_softcap else "sdpa")
    assert captioner.encoder.text_encoder.config._attn_implementation == "sdpa"


def test_the_loss_reaches_every_trained_weight(
    make_captioner: Callable[..., Captioner], inputs: dict[str, Tensor]
) -> None:
    for kind in ("bart", "gemma2", "gemma3"):
        model = make_captioner(kind).train()
        labels = torch.tensor([[2, 40, 41, 1], [2, 50, 1, -100]])
        model(**inputs, labels=labels, logits_needed=False).loss.backward()
        without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
        assert not without


def test_recomputed_activations_give_the_same_gradients(
    make_captioner: Callable[..., Captioner], inputs: dict[str, Tensor]
) -> None:
    labels = torch.tensor([[2, 40, 41, 1], [2, 50, 1, -100]])
    for kind in ("bart", "gemma2", "gemma3"):
        gradients = []
        for recompute in (False, True):
            model = make_captioner(kind).train()
            if recompute:
                model.gradient_checkpointing_enable({"use_reentrant": False})
            model(**inputs, labels=labels).loss.backward()
            gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(gradient, gradients[1][name], atol=1e-6, rtol=1e-4)


def test_half_precision(captioner: Captioner, inputs: dict[str, Tensor]) -> None:
    labels = torch.tensor([[2, 40, 41, 1], [2, 50, 1, -100]])
    with torch.no_grad():
        exact = captioner(**inputs, labels=labels).loss
        half = copy.deepcopy(captioner).to(torch.bfloat16)
        rough = half(**inputs, labels=labels).loss
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, atol=0.15, rtol=0.05)


def test_a_configuration_comes_back(captioner: Captioner, tmp_path: Path) -> None:
    captioner.config.save_pretrained(tmp_path)
    again = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(again, CaptionerConfig)
    assert type(again.decoder_config) is type(captioner.config.decoder_config)
    assert again.decoder_config.to_dict() == captioner.config.decoder_config.to_dict()
    assert again.encoder_config.to_dict() == captioner.config.encoder_config.to_dict()


def test_a_model_comes_back(captioner: Captioner, inputs: dict[str, Tensor], tmp_path: Path) -> None:
    captioner.save_pretrained(tmp_path)
    again = AutoModelForImageTextToText.from_pretrained(tmp_path)
    expected = captioner.generate(**inputs, num_beams=3, max_new_tokens=8)
    assert again.generate(**inputs, num_beams=3, max_new_tokens=8).tolist() == expected.tolist()


def test_a_model_comes_back_in_a_fresh_process(
    make_captioner: Callable[..., Captioner], inputs: dict[str, Tensor], tmp_path: Path
) -> None:
    model = make_captioner("gemma2", cross_attention_every=2)
    model.save_pretrained(tmp_path / "model")
    torch.save(inputs, tmp_path / "inputs")
    code = (
        "import sys, torch, babelcap.models; from transformers import AutoModelForSeq2SeqLM;"
        f"model = AutoModelForSeq2SeqLM.from_pretrained({str(tmp_path / 'model')!r});"
        f"inputs = torch.load({str(tmp_path / 'inputs')!r}, weights_only=True);"
        "print(model.generate(**inputs, num_beams=3, max_new_tokens=8).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(model.generate(**inputs, num_beams=3, max_new_tokens=8).tolist())


@pytest.mark.parametrize(
    ("encoder", "decoder", "message"),
    [
        ({}, {"kind": "llama"}, "decoder_config.kind is 'llama'; known are bart, gemma2, gemma3"),
        ({"kind": "clip"}, {}, "encoder_config.kind is 'clip'"),
        ({"image_feature_source": ["first_frame"]}, {}, "image_feature_source"),
        ({}, {"kind": "gemma2", "encoder_hidden_size": 99}, "states of width 99"),
    ],
)
def test_wrong_configurations(encoder: dict[str, Any], decoder: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CaptionerConfig(encoder_config=encoder, decoder_config=decoder)


@pytest.mark.parametrize("num_key_heads", [1, 2, 4])
@pytest.mark.parametrize("with_mask", [False, True])
def test_few_queries_attend_as_many_do(num_key_heads: int, with_mask: bool) -> None:
    """Keys and values as a cache has them: the front of a longer room."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(3, 2, 4, 8, generator=generator).transpose(1, 2)
    key, value = (torch.randn(3, num_key_heads, 9, 8, generator=generator)[:, :, :5] for _ in range(2))
    mask = torch.zeros(3, 1, 1, 5).masked_fill_(
        torch.arange(5) < torch.tensor([0, 2, 4])[:, None, None, None], -torch.inf
    )
    given = mask if with_mask else None
    expected = attend(query, key, value, given, scaling=0.3)
    torch.testing.assert_close(attend_few(query, key, value, given, scaling=0.3), expected)
    capped = attend(query, key, value, given, scaling=0.3, softcap=2.0)
    torch.testing.assert_close(attend_few(query, key, value, given, scaling=0.3, softcap=2.0), capped)
