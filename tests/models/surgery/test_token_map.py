"""The token map between tokenizers of every kind: bytes, specials, space marks, prefixes; the artifact."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from babelcap.errors import UserError
from babelcap.models.surgery.token_map import TokenMap, build_token_map
from babelcap.models.surgery.token_text import byte_alphabet

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def byte_level(extra: list[tuple[str, str]] = ()) -> PreTrainedTokenizerFast:
    """Byte-level BPE as GPT-2's and BART's: all bytes, and the merges given."""
    words = [*SPECIALS.values(), *byte_alphabet().values()]
    merges = [("Ġ", "t"), ("Ġt", "he"), ("h", "e"), *extra]
    order = [("h", "e"), ("Ġ", "t"), ("Ġt", "he"), *extra]
    words += [left + right for left, right in merges]
    tokenizer = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, order))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIALS)


def sentence_piece(words: list[str], prepend: bool = False, **specials: str) -> PreTrainedTokenizerFast:
    """Like Gemma's: the space mark, byte tokens for what has no piece."""
    specials = specials or {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    vocabulary = [*specials.values(), *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    model = models.BPE(
        {word: index for index, word in enumerate(vocabulary)}, [], byte_fallback=True, unk_token="<unk>"
    )
    tokenizer = Tokenizer(model)
    steps = [normalizers.Prepend("▁")] if prepend else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials)


def word_piece(words: list[str]) -> PreTrainedTokenizerFast:
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", *words]
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    names = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def pieces_of(token: str, mapped: TokenMap, source: Any, target: Any) -> list[str]:
    index = target.convert_tokens_to_ids(token)
    assert index is not None
    return source.convert_ids_to_tokens(mapped.pieces[mapped.offsets[index] : mapped.offsets[index + 1]].tolist())


def test_sentence_pieces_from_byte_level_pieces() -> None:
    source = byte_level()
    target = sentence_piece(["▁the", "the", "▁", "é", "▁▁", "<s>"])
    mapped = build_token_map(source, target)
    expected = {
        "▁the": ["Ġthe"],
        "the": ["t", "he"],
        "▁": ["Ġ"],
        "▁▁": ["Ġ", "Ġ"],
        "é": ["Ã", "©"],
        "<0xE4>": ["ä"],
        "<0x20>": ["Ġ"],
        "<s>": ["<", "s", ">"],  # plain text here, though the source has a special token of that name
        "<bos>": ["<s>"],
        "<eos>": ["</s>"],
        "<pad>": ["<pad>"],
        "<unk>": ["<unk>"],
    }
    assert {token: pieces_of(token, mapped, source, target) for token in expected} == expected
    assert mapped.unmapped == {}


def test_byte_level_pieces_from_sentence_pieces() -> None:
    source = sentence_piece(["▁", "t", "h", "e", "é"])
    target = byte_level([("Ã", "©"), ("é", "Ã")])
    mapped = build_token_map(source, target)
    expected = {"Ġthe": ["▁", "t", "h", "e"], "Ã": ["<0xC3>"], "Ã©": ["é"], "<s>": ["<bos>"]}
    assert {token: pieces_of(token, mapped, source, target) for token in expected} == expected


def test_nothing_is_put_in_front_of_a_text() -> None:
    source = sentence_piece(["▁", "t", "h", "e"], prepend=True)
    target = sentence_piece(["the", "▁t"])
    mapped = build_token_map(source, target)
    assert pieces_of("the", mapped, source, target) == ["t", "h", "e"]
    assert pieces_of("▁t", mapped, source, target) == ["▁", "t"]


def test_word_pieces_both_ways() -> None:
    words = word_piece(["the", "he", "##he", "t", "##x", "."])
    source = byte_level()
    mapped = build_token_map(source, words)
    expected = {"the": ["Ġthe"], "##he": ["he"], ".": ["."], "[CLS]": ["<s>"], "[SEP]": ["</s>"], "[UNK]": ["<unk>"]}
    assert {token: pieces_of(token, mapped, source, words) for token in expected} == expected
    back = build_token_map(words, source)
    assert pieces_of("Ġthe", back, words, source) == ["the"]
    assert pieces_of("he", back, words, source) == ["##he"]
    assert pieces_of("<s>", back, words, source) == ["[CLS]"]
    assert pieces_of("ä", back, words, source) == []


def test_remap_is_the_mean_of_the_pieces() -> None:
    source, target = (
        byte_level(),
        sentence_piece(["the", "▁the"], bos_token="<bos>", unk_token="<unk>", sep_token="<tie>"),
    )
    target.add_special_tokens({"additional_special_tokens": ["<only here>"]})
    mapped = build_token_map(source, target)
    embedding = torch.randn(len(source) + 3, 6, generator=torch.Generator().manual_seed(0))
    rows = mapped.remap(embedding, num_rows=len(target) + 5)
    source_row = dict(zip(source.convert_ids_to_tokens(range(len(source))), embedding, strict=False))
    row = {token: rows[index] for token, index in target.get_vocab().items()}
    torch.testing.assert_close(row["the"], (source_row["t"] + source_row["he"]) / 2)
    torch.testing.assert_close(row["▁the"], source_row["Ġthe"])
    torch.testing.assert_close(row["<0x41>"], source_row["A"])
    mean = embedding[: len(source)].mean(0)
    assert list(mapped.unmapped.values()) == ["<only here>"]
    torch.testing.assert_close(row["<only here>"], mean)
    torch.testing.assert_close(rows[-1], mean)
    with pytest.raises(UserError, match="rows, its tokenizer"):
        mapped.remap(embedding[:10])
    with pytest.raises(UserError, match="cannot hold"):
        mapped.remap(embedding, num_rows=7)


def test_artifact_round_trip_and_summary(tmp_path: Path) -> None:
    mapped = build_token_map(byte_level(), sentence_piece(["the", "▁the"]))
    mapped.save(tmp_path)
    again = TokenMap.load(tmp_path)
    assert torch.equal(again.offsets, mapped.offsets)
    assert torch.equal(again.pieces, mapped.pieces)
    assert again.summary() == mapped.summary() == json.loads((tmp_path / "token_map.json").read_text())
    assert mapped.summary()["tokens_by_number_of_pieces"] == {"1": 261, "2": 1}
    assert mapped.source_hash != mapped.target_hash
    (tmp_path / "token_map.safetensors").write_bytes(b"12345678")
    with pytest.raises(UserError, match="not a token map"):
        TokenMap.load(tmp_path)
