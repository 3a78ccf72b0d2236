"""Language shortlists: the target tokens seen in a language's text. Generation multiplies the head for these rows only.

The result is that of masking all other logits with -inf. Generation runs in a small vocabulary of its own: the allowed
tokens, and those that may only be read (start, padding, prefix, forced tokens), whose logits stay at -inf.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from babelcap.data.feed.text import encode_prefix
from babelcap.errors import UserError
from babelcap.languages import find_language
from babelcap.models.checkpoints.files import SHORTLIST_FILES
from babelcap.storage import read_json_object, require_manifest, update_manifest, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from babelcap.data.store.store import Corpus

FOLDER = "shortlists"  # beside the model's weights, a file for each language
TEXTS_AT_ONCE = 1000


class Shortlist:
    """A vocabulary of a few rows of the head. Sorted, so that the order of ties stays that of the whole vocabulary."""

    def __init__(self, allowed: Tensor, only_read: Iterable[int], weight: Tensor) -> None:
        allowed = allowed.to(weight.device, torch.long).flatten().unique()
        others = torch.tensor(sorted(set(only_read)), dtype=torch.long, device=weight.device)
        self.ids = torch.cat([allowed, others]).unique()
        self.blocked = (~torch.isin(self.ids, allowed)).nonzero().flatten()  # places of what may only be read
        self.weight = weight.detach()[self.ids]

    def to(self, device: torch.device) -> None:
        self.ids, self.blocked, self.weight = (part.to(device) for part in (self.ids, self.blocked, self.weight))

    def from_vocabulary(self, ids: Tensor) -> Tensor:
        """Positions in the shortlist of ids of the whole vocabulary, all of which must be in it."""
        return torch.searchsorted(self.ids, ids.to(self.ids.device))

    def positions(self, ids: Sequence[int]) -> list[int]:
        found: list[int] = self.from_vocabulary(torch.tensor(ids, dtype=torch.long)).tolist()
        return found

    def to_vocabulary(self, positions: Tensor) -> Tensor:
        return self.ids[positions]

    def position(self, token_id: int) -> int:
        return int(self.from_vocabulary(torch.tensor([token_id])))


def allowed_ids(allowed_tokens: Any, folder: Path | None, vocab_size: int) -> Tensor:
    """Token ids as given, or those of a language's shortlist beside the model."""
    if isinstance(allowed_tokens, str):
        if folder is None:
            raise UserError(
                f"allowed_tokens='{allowed_tokens}': this model was not loaded from a folder, so it has no shortlists; "
                "give the token ids themselves"
            )
        return read_shortlist(folder, allowed_tokens, vocab_size)
    ids = torch.as_tensor(allowed_tokens).flatten()
    if ids.numel() == 0 or ids.is_floating_point() or ids.dtype == torch.bool:
        raise UserError("allowed_tokens: expected a language or a list of token ids, and at least one")
    check_ids(ids, vocab_size, "allowed_tokens")
    return ids.long()


def check_ids(ids: Tensor, vocab_size: int, field: str) -> None:
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= vocab_size):
        wrong = ids[(ids < 0) | (ids >= vocab_size)][0]
        raise UserError(f"{field}: token id {int(wrong)} is outside the vocabulary (0 to {vocab_size - 1})")


def build_shortlist(
    corpus: "Corpus", language: str, tokenizer: "PreTrainedTokenizerBase", *, split: str | None = None
) -> list[int]:
    """The ids of every token in the corpus' texts of a language, with the special tokens and the language's prefix."""
    entry = find_language(language, corpus.coverage.languages)
    texts = (
        annotation.target
        for row in corpus.rows(split)
        for annotation in row.annotations
        if annotation.language == language
    )
    ids = tokens_of(texts, tokenizer)
    if not ids:
        raise UserError(f"{corpus.folder}: no text in '{language}'; the corpus has nothing to build its shortlist from")
    specials = {tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id} - {None}
    return sorted(ids | specials | set(encode_prefix(tokenizer, entry.prefix)))


def tokens_of(texts: Iterable[str], tokenizer: "PreTrainedTokenizerBase") -> set[int]:
    ids: set[int] = set()
    for some in _in_batches(texts):
        ids.update(*tokenizer(some, add_special_tokens=False)["input_ids"])
    return ids


def _in_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    for text in texts:
        some.append(text)
        if len(some) == TEXTS_AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def write_shortlist(
    folder: str | Path, language: str, token_ids: Sequence[int], vocab_size: int, origin: str = ""
) -> Path:
    """`shortlists/LANGUAGE.json` in the model's folder."""
    path = Path(folder) / FOLDER / f"{language}.json"
    ids = sorted(set(map(int, token_ids)))
    check_ids(torch.tensor(ids), vocab_size, f"shortlist of '{language}'")
    write_json(
        path,
        {"language": language, "vocab_size": vocab_size, "num_tokens": len(ids), "origin": origin, "token_ids": ids},
    )
    update_manifest(folder, SHORTLIST_FILES)
    return path


def read_shortlist(folder: str | Path, language: str, vocab_size: int) -> Tensor:
    path = Path(folder) / FOLDER / f"{language}.json"
    if not path.is_file():
        known = sorted(file.stem for file in (Path(folder) / FOLDER).glob("*.json"))
        raise UserError(
            f"{folder}: no shortlist of '{language}' (found: {', '.join(known) or 'none'}); "
            f"build it with `babelcap model shortlist CORPUS --language {language}`"
        )
    require_manifest(folder, only=SHORTLIST_FILES, advice="build it again with `babelcap model shortlist`")
    values = read_json_object(path)
    found, written_for = values.get("token_ids"), values.get("vocab_size")
    if not isinstance(found, list) or not all(type(token_id) is int and abs(token_id) < 2**62 for token_id in found):
        raise UserError(f"{path}: no list of token ids; the shortlist is damaged, build it again")
    if written_for != vocab_size:
        raise UserError(f"{path}: built for a vocabulary of {written_for} tokens, this model's has {vocab_size}")
    ids = torch.tensor(found, dtype=torch.long)
    check_ids(ids, vocab_size, str(path))
    return ids
