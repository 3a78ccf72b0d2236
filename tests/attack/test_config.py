"""Mutated configurations, TOML and JSON, of every model: a configuration or one line for the user, nothing else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel

from babelcap.config import load_config
from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.languages import Language
from torture.readers.configs import models, read_mutated

Watch = Callable[[Callable[[], object], object], str]


@pytest.mark.parametrize("number", [40, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_mutated_configurations(model: type[BaseModel], number: int, tmp_path: Path, watch: Watch) -> None:
    told = [watch(lambda seed=seed: read_mutated(model, seed, tmp_path), seed) for seed in range(number)]  # type: ignore[misc]
    assert sum(map(bool, told)) > number / 8


@pytest.mark.parametrize(
    "values",
    [
        {"code": "../x"}, {"code": "a/b"}, {"code": ""}, {"code": "d\n"}, {"code": "é"}, {"name": "a\nb"}, {"name": ""},
        {"prefix": "\u2028"}, {"prefix": "a\tb"}, {"nllb": "deu Latn"}, {"script": "<i>"}, {"name": "x" * 201},
    ],
)  # fmt: skip
def test_what_a_language_may_not_be_called(values: dict[str, str], tmp_path: Path) -> None:
    row = {"code": "it", "name": "Italian", "nllb": "ita_Latn", "prefix": "L'immagine mostra", "script": "Latn"}
    assert Language(**row).code == "it"
    (tmp_path / "coverage.json").write_text(json.dumps({"languages": ["en", row | values]}), encoding="utf-8")
    with pytest.raises(UserError, match=rf"languages\.1\.{next(iter(values))}: "):
        load_config(Coverage, tmp_path / "coverage.json", ["seen=[]", "splits={}"])
