"""Translation: context and final marks by example, tiny models of every family, CTranslate2 against transformers."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer

from babelcap.errors import UserError
from babelcap.generate.backends.translators import (
    CTranslate2Translator,
    DecodeOptions,
    TransformersTranslator,
    steering,
)
from babelcap.generate.translate import (
    Job,
    TranslateConfig,
    cut_context,
    reason_to_drop,
    repair_end,
    translate_shard,
    with_context,
)
from babelcap.languages import find_language

pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (pip install 'babelcap[data]')")
GERMAN, CHINESE, FRENCH = find_language("de"), find_language("zh"), find_language("fr")


def test_context_is_added_and_cut() -> None:
    assert with_context("A bat.", "A wooden bat ") == "A bat. ### (A wooden bat)"
    assert cut_context("Ein Schläger. ### (Ein Schläger aus Holz)") == "Ein Schläger."
    assert cut_context("蝙蝠（木头）") == "蝙蝠"
    assert cut_context("Ein Schläger.") is None
    assert cut_context("### (Ein") is None


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Ein Hund", "de", "Ein Hund."),
        ("Ein Hund.", "de", "Ein Hund."),
        ("Ein Hund,", "de", "Ein Hund."),
        ("一只狗", "zh", "一只狗。"),
        ("一只狗。", "zh", "一只狗。"),
        ("什么？", "zh", "什么？"),
        ("他说：“好。”", "zh", "他说：“好。”"),
        ("", "de", ""),
    ],
)
def test_final_marks_are_never_doubled(text: str, language: str, expected: str) -> None:
    assert repair_end(text, language) == expected


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ("Ein kleiner Hund läuft über die Straße.", None),
        (" ", "empty translation"),
        ("A small dog runs across the street.", "copy of the source"),
        ("Hund.", "length ratio"),
        ("Un petit chien court dans la rue ici.", "wrong language"),
    ],
)
def test_reasons(result: str, reason: str | None) -> None:
    assert reason_to_drop("A small dog runs across the street.", result, "de", 3.0) == reason


class Scripted:
    """Answers as told, and remembers what it was asked."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers, self.asked = answers, []

    def translate(self, texts: list[str], language: Any, options: DecodeOptions) -> list[str]:
        self.asked += [(text, options.length_penalty) for text in texts]
        return [self.answers[text] for text in texts]


def test_context_is_given_up_where_it_does_not_help() -> None:
    plain = "A small bat lies on the grass."
    helped = with_context(plain, "wood")
    good, other = "Ein kleiner Schläger liegt im Gras", "Eine kleine Fledermaus liegt im Gras."
    config = TranslateConfig(with_context=True, length_penalty=1.0, short_length_penalty=0.9)
    first = Scripted({helped: f"{good} ### (Holz)", plain: other})
    assert Job(first, GERMAN, config).translate([plain], ["wood"]) == [(f"{good}.", None)]
    assert first.asked == [(helped, 0.9)]
    second = Scripted({helped: "Holz ohne Zeichen", plain: other})
    assert Job(second, GERMAN, config).translate([plain], ["wood"]) == [(other, None)]
    assert second.asked == [(helped, 0.9), (plain, 1.0)]
    third = Scripted({helped: "", plain: ""})
    assert Job(third, GERMAN, config).translate([plain, plain], ["wood", None])[0][1] == "empty translation"


SENTENCES = {
    "a red cat": "eine rote katze", "a blue dog": "ein blauer hund", "two green birds": "zwei grüne vögel",
    "the small house": "das kleine haus", "a large boat": "ein großes boot", "three black fish": "drei schwarze fische",
    "one white tree": "ein weißer baum", "the old man": "der alte mann", "a young woman": "eine junge frau",
    "many yellow flowers": "viele gelbe blumen",
}  # fmt: skip


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny NLLB, trained until it tells its sentences apart."""
    folder = tmp_path_factory.mktemp("nllb")
    words = Tokenizer(models.BPE(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    lines = [*SENTENCES, *SENTENCES.values()]
    words.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=200, special_tokens=specials, show_progress=False))
    import json

    values = json.loads(words.to_str())["model"]
    merges = [tuple(merge) for merge in values["merges"]]
    codes = ["eng_Latn", "deu_Latn", "zho_Hans"]
    tokenizer = NllbTokenizer(vocab=values["vocab"], merges=merges, extra_special_tokens=codes)
    torch.manual_seed(0)
    side = {"layers": 1, "attention_heads": 2, "ffn_dim": 64}
    config = M2M100Config(
        vocab_size=len(tokenizer), d_model=32, max_position_embeddings=64, dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, decoder_start_token_id=2,
        **{f"{name}_{key}": value for name in ("encoder", "decoder") for key, value in side.items()},
    )  # fmt: skip
    model = M2M100ForConditionalGeneration(config)
    tokenizer.src_lang, tokenizer.tgt_lang = "eng_Latn", "deu_Latn"
    batch = tokenizer(list(SENTENCES), text_target=list(SENTENCES.values()), padding=True, return_tensors="pt")
    batch["labels"][batch["labels"] == 1] = -100
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        optimiser.zero_grad()
        model(**batch).loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_ctranslate2_equals_transformers(nllb: Path, tmp_path: Path) -> None:
    options = DecodeOptions(num_beams=4, max_tokens=16)
    slow = TransformersTranslator(str(nllb)).translate(list(SENTENCES), GERMAN, options)
    fast = CTranslate2Translator(str(nllb), converted=str(tmp_path / "ct2"))
    assert fast.translate(list(SENTENCES), GERMAN, options) == slow
    assert len(set(slow)) >= 0.9 * len(slow)
    assert sum(text == wanted for text, wanted in zip(slow, SENTENCES.values(), strict=True)) >= 8
    assert not any("<unk>" in text for text in slow)
    assert (tmp_path / "ct2" / "model.bin").is_file()


def test_a_language_that_the_model_lacks_is_one_line(nllb: Path) -> None:
    with pytest.raises(UserError, match="does not know French: its vocabulary has no 'fra_Latn'"):
        TransformersTranslator(str(nllb)).translate(["a"], FRENCH, DecodeOptions())
    with pytest.raises(UserError, match=r"translate\.model: .*cannot be loaded"):
        TransformersTranslator(str(nllb / "absent"))


class Vocabulary:
    unk_token_id = 0

    def __init__(self, *tokens: str) -> None:
        self.tokens = {"<unk>": 0} | {token: n for n, token in enumerate(tokens, 1)}

    def get_vocab(self) -> dict[str, int]:
        return self.tokens


def test_how_each_family_is_steered() -> None:
    assert steering("nllb", Vocabulary("zho_Hans"), CHINESE).first_token == "zho_Hans"
    assert steering("m2m100", Vocabulary("__zh__"), CHINESE).first_token == "__zh__"
    assert steering("madlad", Vocabulary("<2de>"), GERMAN).source_prefix == "<2de> "
    assert steering("marian", Vocabulary(">>deu<<"), GERMAN).source_prefix == ">>deu<< "
    assert steering("marian", Vocabulary(), GERMAN) == ("", None)


def test_a_shard_with_a_real_translator(shared: Path, tmp_path: Path) -> None:
    captions = [["A small dog runs across the street.", "It is wet."], ["Two children play in the park."], ["1 2 3"]]
    table = pa.table({"key": ["a", "b", "c"], "sentences": captions})
    pq.write_table(table, tmp_path / "captions.parquet")
    config = TranslateConfig(model=str(shared / "data" / "opus_mt_en_fr_ct2"), num_beams=2)
    settings = config.model_dump(mode="json") | {"languages": [FRENCH.model_dump(mode="json")]}
    output = translate_shard({"captions": tmp_path / "captions.parquet"}, settings)
    rows = output.table.to_pylist()
    assert output.num_in == 3 == output.num_out + sum(output.drops.values())
    assert [len(row["fr"]) for row in rows[:2]] == [2, 1]
    assert "chien" in rows[0]["fr"][0]
    assert "enfants" in rows[1]["fr"][0]
    assert rows[2]["fr"] is None
    assert output.drops == {"copy of the source": 1}
