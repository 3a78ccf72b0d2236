"""The world's two tokenizers, trained on its training text and loaded by AutoTokenizer.

encoder  English, byte-level BPE as BART's:                        <s> 0, <pad> 1, </s> 2, <unk> 3
decoder  six languages, BPE with "▁" and byte fallback as Gemma's: <pad> 0, <eos> 1, <bos> 2, <unk> 3

Both give every text back exactly (the decoder's as long as the text has no "▁" in it). In the decoder's, a token never
reaches across the end of a decoder prefix, so that a prefix's tokens always begin the tokens of a text that starts
with it; and Chinese is cut into the words of the grammar first, as no spaces do it.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from babelcap.coverage import Coverage
from babelcap.storage import write_manifest
from babelcap.world.grammar import chinese

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ENCODER_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
DECODER_SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")
BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
PUNCTUATION = r"[.,!?:;¿¡。，！？：；、—]"
PROMPT_WEIGHT = 200  # how often each prompt stands among the texts: they are part of every sample


def train_encoder_tokenizer(texts: Iterable[str], coverage: Coverage, num_tokens: int = 1000) -> Tokenizer:
    prompts = [
        task.instruction(language, style, "")
        for task in coverage.tasks
        for language in coverage.languages
        for style in task.styles
    ]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens,
        special_tokens=list(ENCODER_SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*texts, *(prompts * PROMPT_WEIGHT)], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def train_decoder_tokenizer(texts: Iterable[str], coverage: Coverage, num_tokens: int = 4000) -> Tokenizer:
    reserved = (*DECODER_SPECIAL, *BYTES)
    draft = Tokenizer(models.BPE())
    _prepare_decoder(draft, coverage)
    trainer = trainers.BpeTrainer(vocab_size=max(1, num_tokens - len(reserved)), show_progress=False)
    draft.train_from_iterator(texts, trainer)
    # The byte tokens are put in afterwards: given to the trainer they would become special and vanish when decoding.
    trained = json.loads(draft.to_str())["model"]
    words = sorted(trained["vocab"], key=lambda word: trained["vocab"][word])
    vocabulary = {word: index for index, word in enumerate((*reserved, *words))}
    merges = [tuple(merge) for merge in trained["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    _prepare_decoder(tokenizer, coverage)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in DECODER_SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", pair="<bos> $A <eos> $B <eos>", special_tokens=[("<bos>", 2), ("<eos>", 1)]
    )
    return tokenizer


def _prepare_decoder(tokenizer: Tokenizer, coverage: Coverage) -> None:
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("▁", "merged_with_next"),
            pre_tokenizers.Split(Regex(PUNCTUATION), "isolated"),
            pre_tokenizers.Split("'", "merged_with_previous"),
            pre_tokenizers.Split(Regex("|".join(_whole_words(coverage))), "isolated"),
        ]
    )


def _whole_words(coverage: Coverage) -> list[str]:
    """The last word of each prefix, which another word's beginning may be, and the Chinese words; longest first."""
    ends = []
    for language in coverage.languages:
        *before, last = language.prefix.split(" ")
        ends.append(f"▁{last}" if before else last)
    measures = sorted({measure for _, measure in chinese.NOUNS.values()})
    words = [word for word, _ in chinese.NOUNS.values()] + list(chinese.COLOURS.values())
    words += [count + measure for count in chinese.COUNTS.values() for measure in measures]
    words += [*chinese.SIZES.values(), *chinese.RELATIONS.values(), "的", "和"]
    return sorted(map(re.escape, {*ends, *words}), key=lambda word: (-len(word), word))


def wrap_encoder(tokenizer: Tokenizer) -> "PreTrainedTokenizerFast":
    return _wrap(tokenizer, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def wrap_decoder(tokenizer: Tokenizer) -> "PreTrainedTokenizerFast":
    return _wrap(tokenizer, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>")


def _wrap(tokenizer: Tokenizer, **specials: str) -> "PreTrainedTokenizerFast":
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **specials, clean_up_tokenization_spaces=False, padding_side="right"
    )


def save_tokenizers(folder: Path, encoder: Tokenizer, decoder: Tokenizer) -> None:
    """Writes `encoder/` and `decoder/`, each for AutoTokenizer.from_pretrained."""
    wrap_encoder(encoder).save_pretrained(str(folder / "encoder"))
    wrap_decoder(decoder).save_pretrained(str(folder / "decoder"))
    for name in ("encoder", "decoder"):
        write_manifest(folder / name)  # whoever loads a tokenizer compares its files with it
