"""What was generated as it is handed out: texts, their scores, tokens and attention, and the language they are in."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from babelcap.coverage import CAPTION, Coverage, Style
from babelcap.identification import identify
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.generation.explain import Explained, explain
from babelcap.models.generation.preparing import Prepared
from babelcap.models.generation.requests import GeneratedText, GenerationResult, Score, Token
from babelcap.models.network.captioner import Captioner

SCORE_DIGITS = 4
LABEL_ENDS = (":", "：")  # a prefix that ends so is a label before the caption, no part of its sentence


class Generated(NamedTuple):
    """The sequences of one request, best first, each up to its end; and what the encoder made of its input."""

    item: Prepared
    sequences: list[Tensor]
    encoder_states: Tensor  # [positions, width]
    encoder_mask: Tensor
    log_probabilities: list[tuple[float, ...]] | None = None  # of what was generated, where the search knew them


class ResultBuilder:
    def __init__(
        self, model: Captioner, processor: CaptionProcessor, coverage: Coverage, *, identify_language: bool
    ) -> None:
        self.model, self.processor, self.coverage = model, processor, coverage
        self.identify_language = identify_language

    def results(self, generated: Sequence[Generated]) -> list[GenerationResult]:
        """All of equal settings, each with as many sequences."""
        sequences = [sequence for found in generated for sequence in found.sequences]
        pad = self.model.config.pad_token_id or 0
        padded = pad_sequence(sequences, batch_first=True, padding_value=pad)
        settings = generated[0].item.request.settings
        explained: list[Explained | None] = [None] * len(sequences)
        is_known = all(found.log_probabilities is not None for found in generated)
        if settings.tokens or settings.attention or (settings.scores and not is_known):
            explained = list(self._explain(generated, padded, [len(sequence) for sequence in sequences]))
        wholes = self.processor.decode(padded)
        results, row = [], 0
        for found in generated:
            texts = []
            for number, sequence in enumerate(found.sequences):
                known = found.log_probabilities[number] if settings.scores and found.log_probabilities else None
                texts.append(self._text(found.item, wholes[row], sequence, explained[row], known))
                row += 1
            results.append(self._result(found.item, texts))
        return results

    @torch.no_grad()
    def _explain(self, generated: Sequence[Generated], padded: Tensor, lengths: list[int]) -> Iterator[Explained]:
        device = self.model.device
        states = pad_sequence([found.encoder_states for found in generated], batch_first=True)
        mask = pad_sequence([found.encoder_mask for found in generated], batch_first=True)
        behind = torch.arange(padded.shape[1]) >= torch.tensor(lengths)[:, None]
        first = generated[0]
        found = explain(
            self.model,
            states,
            mask,
            int(first.encoder_mask.sum()) - len(first.item.prompt_ids),
            padded.to(device),
            behind.to(device),
            attention=first.item.request.settings.attention,
        )
        for row in range(len(padded)):
            attention = None if found.attention is None else found.attention[row].cpu()
            yield Explained(found.log_probabilities[row].cpu(), found.is_token[row].cpu(), attention)

    def _text(
        self, item: Prepared, whole: str, ids: Tensor, explained: Explained | None, known: tuple[float, ...] | None
    ) -> GeneratedText:
        without_prefix = whole.removeprefix(item.prefix)
        if item.request.task == CAPTION and item.request.style == Style.SHORT and "\n" in without_prefix:
            without_prefix = first_line(without_prefix)
            whole = item.prefix + without_prefix if whole.startswith(item.prefix) else without_prefix
        if item.prefix.endswith(LABEL_ENDS):
            whole = without_prefix.strip()
        if explained is None:
            return GeneratedText(whole, without_prefix, None if known is None else _score(known))
        settings, num_given = item.request.settings, self.model.num_given_tokens(item.prefix_ids) - 1
        num_tokens = int(explained.is_token.sum())
        return GeneratedText(
            whole,
            without_prefix,
            _score(explained.log_probabilities[num_given:num_tokens].double().tolist()),
            tuple(self._tokens(ids[1 : num_tokens + 1], explained, num_given)) if settings.tokens else (),
            None if explained.attention is None else explained.attention[:num_tokens],
        )

    def _tokens(self, ids: Tensor, explained: Explained, num_given: int) -> Iterator[Token]:
        """A token's text is what it adds to that of those before it: pieces of a word have no text of their own."""
        tokenizer, written = self.processor.decoder_tokenizer, ""
        for place, token_id in enumerate(ids.tolist()):
            whole = tokenizer.decode(ids[: place + 1], skip_special_tokens=True)
            yield Token(token_id, whole[len(written) :], float(explained.log_probabilities[place]), place < num_given)
            written = whole

    def _result(self, item: Prepared, texts: Sequence[GeneratedText]) -> GenerationResult:
        if not self.identify_language:
            return GenerationResult(item.request, item.prefix, tuple(texts), num_tokens_cut=item.num_tokens_cut)
        found = identify(texts[0].without_prefix, self.coverage.languages)  # a prefix was given, not said
        is_in_language = found.is_in(self.coverage.language(item.request.language))
        return GenerationResult(
            item.request, item.prefix, tuple(texts), found.language, is_in_language, item.num_tokens_cut
        )


def first_line(text: str) -> str:
    """Of a short caption, which is one line: what a decoder adds behind it is the same again, mostly."""
    return next((line for line in text.splitlines() if line.strip()), "")


def _score(log_probabilities: Sequence[float]) -> Score:
    """Rounded: the last digits depend on what else was in the batch."""
    total = round(sum(log_probabilities), SCORE_DIGITS)
    return Score(total, total / max(1, len(log_probabilities)), len(log_probabilities))
