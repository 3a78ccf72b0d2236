"""A head of the corpus' tokens alone, for a training whose embedding is frozen.

Most of Gemma's 262,144 tokens are never a target, and the head's product is most of a small model's work. The loss
is then -log of a softmax over the others; those that never are a target take no share of it.
"""

import re
from collections.abc import Iterator

from torch import Tensor

from babelcap.coverage import Coverage
from babelcap.data.feed.batches import IGNORED_LABEL
from babelcap.data.feed.text import continuation, encode_prefix
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.generation.shortlist import Shortlist, tokens_of
from babelcap.models.network.captioner import Captioner

MARK = re.compile(r"<[^<>\s]+>")


def corpus_shortlist(
    model: Captioner, processor: CaptionProcessor, corpus: Corpus, coverage: Coverage, split: str
) -> Shortlist:
    """Of all tokens that a target of the split can have, with and without a prefix before it, and the special ones."""
    if model.head_weight.requires_grad:
        raise UserError("head is 'corpus', but the policy trains the embedding, which is the head; use policy=bridge")
    tokenizer = processor.decoder_tokenizer
    ids = tokens_of(_targets(corpus, coverage, split), tokenizer)
    for language in coverage.languages:
        ids.update(encode_prefix(tokenizer, language.prefix))
    specials = {model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id}
    ids |= {token for token in (*specials, model.config.decoder_start_token_id) if token is not None}
    # Marks such as <start_of_image> are never a target, but a head that never sees them would not learn to leave them.
    ids |= {number for token, number in tokenizer.get_vocab().items() if MARK.fullmatch(token)}
    weight = model.head_weight
    return Shortlist(weight.new_tensor(sorted(ids)).long(), (), weight)


def _targets(corpus: Corpus, coverage: Coverage, split: str) -> Iterator[str]:
    for row in corpus.rows(split):
        for annotation in row.annotations:
            if not coverage.is_seen(annotation.pair):
                continue
            yield annotation.target
            if coverage.task(annotation.task).after_prefix:
                yield continuation(coverage.language(annotation.language), annotation.target)


def in_shortlist(inputs: dict[str, Tensor], shortlist: Shortlist | None) -> dict[str, Tensor]:
    """A batch's inputs with the decoder's ids as positions in the shortlist."""
    if shortlist is None:
        return inputs
    labels = inputs["labels"]
    positions = shortlist.from_vocabulary(labels)
    return inputs | {
        "decoder_input_ids": shortlist.from_vocabulary(inputs["decoder_input_ids"]),
        "labels": positions.where(labels != IGNORED_LABEL, IGNORED_LABEL),
    }
