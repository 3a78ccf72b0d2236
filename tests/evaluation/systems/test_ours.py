"""A captioner of this package as a system: the prefix, the published format, losses by hand from the logits."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import babelcap
from babelcap.coverage import caption_prompt, translation_prompt
from babelcap.data.feed.text import encode_after_prefix
from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems import SystemOptions, open_system
from babelcap.languages import find_language
from babelcap.models import CaptionProcessor

open_once = cache(open_system)  # where nothing is changed in a model's folder
load_once = cache(babelcap.load)
OPTIONS = SystemOptions(device="cpu", num_beams=2, max_new_tokens=6, batch_size=4)


def items_of(pictures: Sequence[Path], *codes: str) -> list[Item]:
    return [Item(f"{code}/{path.stem}", path, code, "caption") for code in codes for path in pictures]


def test_what_is_scored_follows_the_prefix(ours: Path, pictures: list[Path]) -> None:
    system = open_once(str(ours), OPTIONS)
    items = items_of(pictures[:2], "en", "fr", "zh")
    found = system.caption(items)
    pipeline = load_once(ours, device="cpu")
    for item, answer in zip(items, found, strict=True):
        (result,) = pipeline.caption(item.image, item.language, num_beams=2, max_new_tokens=6)
        assert answer.raw == result.text
        assert answer.text.lower() == result.without_prefix.strip().lower()
        assert answer.text[:1] == answer.text[:1].upper()
        prefix = "" if item.language == "en" else find_language(item.language).prefix
        assert answer.raw.startswith(prefix)
        assert not answer.text.startswith(prefix or "-")
    without = open_once(f"ours:{ours}", replace(OPTIONS, prefix="none")).caption(items)
    assert without[:2] == found[:2]
    assert without[2:] != found[2:]
    assert not any(answer.raw.startswith("La photo") for answer in without[2:4])


def test_a_translation_has_no_prefix(ours: Path, pictures: list[Path]) -> None:
    items = [
        Item(str(n), path, code, "translation", source="the red dog")
        for n, (path, code) in enumerate(zip(pictures, ("fr", "de", "fr"), strict=True))
    ]
    plain = open_once(str(ours), OPTIONS).translate(items)
    always = open_once(str(ours), replace(OPTIONS, prefix="always")).translate(items)
    assert plain == always
    assert not plain[0].raw.startswith("La photo montre")


def losses_by_hand(folder: Path, item: Item, prompt: str, target: list[int]) -> list[float]:
    """From the logits of one sample, without padding, chunks or cached pictures."""
    pipeline = load_once(folder, device="cpu")
    inputs = pipeline.processor([item.image], [prompt])
    start = pipeline.model.config.decoder_start_token_id
    decoded = torch.tensor([[start, *target[:-1]]])
    with torch.no_grad():
        logits = pipeline.model(**inputs, decoder_input_ids=decoded).logits[0]
    return [-float(row.log_softmax(-1)[token]) for row, token in zip(logits, target, strict=True)]


def test_losses_are_those_of_the_logits(ours: Path, own_processor: CaptionProcessor, pictures: list[Path]) -> None:
    system, tokenizer = open_once(str(ours), OPTIONS), own_processor.decoder_tokenizer
    french, german = find_language("fr"), find_language("de")
    source = "the bat lies on the grass"
    items = [
        Item("a", pictures[0], "de", "translation", source=source),
        Item("b", pictures[0], "fr", "caption"),
        Item("c", pictures[1], "de", "caption", "detailed"),
    ]
    answers = ["ein Hund liegt im Gras", "un chien", "Ball"]
    found = system.token_losses(items, answers)
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in answers]
    whole = [[tokenizer.bos_token_id, *row, tokenizer.eos_token_id] for row in ids]
    after, num_given = encode_after_prefix(tokenizer, french, [answers[1]], 100)
    assert found[0] == pytest.approx(
        losses_by_hand(ours, items[0], translation_prompt(german, source), whole[0]), abs=1e-5
    )
    expected = losses_by_hand(ours, items[1], caption_prompt(french), after[0])
    assert found[1] == pytest.approx(expected[num_given:], abs=1e-5)
    assert len(found[1]) == len(ids[1]) + 1, "what follows the prefix, and the end"
    detailed = "The target language is German. Describe in detail what is shown in the image."
    assert found[2] == pytest.approx(losses_by_hand(ours, items[2], detailed, whole[2]), abs=1e-5)
    with pytest.raises(UserError, match="the answer has more tokens than the decoder takes"):
        system.token_losses(items[:1], ["ein " * 5000])


def test_published_checkpoints_are_systems(
    golden_fixtures: Path, own_processor: CaptionProcessor, tmp_path: Path, pictures: list[Path]
) -> None:
    folder, tokenizers = tmp_path / "published", tmp_path / "tokenizers"
    folder.mkdir()
    for theirs, ours in (
        ("config.json", "reference_config.json"),
        ("model.safetensors", "reference_weights.safetensors"),
    ):
        shutil.copy(golden_fixtures / "florence2" / ours, folder / theirs)
    own_processor.save_pretrained(tokenizers)
    values = json.loads((folder / "config.json").read_text())["text_config"]
    assert len(own_processor.decoder_tokenizer) <= min(values["vocab_size"], values["encoder_vocab_size"])
    options = replace(
        OPTIONS,
        image_size_px=64,
        encoder_tokenizer=str(tokenizers / "encoder_tokenizer"),
        decoder_tokenizer=str(tokenizers / "decoder_tokenizer"),
    )
    system: Any = open_system(str(folder), options)
    assert system.identity["image_size_px"] == 64
    assert system.identity["encoder_tokenizer"] != "own"
    found = system.caption(items_of(pictures, "de", "es"))
    assert [answer.raw.startswith("La imagen muestra") for answer in found] == [False] * 3 + [True] * 3


def test_a_language_or_pair_that_it_has_not_is_one_line(ours: Path, pictures: list[Path]) -> None:
    system = open_once(str(ours), OPTIONS)
    with pytest.raises(
        UserError, match=r"ours cannot do this caption \(th/0 .*languages for it: en, de, fr, es, ru, zh"
    ):
        system.caption(items_of(pictures, "th"))
    english = Item("x", pictures[0], "en", "translation", source="the dog")
    with pytest.raises(
        UserError, match=r"ours cannot do this translation .*: its languages for it: de, fr, es, ru, zh"
    ):
        system.translate([english])
    with pytest.raises(UserError, match="no shortlist of 'en'"):
        open_once(str(ours), replace(OPTIONS, shortlist=True)).caption(items_of(pictures, "en"))


def test_identity_tells_apart_what_answers_apart(ours: Path, tmp_path: Path) -> None:
    first = dict(open_once(str(ours), OPTIONS).identity)
    assert json.loads(json.dumps(first)) == first
    for change in (
        {"prefix": "none"},
        {"image_size_px": 64},
        {"num_beams": 3, "shortlist": True},
    ):
        assert dict(open_system(str(ours), replace(OPTIONS, **change)).identity) != first, change
    copy = tmp_path / "copy"
    shutil.copytree(ours, copy)
    assert dict(open_system(str(copy), OPTIONS).identity) == first, "where it lies does not matter"
    config = json.loads((copy / "processor_config.json").read_text())
    (copy / "processor_config.json").write_text(json.dumps(config | {"max_prompt_tokens": 77}))
    (copy / "manifest.json").unlink()
    assert dict(open_system(str(copy), OPTIONS).identity) != first
