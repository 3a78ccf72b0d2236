"""What a build would cost, by hand-computed numbers."""

from pathlib import Path

import pytest

from babelcap.config import build_config, content_hash, load_config
from babelcap.errors import UserError
from babelcap.generate.config import BuildConfig
from babelcap.generate.cost import estimate

CONFIGS = Path(__file__).parent.parent.parent / "configs" / "data"


def test_the_published_size_without_any_data() -> None:
    config = load_config(BuildConfig, CONFIGS / "cc12m.toml")
    assert sum(config.cost.num_pairs.values()) == 1_196_500_000
    found = {row.stage: row for row in estimate(config).stages}
    assert found["caption"].num_items == 10_000_000
    assert found["caption"].gpu_hours == pytest.approx(10e6 / 3 / 3600)
    assert found["clean"].cpu_hours == pytest.approx(1_196_500_000 / 10_000 / 3600)
    assert found["embed texts"].num_bytes == pytest.approx(0.7 * 1_196_500_000 * (2 * 512 + 8))
    assert found["search"].gpu_hours == pytest.approx(1e7 * 0.7 * 1_196_500_000 * 1024 / 14e12 / 3600)
    assert found["embed images"].storage == "10.2 GB"
    assert estimate(config).total.gpu_hours == pytest.approx(sum(row.gpu_hours for row in found.values()))


def test_choices_change_the_estimate_and_not_the_dataset() -> None:
    config = load_config(BuildConfig, CONFIGS / "cc12m.toml")
    faiss = load_config(BuildConfig, CONFIGS / "cc12m.toml", ["align.index=faiss"])
    search = next(row for row in estimate(faiss).stages if row.stage == "search")
    assert search.gpu_hours == 0 < search.cpu_hours
    faster = load_config(BuildConfig, CONFIGS / "cc12m.toml", ["cost.caption_images_per_gpu=30"])
    assert estimate(faster).total.gpu_hours < estimate(config).total.gpu_hours
    assert content_hash(faster) == content_hash(config)


def test_a_missing_count_is_one_line() -> None:
    values = {"images": {"tars": ["x"]}, "coverage": {"languages": ["en", "de"], "splits": {}, "seen": ["caption-en"]}}
    with pytest.raises(UserError, match=r"cost\.num_images is not given"):
        estimate(build_config(BuildConfig, values))
