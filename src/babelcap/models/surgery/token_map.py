"""From one tokenizer's vocabulary to another's: which source pieces spell each target token.

embedding(target token) = mean of embedding(piece) over the pieces that the source tokenizer splits its text into
The text is what the token adds to a sentence: a space mark is a space, a byte is a byte. Special tokens go one to one,
by role, then by name. Any two tokenizers with a `tokenizers` backend will do.
"""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import embedding_bag

from babelcap.errors import UserError
from babelcap.models.surgery.token_text import Alphabet, SourceEncoder
from babelcap.storage import atomic_file, parse_json, write_json

ROLES = ("bos", "eos", "pad", "unk", "cls", "sep", "mask")
# Where a tokenizer has no token of a role, the one that does its work there.
STAND_INS = {"bos": "cls", "cls": "bos", "eos": "sep", "sep": "eos"}


@dataclass
class TokenMap:
    """Pieces of target token i: `pieces[offsets[i] : offsets[i + 1]]`. No piece: unmapped."""

    offsets: Tensor
    pieces: Tensor
    num_source_tokens: int
    unmapped: dict[int, str] = field(default_factory=dict)
    specials: dict[str, str] = field(default_factory=dict)
    source_hash: str = ""
    target_hash: str = ""

    @property
    def num_target_tokens(self) -> int:
        return len(self.offsets) - 1

    def remap(self, embedding: Tensor, num_rows: int | None = None) -> Tensor:
        """The target's embedding, [num_rows, width]. Unmapped tokens and padding rows get the source's mean.

        That mean (over the source tokenizer's own rows, without noise) says nothing of any token, and keeps the
        logits of rows that are never a target in the range of the others.
        """
        num_rows = self.num_target_tokens if num_rows is None else num_rows
        if embedding.shape[0] < self.num_source_tokens:
            raise UserError(
                f"the source embedding has {embedding.shape[0]} rows, its tokenizer {self.num_source_tokens} tokens; "
                "give the tokenizer that the checkpoint was trained with"
            )
        if num_rows < self.num_target_tokens:
            raise UserError(f"{num_rows} rows cannot hold the target tokenizer's {self.num_target_tokens} tokens")
        source = embedding.detach().float()
        means = embedding_bag(self.pieces.long(), source, self.offsets, mode="mean", include_last_offset=True)
        remapped = source[: self.num_source_tokens].mean(dim=0).repeat(num_rows, 1)
        mapped = self.offsets.diff() > 0
        remapped[: self.num_target_tokens][mapped] = means[mapped]
        return remapped.to(embedding.dtype)

    def check(self) -> None:
        """Raises ValueError where offsets do not rise from 0 to the number of pieces, or a piece is no source token."""
        offsets, pieces = self.offsets, self.pieces
        if offsets.ndim != 1 or pieces.ndim != 1 or offsets.is_floating_point() or pieces.is_floating_point():
            raise ValueError("offsets and pieces are rows of integers")
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(pieces) or bool((offsets.diff() < 0).any()):
            raise ValueError("offsets do not fit the pieces")
        if bool(((pieces < 0) | (pieces >= self.num_source_tokens)).any()):
            raise ValueError("a piece is no token of the source")

    def summary(self) -> dict[str, Any]:
        counts = Counter(self.offsets.diff().tolist())
        return {
            "num_source_tokens": self.num_source_tokens,
            "num_target_tokens": self.num_target_tokens,
            "num_pieces": len(self.pieces),
            "tokens_by_number_of_pieces": {str(number): counts[number] for number in sorted(counts)},
            "specials": self.specials,
            "num_unmapped": len(self.unmapped),
            "unmapped": {str(token_id): token for token_id, token in self.unmapped.items()},
            "source_tokenizer_sha256": self.source_hash,
            "target_tokenizer_sha256": self.target_hash,
        }

    def save(self, folder: str | Path) -> None:
        """`token_map.safetensors` (offsets, pieces) and `token_map.json` (the summary)."""
        with atomic_file(Path(folder) / "token_map.safetensors") as path:
            save_file(
                {"offsets": self.offsets, "pieces": self.pieces},
                path,
                metadata={"summary": json.dumps(self.summary(), ensure_ascii=False)},
            )
        write_json(Path(folder) / "token_map.json", self.summary())

    @classmethod
    def load(cls, folder: str | Path) -> "TokenMap":
        path = Path(folder) / "token_map.safetensors"
        try:
            with safe_open(path, "pt") as file:
                summary = parse_json(file.metadata()["summary"], path)
                loaded = cls(
                    offsets=file.get_tensor("offsets"),
                    pieces=file.get_tensor("pieces"),
                    num_source_tokens=int(summary["num_source_tokens"]),
                    unmapped={int(token_id): str(token) for token_id, token in summary["unmapped"].items()},
                    specials=dict(summary["specials"]),
                    source_hash=str(summary["source_tokenizer_sha256"]),
                    target_hash=str(summary["target_tokenizer_sha256"]),
                )
                loaded.check()
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; `babelcap model prepare` writes it") from None
        except (SafetensorError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise UserError(f"{path} is not a token map ({error}); it may be damaged or of another kind") from None
        return loaded


def build_token_map(source: Any, target: Any) -> TokenMap:
    """`source` and `target` are transformers tokenizers with a `tokenizers` backend."""
    source_json, target_json = backend_json(source), backend_json(target)
    source_ids: dict[str, int] = source.get_vocab()
    tokens = {token_id: token for token, token_id in target.get_vocab().items()}
    specials = _map_specials(source, target, source_ids)
    encoder = SourceEncoder(source_json, source_ids, set(source.all_special_ids))
    alphabet = Alphabet(target_json)
    target_specials = set(target.all_special_ids)

    pieces: dict[int, list[int]] = {}
    words: list[tuple[int, str]] = []
    for token_id, token in tokens.items():
        if token in specials:
            pieces[token_id] = [source_ids[specials[token]]]
        elif token_id in target_specials:
            pieces[token_id] = []
        else:
            texts, lone_bytes = alphabet.read(token)
            pieces[token_id] = [piece for byte in lone_bytes for piece in encoder.byte_pieces(byte)]
            words += [(token_id, text) for text in texts]
    for (token_id, _), found in zip(words, encoder.encode([text for _, text in words]), strict=True):
        pieces[token_id] += found

    num_tokens = max(tokens) + 1
    lists = [pieces.get(token_id, []) for token_id in range(num_tokens)]
    offsets = torch.tensor([0] + [len(found) for found in lists]).cumsum(0)
    return TokenMap(
        offsets=offsets,
        pieces=torch.tensor([piece for found in lists for piece in found], dtype=torch.int32),
        num_source_tokens=max(source_ids.values()) + 1,
        unmapped={token_id: tokens.get(token_id, "") for token_id, found in enumerate(lists) if not found},
        specials=specials,
        source_hash=tokenizer_hash(source_json),
        target_hash=tokenizer_hash(target_json),
    )


def _map_specials(source: Any, target: Any, source_ids: dict[str, int]) -> dict[str, str]:
    """Special target token -> the source's: of the same role, else of the same name. Others are left out."""
    mapped: dict[str, str] = {}
    for role in ROLES:
        token = getattr(target, f"{role}_token", None)
        counterpart = getattr(source, f"{role}_token", None)
        if counterpart is None and role in STAND_INS:
            counterpart = getattr(source, f"{STAND_INS[role]}_token", None)
        if token is not None and counterpart is not None and counterpart in source_ids:
            mapped.setdefault(token, counterpart)
    # Only where both hold it special: Gemma's plain "<s>" is a tag of HTML, Florence's is the beginning of a text.
    names = {token.content for token in source.added_tokens_decoder.values() if token.special}
    for added in target.added_tokens_decoder.values():
        if added.special and added.content in names:
            mapped.setdefault(added.content, added.content)
    return mapped


def backend_json(tokenizer: Any) -> dict[str, Any]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(f"{type(tokenizer).__name__} has no `tokenizers` backend; convert it to a tokenizer.json first")
    description: dict[str, Any] = json.loads(backend.to_str())
    return description


def tokenizer_hash(description: dict[str, Any]) -> str:
    """Of what decides the splitting; padding and truncation are settings of one call."""
    kept = {key: value for key, value in description.items() if key not in ("padding", "truncation")}
    canonical = json.dumps(kept, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
