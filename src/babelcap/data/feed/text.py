"""From texts to token ids. Truncation keeps the end-of-sequence token: a cut text still tells the model that it ends.

prompt of the encoder   [bos, tokens..., eos]                          in the encoder's vocabulary
target of the decoder   [bos, tokens..., eos]                          in the decoder's; the decoder starts with eos
target after a prefix   [bos, prefix tokens..., tokens..., eos]        as generation sees it when given the prefix
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from babelcap.data.store.format import MAX_TEXT_CHARACTERS
from babelcap.errors import BadSample, UserError
from babelcap.languages import Language

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Tokenizers(NamedTuple):
    """The two vocabularies of a captioner. The decoder starts with its eos unless told otherwise."""

    encoder: "PreTrainedTokenizerBase"
    decoder: "PreTrainedTokenizerBase"
    decoder_start_token_id: int | None = None


UNSPACED_SCRIPTS = frozenset({"Hans", "Hant", "Jpan", "Thai", "Laoo", "Khmr", "Mymr", "Tibt"})


def encode_texts(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Token ids with bos in front and eos at the end, at most `max_tokens` of them."""
    if max_tokens < 2:
        raise ValueError(f"max_tokens is {max_tokens}; bos and eos alone take 2")
    if not texts:
        return []
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    return [[bos, *body[: max_tokens - 2], eos] for body in _token_ids(tokenizer, texts)]


def _token_ids(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str]) -> list[list[int]]:
    """Without special tokens. Asked directly the tokenizer takes two thirds of the time that its wrapper does."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or backend.truncation is not None or backend.padding is not None:
        return tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return [encoding.ids for encoding in backend.encode_batch_fast(list(texts), add_special_tokens=False)]


def encode_prefix(tokenizer: "PreTrainedTokenizerBase", prefix: str) -> list[int]:
    """What the decoder is given to continue: bos and the prefix, open at the end."""
    return [tokenizer.bos_token_id, *tokenizer(prefix, add_special_tokens=False)["input_ids"]]


def continuation(language: Language, text: str) -> str:
    """A target text as it follows its language's prefix: a prefix that it has already is cut, a space joins them."""
    text = text.removeprefix(language.prefix).strip()
    return text if not text or language.script in UNSPACED_SCRIPTS else f" {text}"


def encode_after_prefix(
    tokenizer: "PreTrainedTokenizerBase", language: Language, texts: Sequence[str], max_tokens: int
) -> tuple[list[list[int]], int]:
    """Targets that begin with the prefix, and how many of their tokens it takes, bos among them."""
    prefix = encode_prefix(tokenizer, language.prefix)
    room = max_tokens - len(prefix) - 1
    if room < 1:
        raise UserError(f"max_target_tokens is {max_tokens}; the prefix '{language.prefix}' alone takes {len(prefix)}")
    if not texts:
        return [], len(prefix)
    bodies, eos = _token_ids(tokenizer, [continuation(language, text) for text in texts]), tokenizer.eos_token_id
    return [[*prefix, *body[:room], eos] for body in bodies], len(prefix)


def check_text(text: str | None, what: str) -> str:
    """The text when it can be used; otherwise BadSample."""
    if text is None or not text.strip():
        raise BadSample(f"empty {what}")
    if len(text) > MAX_TEXT_CHARACTERS:
        raise BadSample(f"{what} is too long", f"{len(text)} characters")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadSample(f"{what} is not UTF-8", str(error)) from None
    return text


def require_special_tokens(tokenizer: "PreTrainedTokenizerBase", what: str) -> None:
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if getattr(tokenizer, name) is None:
            raise UserError(f"{what}: the tokenizer has no {name.removesuffix('_id')}; babelcap needs bos, eos and pad")
