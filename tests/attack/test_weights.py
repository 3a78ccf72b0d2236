"""A captioner's folder under attack: flipped bits, planted files, lying headers. None is used silently, none crashes.

What was damaged must be refused in one line; the only other outcome allowed is a flip that leaves a file as it was.
"""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from babelcap.errors import UserError
from babelcap.models import Captioner, CaptionProcessor, load_model, load_processor
from babelcap.models.checkpoints.checking import check_captioner
from babelcap.models.checkpoints.importing import import_checkpoint
from babelcap.models.checkpoints.loading import account_for, read_config
from babelcap.models.checkpoints.saving import save_captioner
from babelcap.models.checkpoints.tokenizers import load_tokenizer
from babelcap.models.checkpoints.weights import Checkpoint
from babelcap.models.sizing.sizes import size_config
from babelcap.storage import text_sha256
from torture.damage import damage_in_turn, flip_bit

Flips = Callable[[str, dict[str, int]], None]
Watch = Callable[[Callable[[], object], object], str]
WEIGHTS, CONFIG = "model.safetensors", "config.json"
FLIPPED = (WEIGHTS, CONFIG, "encoder_tokenizer/tokenizer.json", "decoder_tokenizer/tokenizer_config.json")


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attacked") / "model"
    config = size_config("micro-florence-s", encoder_vocab_size=60, decoder_vocab_size=90)
    encoder = tiny_tokenizer(60, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    decoder = tiny_tokenizer(90, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>")
    torch.manual_seed(0)
    save_captioner(folder, Captioner(config), CaptionProcessor(encoder, decoder, image_size_px=64))
    return folder


def tiny_tokenizer(num_tokens: int, **specials: str) -> PreTrainedTokenizerFast:
    words = [*specials.values(), *(f"w{number}" for number in range(num_tokens - len(specials)))]
    vocabulary = {word: number for number, word in enumerate(words)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="<unk>")), **specials)


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture
def unvouched(folder: Path) -> Path:
    (folder / "manifest.json").unlink()
    return folder


def refusal(attempt: Callable[[], Any]) -> str:
    """The one line that an attempt ends with; any other exception is a traceback, and fails the test."""
    with pytest.raises(UserError) as caught:
        attempt()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def is_refused(attempt: Callable[[], Any]) -> bool:
    """Whether it ends with one line rather than well; any other exception fails the test."""
    try:
        attempt()
    except UserError as error:
        return "\n" not in str(error) or pytest.fail(str(error))
    return False


def flip_and_load(folder: Path, num_flips: int, seed: int) -> int:
    generator, num_refused = random.Random(seed), 0
    for name in FLIPPED:
        path = folder / name
        whole = path.read_bytes()
        load = load_processor if "tokenizer" in name else load_model
        for _ in range(num_flips):
            path.write_bytes(flip_bit(whole, generator))
            assert f"{name} is damaged" in refusal(lambda load=load: load(folder))
            num_refused += 1
        path.write_bytes(whole)
    return num_refused


def test_flipped_bits_are_refused(folder: Path) -> None:
    assert flip_and_load(folder, 50, seed=0) == 200
    assert load_model(folder).training is False
    assert load_processor(folder).image_size_px == 64


@pytest.mark.slow
@pytest.mark.parametrize("number", [200])
def test_hundreds_of_flipped_bits_are_refused(folder: Path, number: int, flips: Flips) -> None:
    refused = flip_and_load(folder, number, seed=1)
    flips("weights, config, tokenizers", {"refused when loaded": refused})
    assert refused == 4 * number


def test_flipped_bits_of_the_manifest_are_refused(folder: Path) -> None:
    path, generator = folder / "manifest.json", random.Random(2)
    whole = path.read_bytes()
    for _ in range(100):
        path.write_bytes(flip_bit(whole, generator))
        refused = is_refused(lambda: load_model(folder))
        assert refused or json.loads(path.read_bytes()) == json.loads(whole)  # a blank for another one


def test_the_check_names_each_damaged_file(folder: Path) -> None:
    for name in FLIPPED:
        (folder / name).write_bytes(flip_bit((folder / name).read_bytes(), random.Random(3)))
    (folder / "encoder_tokenizer" / "tokenizer_config.json").unlink()
    problems = check_captioner(folder).problems
    assert len(problems) == 5
    assert all(any(name in problem for problem in problems) for name in FLIPPED)
    assert any(problem.endswith("tokenizer_config.json is missing") for problem in problems)


def test_transformers_own_loading_refuses_too(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(flip_bit((folder / WEIGHTS).read_bytes(), random.Random(4)))
    assert "is damaged" in refusal(lambda: Captioner.from_pretrained(folder))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_that_are_not_finite_are_refused(unvouched: Path, value: float, dtype: torch.dtype) -> None:
    weights = {name: tensor.to(dtype) for name, tensor in load_file(unvouched / WEIGHTS).items()}
    name = "decoder.layers.1.fc1.weight"
    weights[name].view(-1)[7] = value
    save_file(weights, unvouched / WEIGHTS)
    assert f"{name} holds values that are not finite" in refusal(lambda: load_model(unvouched))
    assert f"{name} holds values that are not finite" in refusal(lambda: Captioner.from_pretrained(unvouched))


def test_a_large_sum_of_finite_weights_is_no_fault(unvouched: Path) -> None:
    weights = {name: tensor.half() for name, tensor in load_file(unvouched / WEIGHTS).items()}
    weights["decoder.layers.1.fc1.weight"].fill_(60_000)
    save_file(weights, unvouched / WEIGHTS)
    assert load_model(unvouched).dtype == torch.float16


@pytest.mark.parametrize("number", [16, pytest.param(200, marks=pytest.mark.slow)])
def test_damaged_folders_of_others(unvouched: Path, number: int, watch: Watch) -> None:
    """A folder of others has no checksums: damage may stay unseen, but whatever it does is no traceback."""

    def read() -> None:
        load_model(unvouched)
        load_processor(unvouched)

    files = sorted(path for path in unvouched.rglob("*") if path.is_file())
    for place, path in enumerate(damage_in_turn(files, number, random.Random(number))):
        watch(read, (place, path.name))


def test_flips_without_a_manifest_never_crash(unvouched: Path) -> None:
    """A folder of others has no checksums: a flip may stay unseen, but whatever it does is no traceback."""
    tokenizer = unvouched / "decoder_tokenizer"
    attempts: dict[Path, Callable[[], Any]] = {
        unvouched / CONFIG: lambda: account_for(read_config(Checkpoint(unvouched)), weights),
        tokenizer / "tokenizer.json": lambda: load_tokenizer(tokenizer),
        tokenizer / "tokenizer_config.json": lambda: load_tokenizer(tokenizer),
    }
    generator, weights, num_refused = random.Random(5), Checkpoint(unvouched).read_all(), 0
    for path, attempt in attempts.items():
        whole = path.read_bytes()
        for _ in range(40):
            path.write_bytes(flip_bit(whole, generator))
            num_refused += is_refused(attempt)
        path.write_bytes(whole)
    assert num_refused > 40


HEADERS = [
    b"",
    b"\xff" * 8,
    (2**62).to_bytes(8, "little") + b"{}",
    (10).to_bytes(8, "little") + b"{" * 10,
    (6000).to_bytes(8, "little") + b'{"a":' * 1000 + b"1" + b"}" * 999,
    (2).to_bytes(8, "little") + b"[]",
    (2).to_bytes(8, "little") + b"{}",
]
TENSORS = [
    {"dtype": "F32", "shape": [2], "data_offsets": [0, 10**15]},
    {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 8]},
    {"dtype": "F32", "shape": [2**62, 8], "data_offsets": [0, 8]},
    {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
    {"dtype": "F31", "shape": [2], "data_offsets": [0, 8]},
    {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]},
    {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
    {"dtype": "F32", "shape": "two", "data_offsets": [0, 8]},
    {"dtype": "F32", "shape": [2]},
    {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
]


@pytest.mark.parametrize("header", HEADERS)
def test_lying_headers(unvouched: Path, header: bytes) -> None:
    (unvouched / WEIGHTS).write_bytes(header)
    refusal(lambda: load_model(unvouched))


@pytest.mark.parametrize("tensor", TENSORS)
def test_lying_tensors(unvouched: Path, tensor: dict[str, Any]) -> None:
    header = json.dumps({"decoder.embed_tokens.weight": tensor}).encode()
    (unvouched / WEIGHTS).write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    refusal(lambda: load_model(unvouched))


CONFIGS: list[Callable[[dict[str, Any]], Any]] = [
    lambda values: values["decoder_config"].update(d_model=10**12),
    lambda values: values["decoder_config"].update(d_model=10**8),
    lambda values: values["decoder_config"].update(vocab_size=10**9),
    lambda values: values["decoder_config"].update(decoder_layers=10**9),
    lambda values: values["decoder_config"].update(decoder_layers=10**6),
    lambda values: values["decoder_config"].update(decoder_layers=-1),
    lambda values: values["decoder_config"].update(decoder_layers=2.5),
    lambda values: values["decoder_config"].update(dropout=float("nan")),
    lambda values: values["decoder_config"].update(pad_token_id=10**6),
    lambda values: values["decoder_config"].update(kind=["bart"]),
    lambda values: values["decoder_config"].update(kind="gemma2", num_hidden_layers=10**9),
    lambda values: values.update(decoder_config=[1]),
    lambda values: values.update(encoder_config="florence2"),
    lambda values: values.update(eos_token_id=90),
    lambda values: values.update(eos_token_id="one"),
    lambda values: values.update(image_size_px=10**9),
    lambda values: values.update(image_size_px=0),
    lambda values: values.update(coverage=[[[]]]),
    lambda values: values.update(model_type={"a": 1}),
    lambda values: values["encoder_config"].update(vision_config=7),
    lambda values: values["encoder_config"].update(image_feature_source=[{}]),
    lambda values: values["encoder_config"]["vision_config"].update(depths=[10**9, 1]),
    lambda values: values["encoder_config"]["vision_config"].update(embed_dim=[]),
    lambda values: values["encoder_config"]["vision_config"].update(patch_stride=[0, 0]),
    lambda values: values["encoder_config"]["text_config"].update(encoder_attention_heads=0),
]


@pytest.mark.parametrize("change", CONFIGS)
def test_configurations_of_wrong_types_and_sizes(unvouched: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    values = json.loads((unvouched / CONFIG).read_text())
    change(values)
    (unvouched / CONFIG).write_text(json.dumps(values))
    refusal(lambda: load_model(unvouched))


NO_SETTINGS = ["[" * 200_000, '{"a":' * 500 + "1" + "}" * 500, "[]", "", '{"num_beams": 1e999}', "{" + "9" * 6000 + "}"]


@pytest.mark.parametrize("text", NO_SETTINGS)
@pytest.mark.parametrize("name", [CONFIG, "generation_config.json", "processor_config.json"])
def test_files_that_are_no_settings(unvouched: Path, name: str, text: str) -> None:
    (unvouched / name).write_text(text)
    load = load_processor if name == "processor_config.json" else load_model
    refusal(lambda: load(unvouched))


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "[]", '{"model": 1}', "", "null"])
def test_damaged_tokenizers(unvouched: Path, text: str) -> None:
    (unvouched / "decoder_tokenizer" / "tokenizer.json").write_text(text)
    assert "no tokenizer can be read" in refusal(lambda: load_processor(unvouched))


def test_a_tokenizers_own_code_is_not_run(unvouched: Path) -> None:
    path = unvouched / "decoder_tokenizer" / "tokenizer_config.json"
    mark = unvouched / "ran"
    (unvouched / "decoder_tokenizer" / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nclass Evil: pass\n")
    values = json.loads(path.read_text()) | {"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}
    path.write_text(json.dumps(values | {"tokenizer_class": "Evil"}))
    is_refused(lambda: load_processor(unvouched))
    assert not mark.exists()


@pytest.mark.parametrize("place", ["../outside.safetensors", "/etc/passwd", "no.safetensors", "weights.bin", 7, None])
def test_an_index_that_points_elsewhere(unvouched: Path, place: Any) -> None:
    shutil.copy(unvouched / WEIGHTS, unvouched.parent / "outside.safetensors")
    index = {"weight_map": {"decoder.embed_tokens.weight": place}}
    (unvouched / "model.safetensors.index.json").write_text(json.dumps(index))
    refusal(lambda: load_model(unvouched))


def test_planted_files_are_not_read_instead(folder: Path) -> None:
    shutil.copy(folder / WEIGHTS, folder / "model-other.safetensors")
    assert "not in the folder's manifest.json" in refusal(lambda: load_model(folder))


class Harmful:
    def __reduce__(self) -> tuple:
        return (open, ("/dev/null",))


def test_planted_pickles_are_never_loaded(unvouched: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    weights = load_file(unvouched / WEIGHTS)
    torch.save({"weights": Harmful()}, unvouched / "pytorch_model.bin")
    calls: list[bool] = []
    original = torch.load
    monkeypatch.setattr(
        torch, "load", lambda *args, **options: calls.append(options["weights_only"]) or original(*args, **options)
    )
    load_model(unvouched)
    Captioner.from_pretrained(unvouched)
    (unvouched / WEIGHTS).unlink()
    assert "pickled checkpoint" in refusal(lambda: load_model(unvouched))
    assert "pickled checkpoint" in refusal(lambda: Captioner.from_pretrained(unvouched))
    assert calls == []
    assert "could run code" in refusal(lambda: import_checkpoint(unvouched, tmp_path / "imported"))
    torch.save(weights, unvouched / "pytorch_model.bin")
    import_checkpoint(unvouched, tmp_path / "imported")
    assert calls == [True, True]


def test_a_manifest_that_lists_other_places(folder: Path) -> None:
    values = json.loads((folder / "manifest.json").read_text())
    values["files"]["../other"] = values["files"][CONFIG]
    (folder / "manifest.json").write_text(json.dumps(values | {"sha256": text_sha256(values["files"])}))
    assert "lies outside the folder" in refusal(lambda: load_model(folder))


def test_extra_files_are_fine_and_saving_again_vouches_anew(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    model = load_model(folder)
    with torch.no_grad():
        model.decoder.embed_tokens.weight.add_(1)
    model.save_pretrained(folder)
    assert check_captioner(folder).problems == []
    assert torch.equal(load_model(folder, verify=True).head_weight, model.head_weight)
