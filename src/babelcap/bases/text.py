"""What base models learn from: scenes, English captions and text of their own, never those of a study's corpus.

Everything comes from (seed, purpose, index): the i-th sample of a base is the same whoever asks and in whatever order.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from babelcap.coverage import CAPTION, Coverage, Style, find_task
from babelcap.data.feed.batches import IGNORED_LABEL, pad
from babelcap.data.feed.text import encode_texts
from babelcap.jobs.progress import progress
from babelcap.world.annotate import draw_free_text
from babelcap.world.corpus import TEXT_KINDS
from babelcap.world.message import plan_caption, plan_web
from babelcap.world.realise import realise
from babelcap.world.scenes import Scene, generator
from babelcap.world.tokenizers import train_decoder_tokenizer, train_encoder_tokenizer, wrap_decoder, wrap_encoder

NUM_TOKENIZER_LINES = 1500  # of each kind and language
READING = "Complete the following text:"  # the captioner's second task: it teaches the encoder to read
SHARE_READING = 0.35
SHARE_HIDDEN = 0.3  # of the words of a text to be completed
MAX_TOKENS = 64
BATCHES_SORTED_TOGETHER = 16  # by length, so that little is padded


class Example(NamedTuple):
    """A prompt and a target about a picture."""

    picture: int
    prompt: str
    target: str


def make_tokenizers(seed: int, num_encoder_tokens: int, num_decoder_tokens: int) -> tuple[Any, Any]:
    """The bases' own, as published models come with theirs: English for the encoder, all languages for the decoder."""
    coverage = Coverage()
    lines = {
        language.code: [
            realise(draw_free_text(generator(seed, f"tokenizer/{language.code}/{kind}", index), kind), language.code)
            for kind in TEXT_KINDS
            for index in range(NUM_TOKENIZER_LINES)
        ]
        for language in coverage.languages
    }
    english = [*lines[coverage.source_language], *[READING] * NUM_TOKENIZER_LINES]
    encoder = train_encoder_tokenizer(english, coverage, num_encoder_tokens)
    decoder = train_decoder_tokenizer([line for part in lines.values() for line in part], coverage, num_decoder_tokens)
    return wrap_encoder(encoder), wrap_decoder(decoder)


def captioning_example(scenes: Sequence[Scene], seed: int, index: int, unknown: str) -> Example:
    """English: a caption in any style, or a text about the picture of which words are hidden."""
    rng = generator(seed, "florence", index)
    picture = rng.randrange(len(scenes))
    scene = scenes[picture]
    style = rng.choice(list(Style))
    if rng.random() >= SHARE_READING:
        return Example(picture, find_task(CAPTION).sentence(style), realise(plan_caption(scene, style, rng), "en"))
    plan = plan_caption(scene, style, rng) if rng.random() < 0.5 else [plan_web(scene, rng)]
    text = realise(plan, "en")
    return Example(picture, f"{READING} {hide_words(text, unknown, rng)}", text)


def hide_words(text: str, unknown: str, rng: random.Random) -> str:
    return " ".join(unknown if rng.random() < SHARE_HIDDEN else word for word in text.split(" "))


def language_line(shares: Mapping[str, float], seed: int, index: int) -> str:
    """A line of web text or of captions that belong to no picture, in a language drawn by its share."""
    rng = generator(seed, "gemma", index)
    language = rng.choices(list(shares), list(shares.values()))[0]
    return realise(draw_free_text(rng, rng.choice(TEXT_KINDS)), language)


def sorted_batches(lengths: Sequence[int], batch_size: int, seed: int) -> Iterator[list[int]]:
    """Places of the samples: runs of batches sorted by length, the batches of a run in random order."""
    rng = generator(seed, "batches")
    run = batch_size * BATCHES_SORTED_TOGETHER
    for start in range(0, len(lengths), run):
        places = sorted(range(start, min(start + run, len(lengths))), key=lambda place: lengths[place])
        batches = [places[at : at + batch_size] for at in range(0, len(places), batch_size)]
        rng.shuffle(batches)
        yield from batches


def encode(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    return encode_texts(tokenizer, texts, MAX_TOKENS)


def decoder_tensors(ids: Sequence[Sequence[int]], tokenizer: Any) -> tuple[Tensor, Tensor]:
    """Inputs [eos, bos, tokens...] and labels [bos, tokens..., eos], as a captioner has them."""
    inputs = pad([[tokenizer.eos_token_id, *row[:-1]] for row in ids], tokenizer.pad_token_id)
    return inputs, pad(ids, IGNORED_LABEL)


def padded_size(num_tokens: int) -> int:
    """Rows of a vocabulary: a multiple of 64 with at least one to spare, which stands for the image."""
    return (num_tokens // 64 + 1) * 64


def train_on(
    what: str,
    parameters: Sequence[torch.nn.Parameter],
    rate: float,
    batches: Sequence[Sequence[int]],
    loss_of: Callable[[Sequence[int]], Tensor],
) -> float:
    """AdamW, warmed up over a twentieth of the steps and then lowered along a cosine. The loss of the last tenth."""
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, len(batches), pct_start=0.05, div_factor=10)
    losses = []
    with progress(what, len(batches)) as advance:
        for batch in batches:
            loss = loss_of(batch)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
            advance(1)
    last = losses[-max(1, len(losses) // 10) :]
    return sum(last) / len(last)
