from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from babelcap.data.feed.text import (
    check_text,
    continuation,
    encode_after_prefix,
    encode_prefix,
    encode_texts,
    require_special_tokens,
)
from babelcap.errors import BadSample, UserError
from babelcap.languages import find_language


@given(texts=st.lists(st.text(), max_size=5), max_tokens=st.integers(2, 30))
def test_truncation_keeps_bos_and_eos(tokenizer: Any, texts: list[str], max_tokens: int) -> None:
    for text, ids in zip(texts, encode_texts(tokenizer, texts, max_tokens), strict=True):
        assert ids[0] == tokenizer.bos_token_id
        assert ids[-1] == tokenizer.eos_token_id
        assert len(ids) == min(len(text.encode()) + 2, max_tokens)
        assert tokenizer.eos_token_id not in ids[:-1]


def test_tokens_spell_the_text(tokenizer: Any) -> None:
    (ids,) = encode_texts(tokenizer, ["На картинке 图为"], 100)
    assert tokenizer.decode(ids, skip_special_tokens=True) == "На картинке 图为"


def test_truncation_set_by_someone_else_does_not_matter(tokenizer: Any) -> None:
    texts = ["a longer text than that", "short"]
    expected = encode_texts(tokenizer, texts, 100)
    try:
        tokenizer(texts, truncation=True, max_length=3, padding=True)
        assert encode_texts(tokenizer, texts, 100) == expected
    finally:
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    assert expected == [
        [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        for text in texts
    ]


def test_too_little_room_is_a_mistake_of_the_caller(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="max_tokens is 1"):
        encode_texts(tokenizer, ["a"], 1)


def test_a_target_after_its_prefix_begins_as_generation_does(tokenizer: Any) -> None:
    german = find_language("de")
    (ids,), num_given = encode_after_prefix(tokenizer, german, ["ein Hund"], 100)
    assert ids[:num_given] == encode_prefix(tokenizer, "Das Bild zeigt")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Das Bild zeigt ein Hund"
    assert ids[-1] == tokenizer.eos_token_id


def test_truncation_after_a_prefix_keeps_eos(tokenizer: Any) -> None:
    (ids,), num_given = encode_after_prefix(tokenizer, find_language("de"), ["ein Hund im Garten"], 20)
    assert len(ids) == 20
    assert num_given == 15
    assert ids[-1] == tokenizer.eos_token_id


def test_a_prefix_that_does_not_fit_is_named(tokenizer: Any) -> None:
    with pytest.raises(UserError, match="max_target_tokens is 10; the prefix 'Das Bild zeigt' alone takes 15"):
        encode_after_prefix(tokenizer, find_language("de"), ["ein Hund"], 10)


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        ("en", "a dog", " a dog"),
        ("en", "The image shows a dog", " a dog"),
        ("zh", "一只狗", "一只狗"),
        ("zh", "图为一只狗", "一只狗"),
        ("en", "The image shows", ""),
    ],
)
def test_what_follows_a_prefix(code: str, text: str, expected: str) -> None:
    assert continuation(find_language(code), text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "empty target"),
        ("", "empty target"),
        (" \n", "empty target"),
        ("a\ud800b", "target is not UTF-8"),
        ("x" * 100_001, "target is too long"),
    ],
)
def test_a_bad_text_has_a_reason(text: str | None, reason: str) -> None:
    with pytest.raises(BadSample) as raised:
        check_text(text, "target")
    assert raised.value.reason == reason


def test_a_tokenizer_without_special_tokens_is_refused(tokenizer: Any) -> None:
    require_special_tokens(tokenizer, "encoder")
    bare = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>")
    with pytest.raises(UserError, match="encoder: the tokenizer has no bos_token"):
        require_special_tokens(bare, "encoder")
