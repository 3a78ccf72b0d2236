"""A checkpoint knows what it was trained on, so that a prefix is given where it is needed and nowhere else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

import babelcap
from babelcap.coverage import Coverage
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems import SystemOptions, open_system
from babelcap.languages import LANGUAGES
from babelcap.models import import_checkpoint, load_model
from babelcap.training.config import TrainConfig
from babelcap.training.run import train

MakeConfig = Callable[..., TrainConfig]
CODES = [language.code for language in LANGUAGES]
SHORT = {"num_beams": 1, "max_new_tokens": 4}


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("picture") / "red.png"
    Image.new("RGB", (32, 32), "red").save(path)
    return path


def prefixed(model: Path, picture: Path) -> list[str]:
    """The languages that get their prefix."""
    results = babelcap.load(model, device="cpu").caption(picture, CODES, **SHORT)
    return [result.request.language for result in results if result.prefix]


def trained(config: TrainConfig) -> Path:
    train(config)
    return config.output / "budget-000001" / "model"


def test_the_prefix_stops_after_fine_tuning_on_full_coverage(
    make_config: MakeConfig, tmp_path: Path, picture: Path
) -> None:
    common = {"budgets": [1], "batch_size": 4, "parallel__micro_batch_size": 4}
    pretrained = trained(make_config(**common, output=str(tmp_path / "pretrained")))
    assert prefixed(pretrained, picture) == ["fr", "es", "ru", "zh"]
    tuned = make_config(
        **common,
        model=str(pretrained),
        output=str(tmp_path / "tuned"),
        policy="finetuning",
        coverage={"seen": [str(pair) for pair in Coverage().all_pairs]},
        data__split="eval",
    )
    folder = trained(tuned)
    assert prefixed(folder, picture) == []
    import_checkpoint(folder, tmp_path / "imported")
    pipeline = babelcap.load(folder, device="cpu")
    pipeline.model.save_pretrained(tmp_path / "saved")
    pipeline.processor.save_pretrained(tmp_path / "saved")
    for kept in ("imported", "saved"):
        assert load_model(tmp_path / kept).config.get_coverage().hole == ()
    items = [Item(code, picture, code, "caption") for code in CODES]
    options = SystemOptions(device="cpu", **SHORT)
    auto, none = (
        open_system(str(tmp_path / "imported"), replace(options, prefix=mode)).caption(items)  # type: ignore[arg-type]
        for mode in ("auto", "none")
    )
    assert auto == none
    assert "- Never trained on: nothing" in (folder / "README.md").read_text()
    narrow = {"seen": ["caption-fr", "translation-fr"]}  # what was seen before stays seen
    more = make_config(
        **common, model=str(pretrained), output=str(tmp_path / "more"), coverage=narrow, data__split="eval"
    )
    assert prefixed(trained(more), picture) == ["es", "ru", "zh"]


def test_coverage_after_another() -> None:
    first, second = Coverage(seen=("caption-en", "caption-de")), Coverage(seen=("caption-fr", "caption-en"))
    assert second.after(first).seen == ("caption-fr", "caption-en", "caption-de")
    few = Coverage(languages=("en", "fr"), seen=("caption-fr",), splits={})  # type: ignore[arg-type]
    assert few.after(first).seen == ("caption-fr", "caption-en"), "a language that is gone is not added"
    assert first.after(first) == first
