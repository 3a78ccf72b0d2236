"""A picture's scene without its picture: what the world's truth says, for every split."""

from pathlib import Path

import pytest

from babelcap.errors import UserError
from babelcap.world.corpus import WorldConfig, load_truth, make_world, scene_of


def test_scenes_are_those_of_the_truth(tmp_path: Path) -> None:
    config = WorldConfig(num_images=5, num_eval_images=4, num_holdout_images=3, num_text_lines=4, seed=3)
    make_world(tmp_path / "world", config)
    truth = load_truth(tmp_path / "world")
    assert len(truth) == 12
    assert {key: scene_of(config, key) for key in truth} == truth
    assert scene_of(config.model_copy(update={"seed": 4}), "000000005") != truth["000000005"]
    for key in ("000000012", "5", "x", "-00000001"):
        with pytest.raises(UserError, match="is no picture of this world"):
            scene_of(config, key)
