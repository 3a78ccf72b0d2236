"""A study of seconds: one small model, few steps, with its controls and fine-tuning."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from babelcap.config import build_config
from babelcap.study.config import StudyConfig
from tiny_study import tiny_values


@pytest.fixture(scope="session")
def values_of() -> Callable[..., dict[str, Any]]:
    return tiny_values


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., StudyConfig]:
    """The configuration; keyword arguments take a setting's place, `evaluation__num_captions` one in a block."""

    def make(output: Path | None = None, **changes: Any) -> StudyConfig:
        return build_config(StudyConfig, tiny_values(output or tmp_path / "study", **changes))

    return make
