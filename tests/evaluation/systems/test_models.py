"""Every system on a tiny model of its class: texts and losses against transformers' generate, one item at a time."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from babelcap.data.feed.images import decode_image
from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems import Answer, System, SystemOptions, open_system

CHATS = ("gemma3", "pixtral", "qwen")
ANSWERS = ["the red dog", "blue ball", "the"]
OPTIONS = SystemOptions(device="cpu", num_beams=2, max_new_tokens=5)
SHORT = "Describe this image in one short sentence in English. Only answer with the caption."
# What each model reads, written out by hand: (prompt, what its text begins with).
CAPTION_PROMPTS = {
    "gemma3": "<bos><start_of_turn>user\nYou are a helpful assistant.<end_of_turn>\n<start_of_turn>user\n"
    f"<start_of_image>{SHORT}<end_of_turn>\n<start_of_turn>model\n",
    "pixtral": f"<s>[INST][IMG]{SHORT}[/INST]",
    "qwen": f"<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>{SHORT}<|im_end|>\n<|im_start|>assistant\n",
    "paligemma": "<image>caption en",
    "blip2": "a photo of",
    "florence2": "What does the image describe?",
}


class Forced(LogitsProcessor):
    """Lets generation say these tokens and no others."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = iter(ids)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        found = torch.full_like(scores, -torch.inf)
        found[:, next(self.ids)] = 0
        return found


def forced_losses(model: Any, inputs: dict[str, Any], ids: Sequence[int]) -> list[float]:
    """Step by step, by generation's own cache and masks."""
    made = model.generate(
        **inputs, logits_processor=LogitsProcessorList([Forced(ids)]), max_new_tokens=len(ids), do_sample=False,
        num_beams=1, output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    return [-float(step[0].log_softmax(-1)[token]) for step, token in zip(made.logits, ids, strict=True)]


def single_inputs(kind: str, system: Any, item: Item) -> dict[str, Any]:
    images = [decode_image(item.image)]
    options = {"add_special_tokens": False} if kind in CHATS else {}
    found = system.loaded.processor(images=images, text=[CAPTION_PROMPTS[kind]], **options)
    return {name: value for name, value in found.convert_to_tensors("pt").items() if name != "labels"}


def open_tiny(kind: str, request: pytest.FixtureRequest) -> System:
    return _open(f"{'chat' if kind in CHATS else kind}:{request.getfixturevalue(kind)}")


@cache
def _open(name: str) -> System:
    return open_system(name, OPTIONS)


def captions(pictures: Sequence[Path], language: str = "en", style: str = "short") -> list[Item]:
    return [Item(f"{language}/{number}", path, language, "caption", style) for number, path in enumerate(pictures)]


@pytest.mark.parametrize("kind", CAPTION_PROMPTS)
def test_captions_are_those_of_the_model_asked_directly(
    kind: str, request: pytest.FixtureRequest, pictures: list[Path]
) -> None:
    system: Any = open_tiny(kind, request)
    items = captions(pictures)
    found = system.caption(items)
    texts = []
    for item in items:
        inputs = single_inputs(kind, system, item)
        ids = system.loaded.model.generate(**inputs, num_beams=2, max_new_tokens=5, do_sample=False)[0]
        start = inputs["input_ids"].shape[1] if len(ids) > 6 else 0
        texts.append(system.loaded.processor.tokenizer.decode(ids[start:], skip_special_tokens=True))
    assert found == [Answer(text, text.strip()) for text in texts]
    assert len(set(texts)) > 1, "the picture must make a difference"


@pytest.mark.parametrize("kind", CAPTION_PROMPTS)
def test_losses_are_those_of_generation_step_by_step(
    kind: str, request: pytest.FixtureRequest, pictures: list[Path]
) -> None:
    system: Any = open_tiny(kind, request)
    items = captions(pictures)
    found = system.token_losses(items, ANSWERS)
    tokenizer = system.loaded.processor.tokenizer
    is_encoder_decoder = kind == "florence2"
    for item, answer, losses in zip(items, ANSWERS, found, strict=True):
        ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
        assert len(ids) == len(answer.split())
        told = [tokenizer.bos_token_id, *ids, tokenizer.eos_token_id] if is_encoder_decoder else ids
        expected = forced_losses(system.loaded.model, single_inputs(kind, system, item), told)
        assert losses == pytest.approx(expected[1:] if is_encoder_decoder else expected, abs=1e-4)
    assert found[0][0] != found[2][0], "the same first token after another picture"


@pytest.mark.parametrize("kind", CHATS)
def test_chat_models_translate_with_the_picture(
    kind: str, request: pytest.FixtureRequest, pictures: list[Path]
) -> None:
    system: Any = open_tiny(kind, request)
    items = [
        Item("de/0", pictures[0], "de", "translation", source="the bat lies on the grass"),
        Item("zh/0", pictures[1], "zh", "translation", source="the {source} {name}"),
    ]
    (first, second) = (system._rendered(item, None) for item in items)
    assert "Translate the following to German. Only answer with the translation.\n the bat lies on the grass" in first
    assert "to simplified Chinese. Only answer with the translation.\n the {source} {name}" in second
    together = system.translate(items)
    assert together == [*system.translate(items[:1]), *system.translate(items[1:])]
    losses = system.token_losses(items, ["ein Hund", "一 只 狗"])
    assert [len(row) for row in losses] == [2, 3]
    others = [replace(item, image=pictures[2]) for item in items]
    assert system.token_losses(others, ["ein Hund", "一 只 狗"]) != losses


@pytest.mark.parametrize(
    ("kind", "task", "language", "message"),
    [
        (
            "florence2",
            "translation",
            "de",
            r"florence2 cannot do this translation \(x asks for 'de'\): it captions only",
        ),
        (
            "florence2",
            "caption",
            "de",
            r"florence2 cannot do this caption \(x asks for 'de', short\): it captions in en",
        ),
        ("paligemma", "translation", "de", r"paligemma cannot do this translation .*: it has no prompt for it"),
        ("blip2", "caption", "fr", r"blip2 cannot do this caption .*: it captions in en only"),
        ("nllb", "caption", "de", r"nllb cannot do this caption .*: it sees no picture"),
    ],
)
def test_what_a_system_cannot_do_is_one_line(
    kind: str, task: str, language: str, message: str, request: pytest.FixtureRequest, pictures: list[Path]
) -> None:
    system = open_tiny(kind, request)
    item = Item("x", pictures[0], language, task, source="the dog" if task == "translation" else None)
    with pytest.raises(UserError, match=message):
        (system.caption if task == "caption" else system.translate)([item])


def test_chinese_pieces_are_joined(request: pytest.FixtureRequest, pictures: list[Path]) -> None:
    system: Any = open_tiny("paligemma", request)
    (item,) = captions(pictures[:1], "zh")
    assert system._text(item, "一 只 狗 ， red dog 在 草地 上 。") == "一只狗， red dog 在草地上。"
    assert system._text(replace(item, language="de"), " ein Hund ") == "ein Hund"
    detailed = captions(pictures[:1], "de", "detailed")
    with pytest.raises(UserError, match="styles of captions that it has a prompt for: short"):
        system.caption(detailed)


def sources(pictures: Sequence[Path]) -> list[Item]:
    rows = [("de", "the red dog lies on the grass"), ("fr", "the dog"), ("de", "a ball")]
    return [
        Item(f"{code}/{number}", pictures[number], code, "translation", source=text)
        for number, (code, text) in enumerate(rows)
    ]


def test_nllb_is_asked_language_by_language(request: pytest.FixtureRequest, pictures: list[Path]) -> None:
    system: Any = open_tiny("nllb", request)
    tokenizer, model = system.tokenizer, system.loaded.model
    items = sources(pictures)
    codes = {"de": "deu_Latn", "fr": "fra_Latn"}
    answers = ["ein roter Hund", "un chien", "Ball"]
    found, losses = system.translate(items), system.token_losses(items, answers)
    tokenizer.src_lang = "eng_Latn"
    for item, answer, text, row in zip(items, answers, found, losses, strict=True):
        inputs = dict(tokenizer([item.source], return_tensors="pt"))
        language = tokenizer.convert_tokens_to_ids(codes[item.language])
        ids = model.generate(**inputs, forced_bos_token_id=language, num_beams=2, max_new_tokens=5, do_sample=False)
        assert text.text == tokenizer.decode(ids[0], skip_special_tokens=True).strip()
        body = tokenizer(answer, add_special_tokens=False)["input_ids"]
        expected = forced_losses(model, inputs, [language, *body, tokenizer.eos_token_id])
        assert row == pytest.approx(expected[1:], abs=1e-4)
    with pytest.raises(UserError, match="it has no source text"):
        system.translate([replace(items[0], source=" ")])
    with pytest.raises(UserError, match="does not know Spanish"):
        system.translate([replace(items[0], language="es")])


def test_a_cascade_is_its_two_halves(
    blip2: Path, nllb: Path, request: pytest.FixtureRequest, pictures: list[Path]
) -> None:
    cascade = open_system(f"cascade:{blip2}+{nllb}", OPTIONS)
    captioner, translator = open_tiny("blip2", request), open_tiny("nllb", request)
    english = [answer.text for answer in captioner.caption(captions(pictures))]
    assert [answer.text for answer in cascade.caption(captions(pictures))] == english
    told = [replace(item, source=text) for item, text in zip(captions(pictures, "de"), english, strict=True)]
    assert cascade.caption(captions(pictures, "de")) == translator.translate(told)
    items, answers = sources(pictures), ["ein roter Hund", "un chien", "Ball"]
    in_line = [replace(item, source=f"{item.source} {text}") for item, text in zip(items, english, strict=True)]
    assert cascade.token_losses(items, answers) == translator.token_losses(in_line, answers)
    assert dict(cascade.identity)["captioner_name"] == "blip2"
    with pytest.raises(UserError, match="two models in a row give a caption no probability"):
        cascade.token_losses(captions(pictures), answers)
    for wrong in (str(blip2), f"{blip2}+", f"+{nllb}"):
        with pytest.raises(UserError, match=r"name both models, cascade:CAPTIONER.TRANSLATOR"):
            open_system(f"cascade:{wrong}", OPTIONS)


class Scripted:
    """A system that answers as it is told."""

    identity: dict[str, str] = {}  # noqa: RUF012
    batch_size = 4

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers, self.asked = answers, []

    def caption(self, items: Sequence[Item]) -> list[Answer]:
        self.asked += [item.image.name for item in items]
        return [Answer(*[self.answers[item.image.name]] * 2) for item in items]

    def translate(self, items: Sequence[Item]) -> list[Answer]:
        return [Answer(*[self.answers[str(item.source)]] * 2) for item in items]

    token_losses: Callable[..., Any]


def test_context_is_cut_or_given_up() -> None:
    from babelcap.evaluation.systems.cascade import Cascade

    captioner = Scripted({"a.png": "a wooden bat", "b.png": "an animal"})
    translator = Scripted(
        {
            "A bat. ### (a wooden bat)": "Ein Schläger. ### (Holz)",
            "A bat. ### (an animal)": "Eine Fledermaus (Tier)",
            "A bat.": "Ein Ding.",
            "Oh. ### (a wooden bat)": "Ohoho ### (ein Schläger)",
            "Oh.": "Oh!",
        }
    )
    cascade = Cascade(captioner, translator, OPTIONS)
    pairs = [("a.png", "A bat."), ("b.png", "A bat."), ("a.png", "Oh.")]
    items = [Item(str(n), Path(name), "de", "translation", source=text) for n, (name, text) in enumerate(pairs)]
    found = cascade.translate(items)
    assert [answer.text for answer in found] == ["Ein Schläger.", "Ein Ding.", "Oh!"]
    assert found[0].raw == "Ein Schläger. ### (Holz)"
    assert captioner.asked == ["a.png", "b.png"], "each picture once"


def test_prompts_are_the_published_ones() -> None:
    from babelcap.evaluation.systems.settings import read_settings

    assert read_settings("chat", SystemOptions()).caption["short"] == SHORT.replace("English", "{name}")
    pali, blip = (read_settings(name, SystemOptions()) for name in ("paligemma", "blip2"))
    assert (pali.num_beams, pali.max_new_tokens, blip.num_beams, blip.max_new_tokens) == (1, 100, 4, 128)
    with pytest.raises(UserError, match=re.escape("chat: num_beams: Input should be greater than or equal to 1")):
        read_settings("chat", SystemOptions(num_beams=0))
