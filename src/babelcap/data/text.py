"""From texts to token ids. Truncation keeps the end-of-sequence token: a cut text still tells the model that it ends.

prompt of the encoder   [bos, tokens..., eos]   in the encoder's vocabulary
target of the decoder   [bos, tokens..., eos]   in the decoder's; the decoder itself is started with eos
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encode_texts(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Token ids with bos in front and eos at the end, at most `max_tokens` of them."""
    if max_tokens < 2:
        raise ValueError(f"max_tokens is {max_tokens}; bos and eos alone take 2")
    if not texts:
        return []
    bodies = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return [[tokenizer.bos_token_id, *body[: max_tokens - 2], tokenizer.eos_token_id] for body in bodies]


def encode_prefix(tokenizer: "PreTrainedTokenizerBase", prefix: str) -> list[int]:
    """What the decoder is given to continue: bos and the prefix, open at the end."""
    return [tokenizer.bos_token_id, *tokenizer(prefix, add_special_tokens=False)["input_ids"]]
