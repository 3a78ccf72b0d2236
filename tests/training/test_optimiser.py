"""Which weights decay, and which have a rate of their own."""

from collections.abc import Callable

import pytest

from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.flops import meta_captioner
from babelcap.models.sizing.freezing import apply_policy
from babelcap.models.sizing.sizes import size_config
from babelcap.training.config import OptimiserConfig
from babelcap.training.optimiser import make_optimiser, parameter_groups, set_learning_rate


@pytest.fixture
def model() -> Captioner:
    return apply_policy(meta_captioner(size_config("micro-gemma-s")), "text")  # type: ignore[return-value]


def names_in(model: Captioner, config: OptimiserConfig, wanted: Callable[[dict], bool]) -> set[str]:
    ids = {id(parameter) for group in parameter_groups(model, config) if wanted(group) for parameter in group["params"]}
    return {name for name, parameter in model.named_parameters() if id(parameter) in ids}


def test_every_weight_that_trains_is_in_one_group(model: Captioner) -> None:
    groups = parameter_groups(model, OptimiserConfig())
    listed = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(listed) == sorted(id(parameter) for parameter in model.parameters() if parameter.requires_grad)
    decayed = names_in(model, OptimiserConfig(), lambda group: group["weight_decay"] > 0)
    assert "decoder.layers.0.mlp.up_proj.weight" in decayed
    assert not any("norm" in name or "gate" in name.rpartition(".")[2] or "embed_positions" in name for name in decayed)


def test_gates_and_cross_attention_have_rates_of_their_own(model: Captioner) -> None:
    config = OptimiserConfig(learning_rate=0.1, gate_rate_factor=20.0, cross_attention_rate_factor=2.0)
    gates = names_in(model, config, lambda group: group["rate_factor"] == 20.0)
    assert gates == {f"decoder.layers.{layer}.encoder_attn_gate" for layer in range(2)}
    crossed = names_in(model, config, lambda group: group["rate_factor"] == 2.0)
    assert crossed
    assert all("encoder_att" in name for name in crossed)
    optimiser = make_optimiser(model, config)
    set_learning_rate(optimiser, 0.01)
    assert {round(group["lr"], 6) for group in optimiser.param_groups} == {0.01, 0.02, 0.2}
