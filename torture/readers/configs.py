"""Configurations of every model, TOML and JSON, mutated: a configuration or one line for the user, nothing else."""

import importlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticUndefined

from babelcap.config import ConfigModel, content_hash, load_config, write_config
from babelcap.coverage import Coverage, Task
from babelcap.generate.config import BuildConfig
from babelcap.languages import Language
from babelcap.study.config import StudyConfig
from babelcap.training.config import TrainConfig
from torture.readers.target import Target, put

SOURCE = Path(__file__).parents[2] / "src"
LANGUAGES = ("de", "fr", "es", "ru", "zh")
NESTED: Any = 1
for _ in range(60):
    NESTED = [NESTED]
JUNK: list[Any] = [
    None, True, 0, -1, 1, 2**63, -(2**70), 10**400, 0.5, 1e308, float("nan"), float("inf"), -0.0, "", " ", "x", "en",
    "caption-de", "caption-", "-", "a\nb", "a\0b", "\ud800", "\u202e", "é" * 3000, "1e9", "../../x", "{source}", "{",
    [], {}, [[]], [None], ["en", "en"], ["xx"], {"code": "it"}, {"": 1}, {"a": {"b": {}}}, {"name": "x"}, [{"name": 1}],
    NESTED, "2024-01-01", "inf",
]  # fmt: skip


def models() -> list[type[BaseModel]]:
    """Every configuration block of the source, wherever it is."""
    for path in sorted(SOURCE.rglob("*.py")):
        if "(ConfigModel)" in path.read_text(encoding="utf-8"):
            importlib.import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts))

    def below(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
        for sub in kind.__subclasses__():
            yield sub
            yield from below(sub)

    found = {model for model in below(ConfigModel) if model.__module__.startswith("babelcap.")}
    return [Language, Task, Coverage, *sorted(found, key=lambda model: (model.__module__, model.__name__))]


def plain_values(model: type[BaseModel], rng: random.Random) -> dict[str, Any]:
    """The defaults as a file would have them, and junk where there is none."""
    values = {}
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        if default is PydanticUndefined:
            values[name] = rng.choice(JUNK)
        else:
            values[name] = TypeAdapter(Any).dump_python(default, mode="json")
    return values


def mutate(values: Any, rng: random.Random) -> Any:
    """One place of a tree of values replaced, removed, renamed or doubled."""
    if not isinstance(values, dict | list) or not values or rng.random() < 0.25:
        return rng.choice(JUNK)
    keys = list(values) if isinstance(values, dict) else list(range(len(values)))
    key = rng.choice(keys)
    copy = dict(values) if isinstance(values, dict) else list(values)
    kind = rng.random()
    if kind < 0.7:
        copy[key] = mutate(values[key], rng)
    elif kind < 0.8:
        del copy[key]
    elif isinstance(copy, dict):
        copy[f"{key}{rng.choice(['', 'x', '.', 'é', chr(10)])}"] = copy[key]
    else:
        copy += copy[:50]
    return copy


def as_toml(value: Any) -> str:
    """Enough of TOML for the junk; what it has no word for becomes something that is no TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)


def write_mutated(path: Path, values: Any, rng: random.Random) -> None:
    if path.suffix == ".toml":
        rows = values.items() if isinstance(values, dict) else [("value", values)]
        text = "\n".join(f"{json.dumps(str(key))} = {as_toml(item)}" for key, item in rows if item is not None)
    else:
        text = json.dumps(values)
    content = bytearray(text.encode("utf-8", "surrogatepass"))
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(content) + 1)
            content[place : place + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 2))
    path.write_bytes(bytes(content))


def random_override(names: list[str], rng: random.Random) -> str:
    key = ".".join(rng.choices(names, k=rng.choice([1, 1, 2, 3, 2000])))
    value = rng.choice([json.dumps(rng.choice(JUNK)), "[" * rng.choice([3, 5000]), "9" * rng.choice([3, 5000]), "{}"])
    return f"{key}={value}"


def read_mutated(model: type[BaseModel], seed: int, folder: Path) -> None:
    rng = random.Random(f"{model.__name__}/{seed}")
    values: Any = plain_values(model, rng)
    for _ in range(rng.randint(0, 3)):
        values = mutate(values, rng)
    path = folder / rng.choice(["config.toml", "config.json"])
    write_mutated(path, values, rng)
    overrides = [random_override([*model.model_fields, "x", "", "a b"], rng)] if rng.random() < 0.4 else []
    config = load_config(model, path, overrides)
    content_hash(config)
    write_config(folder / "written.json", config)
    load_config(model, folder / "written.json")


def configurations(folder: Path) -> Target:
    """What users write by hand: of a training, a build and a study, as TOML and as JSON."""
    text = {"files": ["a.tsv"], "format": "tsv"}  # of each language that the default coverage translates to
    values: dict[type[BaseModel], dict[str, Any]] = {
        TrainConfig: {"model": "m", "data": {"corpus": "c"}, "budgets": [8, 16], "log": {"trackers": []}},
        BuildConfig: {
            "output": "o",
            "images": {"tars": ["i"]},
            "text": dict.fromkeys(LANGUAGES, text),
            "num_workers": 2,
        },
        StudyConfig: {"name": "s", "grid": [{"sizes": ["micro-gemma-s"], "budgets": [2], "seeds": [0]}]},
    }
    kinds = {}
    for model, given in values.items():
        toml = "\n".join(f"{name} = {as_toml(item)}" for name, item in given.items())
        kinds[put(folder / f"{model.__name__}.toml", toml)] = model
        kinds[put(folder / f"{model.__name__}.json", json.dumps(given))] = model
    whole = {path: path.read_bytes() for path in kinds}

    def read(out: Path) -> None:
        damaged = [path for path in kinds if path.read_bytes() != whole[path]] or list(kinds)
        for path in damaged:
            content_hash(load_config(kinds[path], path))

    return Target(list(kinds), read)
