from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from babelcap.config import (
    ConfigModel,
    PlainName,
    build_config,
    content_hash,
    load_config,
    merge_values,
    resource,
    write_config,
)
from babelcap.coverage import Coverage, Pair
from babelcap.errors import UserError


class Optimiser(ConfigModel):
    learning_rate: float = 1e-4
    name: str = "adamw"
    clip: float | None = 1.0


class Stage(ConfigModel):
    num_steps: int
    optimiser: Optimiser = Optimiser()


class Settings(ConfigModel):
    run: str = "default"
    seed: int = 0
    image_size_px: int = 224
    optimiser: Optimiser = Optimiser()
    warm: Optimiser | None = None
    stages: tuple[Stage, ...] = ()
    named: dict[str, Stage] = Field(default_factory=dict)
    mix: str | dict[str, float] = "uniform"
    tags: tuple[str, ...] = ()
    coverage: Coverage = Coverage()
    folder: Path = Path("runs")
    num_workers: int = resource(0, ge=0)


def write(tmp_path: Path, text: str, name: str = "settings.toml") -> Path:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


def test_defaults_then_file_then_overrides(tmp_path: Path) -> None:
    path = write(tmp_path, "seed = 1\nimage_size_px = 64\n[optimiser]\nlearning_rate = 0.1\n")
    config = load_config(Settings, path, ["seed=2", "optimiser.name=lion"])
    assert (config.run, config.seed, config.image_size_px) == ("default", 2, 64)
    assert config.optimiser == Optimiser(learning_rate=0.1, name="lion")


@pytest.mark.parametrize(
    ("override", "field", "value"),
    [
        ("run=a b", "run", "a b"),
        ("run='quoted'", "run", "quoted"),
        ("run=007", "run", "007"),
        ("run=12", "run", "12"),
        ("run=1e3", "run", "1e3"),
        ("run=2024-01-01", "run", "2024-01-01"),
        ("run=true", "run", "true"),
        ("run=none", "run", "none"),
        ("run=", "run", ""),
        ("run=a=b", "run", "a=b"),
        ("run=#1", "run", "#1"),
        ("run=1\nseed=5", "run", "1\nseed=5"),
        (" seed = 3", "seed", 3),
        ("seed=1_000", "seed", 1000),
        ("tags=['a', 'b']", "tags", ("a", "b")),
        ("mix=task-balanced", "mix", "task-balanced"),
        ("mix={a = 1, b = 2.5}", "mix", {"a": 1.0, "b": 2.5}),
        ("mix.a=3", "mix", {"a": 3.0}),
        ("optimiser.clip=none", "optimiser", Optimiser(clip=None)),
        ("optimiser.clip=null", "optimiser", Optimiser(clip=None)),
        ("optimiser.name=5", "optimiser", Optimiser(name="5")),
        ("warm.clip=2", "warm", Optimiser(clip=2.0)),
        ("named.first.num_steps=4", "named", {"first": Stage(num_steps=4)}),
    ],
)
def test_override_syntax(override: str, field: str, value: Any) -> None:
    assert getattr(load_config(Settings, overrides=[override]), field) == value


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("seed", "override 'seed' is not of the form key=value"),
        ("=3", "is not of the form"),
        ("optimiser..name=a", "is not of the form"),
        ("seed.deep=3", "seed"),
        ("sed=3", "unknown key 'sed'; did you mean 'seed'?"),
        ("optimiser.learningrate=3", "unknown key 'optimiser.learningrate'; did you mean 'optimiser.learning_rate'?"),
        ("optimizer.clip=3", "unknown key 'optimizer'; did you mean 'optimiser'?"),
        ("warm.nam=a", "did you mean 'warm.name'?"),
        ("named.first.num_step=4", "unknown key 'named.first.num_step'; did you mean 'named.first.num_steps'?"),
        ("qqqq=1", "unknown key 'qqqq'; known: coverage, folder"),
        ("seed=fast", "seed: Input should be a valid integer, unable to parse string as an integer (found 'fast')"),
        ("seed=none", "seed: Input should be a valid integer (found None)"),
        ("num_workers=-1", "num_workers: Input should be greater than or equal to 0 (found -1)"),
        ("coverage.seen=['caption-it']", "coverage: seen: 'caption-it' is not a pair of the known languages"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_clear_line(override: str, words: str) -> None:
    with pytest.raises(UserError) as raised:
        load_config(Settings, overrides=[override])
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_value_is_not_a_block(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"override 'seed.deep=3': 'seed' is a value, not a block"):
        load_config(Settings, write(tmp_path, "seed = 1"), ["seed.deep=3"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[[stages]]\nnum_steps = 1\n[[stages]]\nnum_step = 2\n",
            "'stages.1.num_step'; did you mean 'stages.1.num_steps'?",
        ),
        ("[[stages]]\nnum_steps = 1\noptimiser.clp = 2\n", "did you mean 'stages.0.optimiser.clip'?"),
        ("[[stages]]\n", "stages.0.num_steps: Field required"),
        ("[named.a]\nnum_stps = 1\n", "did you mean 'named.a.num_steps'?"),
        ("[warm]\nclup = 1\n", "did you mean 'warm.clip'?"),
        ("optimiser = 3\n", "optimiser: Input should be a valid dictionary"),
        ("seed = 'a'\nimage_size_px = 'b'\n", "; and 1 more"),
        ("[[coverage.languages]]\ncod = 'it'\n", "did you mean 'coverage.languages.0.code'?"),
        ("seed = ", "is not valid TOML"),
        ("seed = 1\nseed = 2", "is not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_names_the_file_and_the_field(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError) as raised:
        load_config(Settings, path)
    assert str(path) in str(raised.value)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such configuration file"):
        load_config(Settings, tmp_path / "absent.toml")
    with pytest.raises(UserError, match="is a folder"):
        load_config(Settings, tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"run = '\xff'")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        load_config(Settings, tmp_path / "bytes.toml")
    with pytest.raises(UserError, match="expected an object, found a list"):
        load_config(Settings, write(tmp_path, "[]", "list.json"))
    with pytest.raises(UserError, match="is not valid JSON"):
        load_config(Settings, write(tmp_path, "{", "cut.json"))
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        load_config(Settings, tmp_path / "folder.json")


def test_a_long_value_is_not_repeated_whole() -> None:
    with pytest.raises(UserError) as raised:
        build_config(Settings, {"seed": list(range(10_000))})
    assert len(str(raised.value)) < 300


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().seed = 1  # type: ignore[misc]


@settings(deadline=None)
@given(
    seed=st.integers(),
    run=st.text(st.characters(codec="utf-8")),
    rate=st.floats(allow_nan=False, allow_infinity=False),
    clip=st.none() | st.floats(0, 10),
    tags=st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=3),
    warm=st.booleans(),
    mix=st.just("uniform") | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), st.floats(0, 9)),
)
def test_the_resolved_configuration_replays(tmp_path_factory: Any, warm: bool, **values: Any) -> None:
    optimiser = {"learning_rate": values.pop("rate"), "clip": values.pop("clip")}
    config = build_config(
        Settings,
        {**values, "optimiser": optimiser, "warm": optimiser if warm else None, "stages": [{"num_steps": 3}]},
    )
    path = tmp_path_factory.mktemp("replay") / "config.json"
    write_config(path, config)
    again = load_config(Settings, path)
    assert again == config
    assert content_hash(again) == content_hash(config)


def test_overrides_apply_to_a_replay_with_an_empty_optional_block(tmp_path: Path) -> None:
    write_config(tmp_path / "config.json", Settings())
    assert load_config(Settings, tmp_path / "config.json", ["warm.clip=3"]).warm == Optimiser(clip=3)


def test_the_hash_covers_what_affects_the_result() -> None:
    plain = content_hash(Settings())
    assert len(plain) == 16
    assert content_hash(Settings(num_workers=8)) == plain
    others = [
        Settings(seed=1),
        Settings(optimiser=Optimiser(clip=None)),
        Settings(stages=(Stage(num_steps=1),)),
        Settings(coverage=Coverage(seen=("caption-en",))),
        Settings(folder=Path("elsewhere")),
    ]
    hashes = [content_hash(other) for other in others]
    assert len({plain, *hashes}) == 1 + len(others)


def test_resources_are_left_out_of_the_hash_at_any_depth() -> None:
    class Inner(ConfigModel):
        size: int = 1
        device: str = resource("cpu")

    class Outer(ConfigModel):
        inner: Inner = Inner()
        listed: tuple[Inner, ...] = ()
        sets: frozenset[str] = frozenset()
        logging: Inner = resource(Inner())

    base = Outer(listed=(Inner(),), sets=frozenset("abc"))
    same = Outer(inner=Inner(device="gpu"), listed=(Inner(device="gpu"),), sets=frozenset("cba"), logging=Inner(size=9))
    assert content_hash(same) == content_hash(base)
    assert content_hash(Outer(listed=(Inner(size=2),))) != content_hash(Outer(listed=(Inner(),)))


def test_the_hash_is_pinned() -> None:
    """Run folders are named by it: a change makes every finished run look new."""
    assert content_hash(Optimiser()) == "3ad3a8287943ae13"


def test_a_language_is_added_by_configuration(tmp_path: Path) -> None:
    text = """
    [coverage]
    languages = ["en", "de", {code = "it", name = "Italian", nllb = "ita_Latn", prefix = "La foto", script = "Latn"}]
    seen = ["caption-en", "caption-de", "translation-de", "translation-it"]
    splits = {UC = ["caption-it"], ST = ["translation-it"], SC = ["caption-en", "caption-de"]}
    """
    coverage = load_config(Settings, write(tmp_path, text)).coverage
    assert coverage.hole == (Pair.parse("caption-it"),)
    assert coverage.prompt(Pair.parse("caption-it")) == "The target language is Italian. What does the image describe?"


def test_the_hole_is_moved_by_configuration() -> None:
    config = load_config(
        Settings,
        overrides=[
            "coverage.seen=['caption-en', 'caption-zh', 'translation-de', 'translation-zh']",
            "coverage.splits={UC = ['caption-de'], SC = ['caption-en', 'caption-zh'], ST = ['translation-de']}",
        ],
    )
    assert Pair.parse("caption-de") in config.coverage.hole
    assert config.coverage.is_seen(Pair.parse("caption-zh"))


@pytest.mark.parametrize(
    "name", ["x\ntouch INJ #", "../up", "a/b", "a b", "", ".hidden", "-o", "x;y", "x$(y)", "é", "a" * 201]
)
def test_a_name_that_becomes_a_path_or_a_job_is_plain(name: str) -> None:
    class Named(ConfigModel):
        name: PlainName

    with pytest.raises(UserError, match="letters, digits") as raised:
        build_config(Named, {"name": name})
    assert "\n" not in str(raised.value)
    assert build_config(Named, {"name": "pretrain-0.4B_v2"}).name == "pretrain-0.4B_v2"


def test_layers_merge_blocks_and_replace_values() -> None:
    from babelcap.training.config import TrainConfig

    below = {"batch_size": 8, "data": {"split": "a", "mixture": {"weights": {"caption-en": 1.0}}}}
    above = {"data": {"mixture": {"weights": {"caption-de": 2.0}}, "num_workers": 0}}
    assert merge_values(TrainConfig, below, above) == {
        "batch_size": 8,
        "data": {"split": "a", "num_workers": 0, "mixture": {"weights": {"caption-de": 2.0}}},
    }
