"""The published sizes have the published numbers of parameters; the micro ones are micro and run."""

import pytest
import torch

from babelcap.errors import UserError
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.flops import meta_captioner
from babelcap.models.sizing.freezing import apply_policy, training_table
from babelcap.models.sizing.sizes import SIZES, get_size, size_config

PUBLISHED = {  # P and Pt of pretraining in millions, as the paper's facts have them
    "0.4B": (428.8, 337.6),
    "1.0B": (1039.7, 676.9),
    "3.5B": (3485.0, 1097.6),
    "11.2B": (11221.8, 2534.8),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_equal_the_published_ones(name: str) -> None:
    table = training_table(apply_policy(meta_captioner(size_config(name)), "pretraining"))
    found = [sum(row.num_parameters for row in table) / 1e6, sum(row.num_trained for row in table) / 1e6]
    assert found == pytest.approx(PUBLISHED[name], rel=1e-4)


@pytest.mark.parametrize("name", [name for name in SIZES if name.startswith("micro")])
def test_micro_sizes_run_forward_and_backward(name: str) -> None:
    torch.manual_seed(0)
    model = Captioner(size_config(name, encoder_vocab_size=60, decoder_vocab_size=90))
    assert sum(parameter.numel() for parameter in model.parameters()) < (6e6 if name.endswith("-xl") else 2.5e6)
    assert model.config.image_size_px == 64
    labels = torch.randint(90, (2, 7), generator=torch.Generator().manual_seed(0))
    output = model(input_ids=labels % 60, pixel_values=torch.zeros(2, 3, 64, 64), labels=labels, logits_needed=False)
    output.loss.backward()
    assert output.image_features.shape[1] == 17
    assert output.loss.isfinite()
    assert model.decoder.embed_tokens.weight.grad is not None


def test_cross_attention_in_every_second_layer() -> None:
    config = size_config("3.5B", cross_attention_every=2)
    assert len(config.decoder_config.layers_with_cross_attention()) == 13


@pytest.mark.parametrize(("wrong", "near"), [("0.4b", "0.4B"), ("3.4B", "3.5B"), ("micro-gemma", "micro-gemma-s")])
def test_unknown_size_names_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(UserError, match=f"unknown size '{wrong}'; did you mean '{near}'"):
        get_size(wrong)
