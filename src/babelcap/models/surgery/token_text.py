"""What a token says and how text is said in tokens: byte alphabets, byte tokens, space marks, word-piece prefixes."""

import json
import re
from typing import Any

from tokenizers import Tokenizer

SPACE_MARK = "▁"
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[int, str]:
    """Byte-level BPE writes each byte as one visible character: itself where it is visible, else 256 and upwards."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + rank) for rank, byte in enumerate(hidden)}


def _types_in(part: Any) -> set[str]:
    """All component types named in a branch of a tokenizer.json."""
    if isinstance(part, dict):
        return {str(part.get("type"))}.union(*map(_types_in, part.values()))
    return set().union(*map(_types_in, part)) if isinstance(part, list) else set()


class Alphabet:
    """How a tokenizer writes text in its tokens, recognised from its tokenizer.json."""

    def __init__(self, description: dict[str, Any]) -> None:
        surroundings = [description.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")]
        model = description["model"]
        self.is_byte_level = "ByteLevel" in _types_in(surroundings)
        self.has_space_mark = not self.is_byte_level and (
            "Metaspace" in _types_in(surroundings) or SPACE_MARK in json.dumps(surroundings, ensure_ascii=False)
        )
        is_word_piece = model.get("type") == "WordPiece"
        self.continuing_prefix = model.get("continuing_subword_prefix") or "##" if is_word_piece else ""
        self.added = {token["content"] for token in description.get("added_tokens") or ()}
        self._bytes = {character: byte for byte, character in byte_alphabet().items()}

    def read(self, token: str) -> tuple[list[str], list[int]]:
        """The texts that a token adds to a sentence, and the bytes in it that are no whole characters."""
        if token in self.added:  # written as it is, but for the space mark (Gemma's runs of spaces are added tokens)
            return [token.replace(SPACE_MARK, " ") if self.has_space_mark else token], []
        if self.is_byte_level and all(character in self._bytes for character in token):
            return _split_bytes(bytes(self._bytes[character] for character in token))
        single_byte = BYTE_TOKEN.fullmatch(token)
        if single_byte:
            return [], [int(single_byte[1], 16)]
        if self.has_space_mark:
            token = token.replace(SPACE_MARK, " ")
        if self.continuing_prefix:
            if token.startswith(self.continuing_prefix) and token != self.continuing_prefix:
                token = token.removeprefix(self.continuing_prefix)
            elif token[:1].isalnum():  # a word's beginning; marks stand close to the word before
                token = " " + token
        return [token] if token else [], []


def _split_bytes(raw: bytes) -> tuple[list[str], list[int]]:
    texts: list[str] = []
    lone_bytes: list[int] = []
    while raw:
        try:
            texts.append(raw.decode())
            break
        except UnicodeDecodeError as error:
            if error.start:
                texts.append(raw[: error.start].decode())
            lone_bytes += raw[error.start : error.end]
            raw = raw[error.end :]
    return texts, lone_bytes


class SourceEncoder:
    """Splits texts as they stand inside a sentence: nothing put in front, no special token read out of plain text."""

    def __init__(self, description: dict[str, Any], ids: dict[str, int], special_ids: set[int]) -> None:
        self.alphabet = Alphabet(description)
        self.ids = ids
        self.special_ids = special_ids
        self.backend = Tokenizer.from_str(json.dumps(_inside_a_sentence(description)))
        self.byte_characters = byte_alphabet()

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Ids of the pieces of each text; what the source cannot write (its unknown token) is left out."""
        distinct = sorted(set(texts))
        encodings = self.backend.encode_batch_fast(distinct, add_special_tokens=False)
        pieces = {text: encoding.ids for text, encoding in zip(distinct, encodings, strict=True)}
        prefix = self.alphabet.continuing_prefix
        if prefix:
            pieces |= {text: [self.ids[prefix + text]] for text in distinct if prefix + text in self.ids}
        return [[piece for piece in pieces[text] if piece not in self.special_ids] for text in texts]

    def byte_pieces(self, byte: int) -> list[int]:
        if self.alphabet.is_byte_level:
            names = [self.byte_characters[byte]]
        else:
            names = [f"<0x{byte:02X}>"] + ([chr(byte).replace(" ", SPACE_MARK)] if byte < 0x80 else [])
        return [self.ids[name] for name in names if name in self.ids][:1]


def _inside_a_sentence(description: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer without what it does at the beginning of a text, and without its special tokens."""
    changed = description | {"post_processor": None, "padding": None, "truncation": None}
    changed["added_tokens"] = [token for token in description.get("added_tokens") or () if not token["special"]]
    changed["normalizer"] = _without_prefix(description.get("normalizer"))
    changed["pre_tokenizer"] = _without_prefix(description.get("pre_tokenizer"))
    return changed


def _without_prefix(part: Any) -> Any:
    if isinstance(part, list):
        return [kept for kept in map(_without_prefix, part) if kept is not None]
    if not isinstance(part, dict):
        return part
    if part.get("type") in ("Prepend", "Strip"):
        return None
    changed = {key: _without_prefix(value) if isinstance(value, list) else value for key, value in part.items()}
    if changed.get("type") == "Metaspace":
        changed["prepend_scheme"] = "never"
    if changed.get("type") == "ByteLevel":
        changed["add_prefix_space"] = False
    return changed
