"""Surgery on tiny checkpoints that transformers itself saved, with real tokenizers: keys, logits, round trip."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoTokenizer,
    Florence2Config,
    Florence2ForConditionalGeneration,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    PreTrainedTokenizerFast,
)

from babelcap.errors import UserError
from babelcap.models import load_model
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.sizes import size_config
from babelcap.models.surgery.prepare import Tokenizers, draw, prepare
from babelcap.models.surgery.token_map import TokenMap
from babelcap.models.surgery.token_text import byte_alphabet

WIDTH = 16
VISION = {
    "depths": (1, 1),
    "embed_dim": (8, 16),
    "num_heads": (2, 2),
    "num_groups": (2, 2),
    "patch_size": (7, 3),
    "patch_stride": (4, 2),
    "patch_padding": (3, 1),
    "patch_prenorm": (False, True),
    "window_size": 4,
    "projection_dim": WIDTH,
}
BART = {
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 64,
    "vocab_size": 51_328,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
GEMMA = {
    "hidden_size": 12,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 6,
    "query_pre_attn_scalar": 6,
    "vocab_size": 256_000,
}


@pytest.fixture(scope="module")
def tokenizers(shared: Path) -> Tokenizers:
    encoder = AutoTokenizer.from_pretrained(shared / "data/tokenizers/florence2")
    return Tokenizers(encoder, AutoTokenizer.from_pretrained(shared / "data/tokenizers/gemma2"), encoder)


@pytest.fixture(scope="module")
def florence(tmp_path_factory: pytest.TempPathFactory, tokenizers: Tokenizers) -> Path:
    folder = tmp_path_factory.mktemp("florence")
    torch.manual_seed(0)
    config = Florence2Config(vision_config=VISION, text_config={"model_type": "bart", **BART})
    Florence2ForConditionalGeneration(config).save_pretrained(folder)
    tokenizers.encoder.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory, tokenizers: Tokenizers) -> Path:
    """In shards, as the real ones are."""
    folder = tmp_path_factory.mktemp("gemma")
    torch.manual_seed(1)
    model = Gemma2ForCausalLM(Gemma2Config(**GEMMA))
    for name, parameter in model.named_parameters():
        if "norm" in name:  # the published ones are not all zero
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder, max_shard_size="8MB")
    assert (folder / "model.safetensors.index.json").is_file()
    tokenizers.decoder.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def prepared_gemma(
    tmp_path_factory: pytest.TempPathFactory, florence: Path, gemma: Path, tokenizers: Tokenizers
) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "gemma"
    prepare("auto-gemma", florence, gemma, folder, tokenizers=tokenizers)
    return folder


@pytest.fixture(scope="module")
def prepared_florence(tmp_path_factory: pytest.TempPathFactory, florence: Path, gemma: Path) -> Path:
    """With the tokenizers that lie beside the checkpoints."""
    folder = tmp_path_factory.mktemp("prepared") / "florence"
    prepare("auto-florence", florence, gemma, folder)
    return folder


def keys_of(folder: Path) -> set[str]:
    keys: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            keys |= set(file.keys()) - ({"offsets", "pieces"} if path.name.startswith("token_map") else set())
    return keys


@pytest.mark.parametrize("family", ["florence", "gemma"])
def test_every_key_is_accounted_for(family: str, request: pytest.FixtureRequest, florence: Path, gemma: Path) -> None:
    prepared = request.getfixturevalue(f"prepared_{family}")
    account = json.loads((prepared / "surgery.json").read_text())
    assert set(account["weights"]) == keys_of(prepared)
    used = {row["from"].split(",")[0] for row in account["weights"].values() if row["kind"] == "loaded"}
    sources = keys_of(florence) | (keys_of(gemma) if family == "gemma" else set())
    assert used | set(account["dropped"]) == sources
    assert not used & set(account["dropped"])
    initialised = {name for name, row in account["weights"].items() if row["kind"] == "initialised"}
    assert len(initialised) == (1 if family == "florence" else 3 * 6)


def inputs(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "input_ids": torch.randint(4, 50_000, (2, 6), generator=generator),
        "pixel_values": torch.randn(2, 3, 32, 32, generator=generator),
        "decoder_input_ids": torch.randint(3, 250_000, (2, 7), generator=generator),
    }


def test_with_its_gate_at_zero_it_is_gemma(prepared_gemma: Path, gemma: Path) -> None:
    model, original = load_model(prepared_gemma), Gemma2ForCausalLM.from_pretrained(gemma).eval()
    given = inputs()
    with torch.no_grad():
        expected = original(given["decoder_input_ids"]).logits
        torch.testing.assert_close(model(**given).logits, expected, atol=1e-5, rtol=0)
        layer = model.decoder.layers[1]
        own, crossing = layer.post_attention_layernorm.weight, layer.post_encoder_attention_layernorm.weight
        assert torch.equal(own, crossing)
        assert own.abs().sum() > 0
        layer.encoder_attn_gate.fill_(0.5)
        assert not torch.allclose(model(**given).logits, expected, atol=1e-4)


def test_the_florence_parts_are_florences(prepared_florence: Path, florence: Path) -> None:
    """The same decoder states as Florence-2 gives, where source and target tokens are one to one."""
    model = load_model(prepared_florence)
    original = Florence2ForConditionalGeneration.from_pretrained(florence).eval()
    given = inputs()
    token_map = TokenMap.load(prepared_florence)
    single = (token_map.offsets.diff() == 1).nonzero().flatten()
    ours = single[given["decoder_input_ids"] % len(single)]
    theirs = token_map.pieces[token_map.offsets[ours]].long()
    with torch.no_grad():
        image = original.model.get_image_features(given["pixel_values"]).pooler_output
        states = torch.cat([image, original.get_input_embeddings()(given["input_ids"])], dim=1)
        text_model = original.model.language_model
        encoded = text_model.encoder(inputs_embeds=states).last_hidden_state
        expected = text_model.decoder(theirs, encoder_hidden_states=encoded).last_hidden_state
        found = model(**given | {"decoder_input_ids": ours})
    torch.testing.assert_close(found.decoder_last_hidden_state, expected, atol=1e-5, rtol=0)
    weight = model.decoder.embed_tokens.weight
    assert weight.shape[0] == 256_000
    torch.testing.assert_close(found.logits, found.decoder_last_hidden_state @ weight.T, atol=1e-4, rtol=0)


FRESH = """
import json, sys, torch
from transformers import AutoModelForSeq2SeqLM, AutoProcessor
import babelcap.models
prompt = torch.tensor([[0, 2264, 473, 5, 2274, 6190, 116, 2]])
read = AutoProcessor.from_pretrained(sys.argv[1])(text="What does the image describe?")
assert read["input_ids"].tolist() == prompt.tolist(), read
for folder in sys.argv[1:]:
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    ids = model.generate(prompt, pixel_values=torch.ones(1, 3, 32, 32), max_new_tokens=6, num_beams=2)
    print(json.dumps(ids.tolist()))
"""


def test_round_trip_in_a_fresh_process(prepared_florence: Path, prepared_gemma: Path) -> None:
    """Both families in one process, for the sake of time."""
    expected = []
    for folder in (prepared_florence, prepared_gemma):
        model = load_model(folder)
        prompt = torch.tensor([[0, 2264, 473, 5, 2274, 6190, 116, 2]])
        ids = model.generate(prompt, pixel_values=torch.ones(1, 3, 32, 32), max_new_tokens=6, num_beams=2)
        assert ids[0, 0] == model.config.eos_token_id == 1
        expected.append(ids.tolist())
    command = [sys.executable, "-c", FRESH, str(prepared_florence), str(prepared_gemma)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == expected


def test_the_real_token_map(prepared_florence: Path, tokenizers: Tokenizers) -> None:
    source, target = tokenizers.source, tokenizers.decoder
    mapped = TokenMap.load(prepared_florence)
    assert mapped.num_target_tokens == 256_000
    assert mapped.unmapped == {}
    assert mapped.specials["<eos>"] == "</s>"
    expected = {
        "▁the": ["Ġthe"],
        "<0xE4>": ["ä"],
        "<s>": ["<", "s", ">"],  # a tag of HTML in Gemma's vocabulary
        "▁▁▁": source.tokenize("   "),
        "画像": source.tokenize("画像"),
        "\t\t": source.tokenize("\t\t"),
    }
    sample = range(1000, 255_000, 4999)
    expected |= {token: source.tokenize(token.replace("▁", " ")) for token in target.convert_ids_to_tokens(sample)}
    for token, pieces in expected.items():
        index = target.convert_tokens_to_ids(token)
        found = mapped.pieces[mapped.offsets[index] : mapped.offsets[index + 1]].tolist()
        assert source.convert_ids_to_tokens(found) == pieces, token


def test_drawn_weights_depend_on_seed_and_name() -> None:
    first = draw(torch.Size([4, 4]), 0.02, 0, "a")
    assert torch.equal(first, draw(torch.Size([4, 4]), 0.02, 0, "a"))
    assert not torch.equal(first, draw(torch.Size([4, 4]), 0.02, 1, "a"))
    assert not torch.equal(first, draw(torch.Size([4, 4]), 0.02, 0, "b"))


def test_every_second_layer_and_bfloat16(florence: Path, gemma: Path, tokenizers: Tokenizers, tmp_path: Path) -> None:
    options: dict[str, Any] = {"dtype": "bfloat16", "cross_attention_every": 2, "tokenizers": tokenizers}
    report = prepare("auto-gemma", florence, gemma, tmp_path / "out", **options)
    assert report["num_initialised"] == 2 * 6
    model = load_model(tmp_path / "out")
    assert model.dtype == torch.bfloat16
    assert [hasattr(layer, "encoder_attn") for layer in model.decoder.layers] == [True, False, True]


def test_gemma_3(florence: Path, tokenizers: Tokenizers, tmp_path: Path) -> None:
    torch.manual_seed(0)
    original = Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA, final_logit_softcapping=None)).eval()
    original.save_pretrained(tmp_path / "gemma3")
    prepare("auto-gemma", florence, tmp_path / "gemma3", tmp_path / "out", tokenizers=tokenizers)
    given = inputs()
    with torch.no_grad():
        found = load_model(tmp_path / "out")(**given).logits
        torch.testing.assert_close(found, original(given["decoder_input_ids"]).logits, atol=1e-5, rtol=0)


def altered(source: Path, folder: Path, **weights: torch.Tensor | None) -> Path:
    """A copy of a checkpoint with weights added, changed or (None) removed."""
    tensors = load_file(source / "model.safetensors")
    for name, tensor in weights.items():
        key = name.replace("__", ".")
        tensors.pop(key, None)
        if tensor is not None:
            tensors[key] = tensor
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model__surprise": torch.zeros(1)}, "1 no place in a captioner: model.surprise"),
        (
            {"model__language_model__encoder__layers__0__fc1__weight": None},
            "1 missing: encoder.text_encoder.layers.0.fc1",
        ),
        ({"model__vision_tower__convs__0__conv__bias": torch.zeros(9)}, r"misshapen: .*convs.0.conv.bias \[9\]"),
        ({"model__vision_tower__convs__7__conv__bias": torch.zeros(9)}, "1 surplus: encoder.vision_tower.convs.7"),
        ({"model__language_model__shared__weight": None}, "no shared embedding"),
        ({"lm_head__weight": torch.zeros(51_328, WIDTH)}, "lm_head.weight differs from"),
        ({"model__language_model__shared__weight": torch.zeros(5, WIDTH)}, "5 rows and the captioner 51328"),
    ],
)
def test_wrong_keys_stop_with_the_list(
    change: dict[str, Any], message: str, florence: Path, gemma: Path, tokenizers: Tokenizers, tmp_path: Path
) -> None:
    wrong = altered(florence, tmp_path / "wrong", **change)
    with pytest.raises(UserError, match=message):
        prepare("auto-gemma", wrong, gemma, tmp_path / "out", tokenizers=tokenizers)
    assert not (tmp_path / "out").exists()


def test_sources_of_the_wrong_kind(florence: Path, gemma: Path, tokenizers: Tokenizers, tmp_path: Path) -> None:
    def attempt(size: str, first: Path, second: Path, **options: Any) -> str:
        with pytest.raises(UserError) as caught:
            prepare(size, first, second, tmp_path / "out", tokenizers=tokenizers, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "size 3.5B has (256, 512, 1024, 2048)" in attempt("3.5B", florence, gemma)
    assert "did you mean '3.5B'" in attempt("3.6B", florence, gemma)
    assert "auto-florence or auto-gemma" in attempt("auto", florence, gemma)
    assert "a Florence-2 checkpoint is needed" in attempt("auto-gemma", gemma, gemma)
    assert "a checkpoint of gemma2" in attempt("auto-gemma", florence, florence)
    assert "no such folder" in attempt("auto-gemma", tmp_path / "nowhere", gemma)
    assert "dtype 'int8'" in attempt("auto-gemma", florence, gemma, dtype="int8")
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "config.json").write_bytes((florence / "config.json").read_bytes())
    (cut / "model.safetensors").write_bytes((florence / "model.safetensors").read_bytes()[:5000])
    assert "damaged or cut short" in attempt("auto-gemma", cut, gemma)
    (cut / "model.safetensors").rename(cut / "pytorch_model.bin")
    assert "pickled checkpoint" in attempt("auto-gemma", cut, gemma)


def tiny_tokenizer(**specials: str) -> PreTrainedTokenizerFast:
    words = [*specials.values(), *byte_alphabet().values()]
    backend = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **specials)


def test_florence_as_first_published(golden_fixtures: Path, tmp_path: Path) -> None:
    """Its own code's names and configuration: here of a golden model, given one vocabulary as Florence-2 has."""
    golden, source = golden_fixtures / "florence2", tmp_path / "source"
    weights = load_file(golden / "reference_weights.safetensors")
    weights["language_model.model.shared.weight"] = weights.pop("language_model.model.encoder.embed_tokens.weight")
    del weights["language_model.model.decoder.embed_tokens.weight"]
    config = json.loads((golden / "reference_config.json").read_text())
    text = config["text_config"]
    for name in [name for name in text if name.startswith("encoder_") and name[8:] in text]:
        text[name[8:]] = text.pop(name)
    source.mkdir()
    save_file(weights, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps(config))
    old = tiny_tokenizer(bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    new = tiny_tokenizer(pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>")
    prepare("auto-florence", source, source, tmp_path / "out", tokenizers=Tokenizers(old, new, old))
    model = load_model(tmp_path / "out")
    reference = load_file(golden / "reference_io.safetensors")
    given = {name: reference[name] for name in ("input_ids", "attention_mask", "pixel_values")}
    with torch.no_grad():
        states = model.encoder(**given).last_hidden_state
    torch.testing.assert_close(states, reference["encoder_last_hidden_state"], atol=2e-4, rtol=0)
    shared_weight = weights["language_model.model.shared.weight"]
    rows = [model.decoder.embed_tokens.weight[new.get_vocab()[token]] for token in ("<eos>", "A")]
    expected = [shared_weight[old.get_vocab()[token]] for token in ("</s>", "A")]
    torch.testing.assert_close(rows, expected)


def test_a_captioner_gets_another_vocabulary(tmp_path: Path) -> None:
    """The micro study's way: an English captioner of ours, whose decoder then learns another tokenizer's words."""
    torch.manual_seed(0)
    old = tiny_tokenizer(bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    new = tiny_tokenizer(pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>", sep_token="<x>")
    base = Captioner(size_config("micro-florence-s", encoder_vocab_size=300, decoder_vocab_size=300))
    base.save_pretrained(tmp_path / "base")
    options = {"tokenizers": Tokenizers(old, new, old)}
    report = prepare("micro-florence-s", tmp_path / "base", tmp_path, tmp_path / "out", **options)
    assert report["dropped"] == {"decoder.embed_tokens.weight": "the old vocabulary's embedding and head"}
    model = load_model(tmp_path / "out")
    assert model.config.vocab_size == 320  # 261 tokens, padded to a multiple of 64
    assert model.config.image_size_px == 64
    torch.testing.assert_close(
        model.decoder.embed_tokens.weight[new.get_vocab()["A"]], base.decoder.embed_tokens.weight[old.get_vocab()["A"]]
    )
    assert torch.equal(model.encoder.text_encoder.embed_tokens.weight, base.encoder.text_encoder.embed_tokens.weight)
    with pytest.raises(UserError, match="projection_dim is 48, size micro-florence-m has 80"):
        prepare("micro-florence-m", tmp_path / "base", tmp_path, tmp_path / "other", **options)
