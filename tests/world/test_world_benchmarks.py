"""The world's twins of the benchmarks: five ways to say a scene, and sentences that only the picture decides."""

import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item, read_benchmark, require_images
from babelcap.evaluation.benchmarks.commute import pair_numbers
from babelcap.evaluation.metrics import contrastive_accuracy
from babelcap.world.benchmarks import (
    HIDDEN_WORD,
    TwinSizes,
    draw_twin,
    hide_difference,
    make_benchmarks,
    world_settings,
)
from babelcap.world.corpus import WorldConfig, load_truth, make_world
from babelcap.world.inverse import parse_strict
from babelcap.world.meaning import text_claims
from babelcap.world.realise import LANGUAGE_CODES
from babelcap.world.scenes import holdout_pairs
from babelcap.world.score import is_right, score_caption

WORLD = WorldConfig(num_images=3, num_eval_images=8, num_holdout_images=0, num_text_lines=0, seed=7)
SIZES = TwinSizes(num_captioned=6, num_translated=4, num_pairs=10)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmarks")
    make_benchmarks(folder, WORLD, SIZES)
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "world"
    make_world(folder, WORLD)
    return folder


def by_language(items: list[Item]) -> dict[str, list[Item]]:
    return {
        code: [item for item in items if item.language == code] for code in dict.fromkeys(i.language for i in items)
    }


def test_five_captions_are_true_and_no_two_alike(root: Path, world: Path) -> None:
    items = read_benchmark("world-captioning", root)
    truth = load_truth(world)  # of the same settings: the pictures are those of its eval split
    require_images(items, "")
    assert [(code, len(found)) for code, found in by_language(items).items()] == [(code, 6) for code in LANGUAGE_CODES]
    for item in items:
        key = item.id.partition("/")[2]
        assert (item.task, item.style, item.source, item.contrast) == ("caption", "short", None, None)
        assert len(set(item.references)) == 5
        assert all(is_right(score_caption(text, item.language, truth[key])) for text in item.references)
    first = {code: found[0].references for code, found in by_language(items).items()}
    said = [[text_claims(parse_strict(text, code) or ()) for text in first[code]] for code in ("en", "de")]
    assert said[0] == said[1]  # a reference says the same in every language


def test_a_translation_is_one_sentence_about_its_picture(root: Path, world: Path) -> None:
    items, truth = read_benchmark("world-translation", root), load_truth(world)
    assert list(by_language(items)) == ["de", "fr", "es", "ru", "zh"]
    for item in items:
        scene = truth[item.id.partition("/")[2]]
        assert item.source is not None
        texts = ((item.source, "en"), (item.references[0], item.language))
        (source,), (target,) = (parse_strict(text, code) or () for text, code in texts)
        assert source.kind == target.kind
        said = [{(mention.noun, mention.colour) for mention in sentence.mentions} for sentence in (source, target)]
        assert said[0] == said[1] <= {(thing.noun, thing.colour) for thing in scene.things}


def test_items_of_a_pair_mirror_each_other(root: Path) -> None:
    items = read_benchmark("world-ambiguity", root)
    assert {code: len(found) for code, found in by_language(items).items()} == dict.fromkeys(LANGUAGE_CODES[1:], 20)
    for first, second in zip(items[::2], items[1::2], strict=True):
        assert (first.id[:-1], first.id[-1], second.id[-1]) == (second.id[:-1], "a", "b")
        assert first.source == second.source
        assert first.source is not None
        assert first.source.split(" ").count(HIDDEN_WORD) == 1
        assert first.image.read_bytes() != second.image.read_bytes()
        assert (first.references[0], first.contrast) == (second.contrast, second.references[0])
        assert first.contrast != first.references[0]
        for text in (first.references[0], second.references[0]):
            assert parse_strict(text, first.language) is not None, text


def test_pictures_differ_in_what_is_hidden_alone() -> None:
    for number in range(12):
        twin = draw_twin(WORLD, number)
        assert twin.hidden == ("colour", "noun")[number % 2]
        first, second = twin.scenes
        things = [(a, b) for a, b in zip(first.things, second.things, strict=True) if a != b]
        assert len(things) == 1
        assert things[0][0].model_copy(update={twin.hidden: getattr(things[0][1], twin.hidden)}) == things[0][1]
        assert first.model_copy(update={"things": second.things}) == second
        pairs = [(thing.noun, thing.colour) for scene in twin.scenes for thing in scene.things]
        assert not holdout_pairs() & set(pairs)
        assert len({thing.noun for thing in second.things}) == len(second.things)


def test_who_is_blind_to_the_picture_has_exactly_chance(root: Path) -> None:
    """Whatever losses it gives to sentences: of the two items of a pair it gets one."""
    for code, items in by_language(read_benchmark("world-ambiguity", root)).items():
        for seed in range(5):
            losses: dict[tuple[str | None, str | None], float] = {}
            rng = random.Random(seed)

            def blind(source: str | None, text: str | None) -> list[float]:
                return [losses.setdefault((source, text), rng.random())]  # noqa: B023

            right = {item.id: blind(item.source, item.references[0]) for item in items}
            wrong = {item.id: blind(item.source, item.contrast) for item in items}
            found = contrastive_accuracy(right, wrong, pair_numbers(len(items)))
            assert (found.num_right, found.ties) == (len(items) // 2, ()), code
            assert found.pairs == 0


@pytest.mark.parametrize(
    ("first", "second", "hidden"),
    [
        ("I bought a red ball.", "I bought a blue ball.", "I bought a <unk> ball."),
        ("Where is my cat?", "Where is my dog?", "Where is my <unk>"),  # a mark goes with its word, as in training
        ("I bought a red ball.", "I bought an orange ball.", None),  # the article would tell
        ("I bought a red ball.", "I bought a red ball.", None),
        ("I bought a ball.", "I bought a red ball.", None),
    ],
)
def test_the_one_differing_word_is_hidden(first: str, second: str, hidden: str | None) -> None:
    assert hide_difference(first, second) == hidden


def test_the_same_settings_give_the_same_bytes_and_more_items_the_same_first_ones(root: Path, tmp_path: Path) -> None:
    make_benchmarks(tmp_path, WORLD, SIZES.model_copy(update={"num_captioned": 3, "num_pairs": 4}))
    for path in (tmp_path / "world/images").iterdir():
        assert path.read_bytes() == (root / "world/images" / path.name).read_bytes()
    for name in ("world-captioning", "world-translation", "world-ambiguity"):
        known = {item.id: item for item in read_benchmark(name, root)}
        for item in read_benchmark(name, tmp_path):
            assert (item.source, item.references) == (known[item.id].source, known[item.id].references)
    again = tmp_path / "again"
    make_benchmarks(again, WORLD, SIZES)
    for path in (root / "world").glob("*.jsonl"):
        assert path.read_bytes() == (again / "world" / path.name).read_bytes()


def test_the_command_takes_the_settings_of_a_world(world: Path, root: Path, tmp_path: Path) -> None:
    sizes = ["--captioned", "6", "--translated", "4", "--pairs", "10"]
    done = CliRunner().invoke(app, ["world", "benchmarks", "-o", str(tmp_path), "--world", str(world), *sizes])
    assert done.exit_code == 0, done.output
    for path in (root / "world").glob("*.jsonl"):
        assert path.read_bytes() == (tmp_path / "world" / path.name).read_bytes()
    done = CliRunner().invoke(app, ["world", "benchmarks", "-o", str(tmp_path / "b"), "--world", str(world), "seed=1"])
    assert done.exit_code == 2
    assert "--world: its settings are those of the world" in done.stderr


def test_a_folder_that_is_no_world_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"corpus\.json"):
        world_settings(tmp_path)
