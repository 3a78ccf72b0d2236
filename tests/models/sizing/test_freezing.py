"""Named policies: what trains in both families, and the table of it."""

import pytest

from babelcap.errors import UserError
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.flops import meta_captioner
from babelcap.models.sizing.freezing import apply_policy, trained_parameters, training_table
from babelcap.models.sizing.sizes import size_config


def trained_names(family: str, policy: str) -> set[str]:
    model = apply_policy(model_of(family), policy)
    return {name for name, _ in trained_parameters(model)}


def model_of(family: str) -> Captioner:
    return meta_captioner(size_config(f"micro-{family}-s"))


def all_names(family: str) -> set[str]:
    return {name for name, _ in model_of(family).named_parameters()}


@pytest.mark.parametrize("policy", ["pretraining", "finetuning"])
def test_florence_trains_all_but_the_vision(policy: str) -> None:
    frozen = all_names("florence") - trained_names("florence", policy)
    assert frozen == {name for name in all_names("florence") if name.startswith(("encoder.vision_", "encoder.proj"))}


@pytest.mark.parametrize("policy", ["pretraining", "finetuning"])
def test_gemmas_own_weights_stay_frozen(policy: str) -> None:
    names = trained_names("gemma", policy)
    first_layer = {name for name in names if name.startswith("decoder.layers.0.")}
    own = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm"}
    assert not any(part in name.split(".") for name in names for part in own if name.startswith("decoder"))
    assert len(first_layer) == 6  # four projections, norm and gate
    assert any("gate" in name and "mlp" not in name for name in first_layer)
    assert {name for name in names if name.startswith("decoder") and ".layers." not in name} == {
        "decoder.embed_tokens.weight"
    }
    assert "encoder.text_encoder.embed_tokens.weight" in names


@pytest.mark.parametrize("family", ["florence", "gemma"])
def test_all_and_cross_attention(family: str) -> None:
    assert trained_names(family, "all") == all_names(family)
    only = trained_names(family, "cross-attention")
    assert only
    assert all(name.startswith("decoder.layers.") and "encoder_att" in name for name in only)


@pytest.mark.parametrize("family", ["florence", "gemma"])
def test_text_trains_all_but_the_vision(family: str) -> None:
    frozen = all_names(family) - trained_names(family, "text")
    assert frozen == {name for name in all_names(family) if name.startswith(("encoder.vision_", "encoder.proj"))}


def test_a_policy_undoes_the_one_before() -> None:
    model = model_of("gemma")
    apply_policy(apply_policy(model, "cross-attention"), "all")
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_table_sums_to_the_model() -> None:
    model = apply_policy(model_of("gemma"), "pretraining")
    table = training_table(model)
    assert sum(row.num_parameters for row in table) == sum(parameter.numel() for parameter in model.parameters())
    trained = {row.module: row.num_trained for row in table}
    assert trained["vision tower"] == trained["projector"] == trained["decoder"] == 0
    assert all(0 < row.num_trained == row.num_parameters for row in table if row.num_trained)


def test_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'finetuning'"):
        apply_policy(model_of("gemma"), "fine-tuning")
