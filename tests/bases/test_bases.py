"""Base models in small: what they learn from, how they are named, and that the surgery takes them as they are."""

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, Florence2ForConditionalGeneration, Gemma2ForCausalLM

from babelcap.bases import recipe as bases
from babelcap.bases.config import BaseConfig
from babelcap.bases.recipe import (
    DECODER_TOKENIZER,
    Base,
    build_part,
    build_parts,
    florence_base,
    gemma_base,
    needed_bases,
    ship_bases,
    shipped_weights,
    split_size,
    tower_base,
)
from babelcap.bases.text import captioning_example, decoder_tensors, language_line, sorted_batches
from babelcap.bases.tower import ATTRIBUTES, NOTHING, cover, labelled_pictures, picture_scene
from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.surgery.prepare import prepare
from babelcap.world.parser import guess_language
from babelcap.world.realise import LANGUAGE_CODES
from babelcap.world.render import render
from babelcap.world.scenes import NOUNS, Scene, Thing, generator, holdout_pairs

TINY = BaseConfig(
    num_pictures=6,
    num_decoder_tokens=800,
    num_encoder_tokens=350,
    tower_steps=2,
    tower_batch_size=4,
    caption_steps=2,
    caption_batch_size=4,
    language_steps=2,
    language_batch_size=4,
    variants={"english": {"en": 1.0}, "balanced": {"en": 1.0, "zh": 1.0}},
    use_shipped=False,
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bases")
    build_parts(folder, TINY, ["micro-gemma-s"], ["balanced"])
    return folder


def test_a_thing_is_found_in_the_cells_it_covers() -> None:
    scene = Scene(
        things=(Thing(noun="ball", colour="red", size="big"), Thing(noun="car", colour="blue", size="big")),
        relation="left_of",
        ground="grass",
    )
    image = render(scene, generator(0, "p", 0), 64)
    covered = cover(scene, image, 0, "p", 0)
    assert covered.shape == (2, 4, 4)
    assert covered[0, :, :2].sum() > 5 * covered[0, :, 2:].sum()
    assert covered[1, :, 2:].sum() > 5 * covered[1, :, :2].sum()
    assert covered[0, 1:3, 1].min() > 0.3


def test_pictures_are_labelled_by_their_scenes_and_never_show_a_held_out_pair() -> None:
    pictures = labelled_pictures(20, seed=3)
    for number in range(20):
        scene = picture_scene(3, "tower", number)
        nouns = {NOUNS[label] for label in pictures.cells["noun"][number].unique().tolist() if label < len(NOUNS)}
        assert nouns == {thing.noun for thing in scene.things}
        assert not {(thing.noun, thing.colour) for thing in scene.things} & holdout_pairs()
    empty = pictures.cells["noun"] == len(NOUNS)
    assert all((pictures.cells[name][empty] == NOTHING).all() for name in ATTRIBUTES if name != "noun")
    assert torch.equal(labelled_pictures(20, seed=3, with_cells=False).pixels, pictures.pixels)


def test_shares_decide_the_languages_of_the_text() -> None:
    lines = [language_line({"en": 0.5, "ru": 0.5, "zh": 0.0}, 0, index) for index in range(60)]
    found = {guess_language(line) for line in lines}
    assert found == {"en", "ru"}
    assert lines == [language_line({"en": 0.5, "ru": 0.5, "zh": 0.0}, 0, index) for index in range(60)]


def test_captioning_examples_are_english_and_some_hide_words() -> None:
    scenes = [picture_scene(0, "tower", number) for number in range(5)]
    examples = [captioning_example(scenes, 0, index, "<unk>") for index in range(60)]
    assert {guess_language(example.target) for example in examples} == {"en"}
    hidden = [example for example in examples if "<unk>" in example.prompt]
    assert 5 < len(hidden) < 40
    assert all("<unk>" not in example.target for example in examples)


def test_batches_hold_every_sample_once_and_are_of_like_length() -> None:
    lengths = [(7 * place) % 40 for place in range(100)]
    batches = list(sorted_batches(lengths, 8, seed=0))
    assert sorted(place for batch in batches for place in batch) == list(range(100))
    widths = [max(lengths[place] for place in batch) - min(lengths[place] for place in batch) for batch in batches]
    assert max(widths) < 8


def test_decoder_inputs_are_the_labels_one_place_later_behind_eos(built: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(built / gemma_base(TINY, "s", "balanced").name)
    inputs, labels = decoder_tensors([[2, 9, 8, 1], [2, 9, 1]], tokenizer)
    assert inputs.tolist() == [[1, 2, 9, 8], [1, 2, 9, 0]]
    assert labels.tolist() == [[2, 9, 8, 1], [2, 9, 1, -100]]


def test_bases_are_transformers_own_models(built: Path) -> None:
    florence = built / florence_base(TINY, "s").name
    model = Florence2ForConditionalGeneration.from_pretrained(florence)
    tokenizer = AutoTokenizer.from_pretrained(florence)
    prompt = tokenizer("What does the image describe?", return_tensors="pt")["input_ids"]
    ids = torch.cat([torch.full((1, 17), model.config.image_token_id), prompt], dim=1)
    output = model(input_ids=ids, pixel_values=torch.zeros(1, 3, 64, 64), labels=prompt)
    assert output.loss.isfinite()
    language_model = Gemma2ForCausalLM.from_pretrained(built / gemma_base(TINY, "s", "balanced").name)
    assert language_model(input_ids=torch.tensor([[1, 2, 9]])).logits.shape[:2] == (1, 3)


@pytest.mark.parametrize("family", ["gemma", "florence"])
def test_the_surgery_makes_captioners_of_them(built: Path, tmp_path: Path, family: str) -> None:
    size, florence = f"micro-{family}-s", built / florence_base(TINY, "s").name
    gemma = built / gemma_base(TINY, "s", "balanced").name if family == "gemma" else florence / DECODER_TOKENIZER
    report = prepare(size, florence, gemma, tmp_path / "model", seed=1)
    assert report["size"] == size
    model = load_model(tmp_path / "model")
    base = Florence2ForConditionalGeneration.from_pretrained(florence)
    pixels = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    expected = base.get_image_features(pixels).pooler_output
    torch.testing.assert_close(model.encode_images(pixels), expected)
    if family == "gemma":
        ids = torch.tensor([[1, 2, 9, 8, 300]])
        alone = Gemma2ForCausalLM.from_pretrained(gemma)
        logits = model(input_ids=torch.tensor([[0, 5, 2]]), pixel_values=pixels, decoder_input_ids=ids).logits
        torch.testing.assert_close(logits, alone(input_ids=ids).logits)  # the gate is shut: Gemma itself


def test_built_once_and_the_same_again(built: Path, tmp_path: Path) -> None:
    base = gemma_base(TINY, "s", "balanced")
    before = (built / base.name / "recipe.json").stat().st_mtime_ns
    assert build_part(built, TINY, base) == built / base.name
    assert (built / base.name / "recipe.json").stat().st_mtime_ns == before
    again = build_part(tmp_path, TINY, base)
    first, second = (Gemma2ForCausalLM.from_pretrained(place / base.name) for place in (built, tmp_path))
    assert again.name == base.name
    for (name, one), (_, two) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert torch.equal(one, two), name


def test_names_follow_what_a_base_is_made_of() -> None:
    longer = TINY.model_copy(update={"language_steps": 3})
    assert gemma_base(longer, "s", "english").name != gemma_base(TINY, "s", "english").name
    assert florence_base(longer, "s").name == florence_base(TINY, "s").name
    assert [base.kind for base in needed_bases(TINY, "micro-gemma-s", "english")] == ["tower", "florence", "gemma"]
    assert [base.kind for base in needed_bases(TINY, "micro-florence-s", "english")] == ["tower", "florence"]


def test_a_letter_may_have_a_rate_of_its_own() -> None:
    rated = TINY.model_copy(update={"caption_learning_rate_of": {"m": 5e-4}})
    assert florence_base(rated, "m").recipe["caption_learning_rate"] == 5e-4
    assert florence_base(rated, "s").name == florence_base(TINY, "s").name
    assert gemma_base(rated, "m", "balanced").name == gemma_base(TINY, "m", "balanced").name


def test_shipped_bases_equal_built_ones_and_damage_is_seen(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [tower_base(TINY), florence_base(TINY, "s"), gemma_base(TINY, "s", "balanced")]
    ship_bases(built, tmp_path / "shipped", parts[:1])
    ship_bases(built, tmp_path / "shipped", parts[1:])  # adds to the list
    monkeypatch.setattr(bases, "files", lambda package: tmp_path)
    config = TINY.model_copy(update={"use_shipped": True})
    for part in parts:
        place = build_part(tmp_path / "installed", config, part)
        name = "tower.safetensors" if part.kind == "tower" else "model.safetensors"
        assert (place / name).read_bytes() == (built / part.name / name).read_bytes()
        assert '"shipped": true' in (place / "recipe.json").read_text()
    path = tmp_path / "shipped" / f"{parts[2].name}.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="damaged"):
        shipped_weights(parts[2])
    assert shipped_weights(Base("gemma", "s", "unknown", {})) is None


def test_what_cannot_be_built_is_said_clearly() -> None:
    with pytest.raises(UserError, match=r"size '0.4B' has no base in small"):
        split_size("0.4B")
    with pytest.raises(UserError, match=r"unknown variant 'french'; base.variants has english, balanced"):
        gemma_base(TINY, "s", "french")
    with pytest.raises(ValueError, match="the world speaks"):
        BaseConfig(variants={"x": {"it": 1.0}})
    assert set(BaseConfig().variants["balanced"]) == set(LANGUAGE_CODES)
