"""Samples side by side: what the loader gives and a model takes.

labels             [bos, tokens..., eos]           -100 where padded, and on a prefix that is given and not predicted
decoder_input_ids  [start, bos, tokens...]         the labels' tokens one place later, prefix and all
"""

import errno
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.utils.data import get_worker_info

from babelcap.config import ConfigModel
from babelcap.coverage import Pair
from babelcap.data.feed.images import IMAGENET_MEAN, IMAGENET_STD, scale_and_shift

IGNORED_LABEL = -100  # the label that cross-entropy leaves out
SHARED = ("pixels", "image_features")  # what is large enough to travel between processes in shared memory


class BatchConfig(ConfigModel):
    image_size_px: int = Field(224, ge=1)
    max_prompt_tokens: int = Field(128, ge=2)
    max_target_tokens: int = Field(128, ge=2)
    prefix_probability: float = Field(0.0, ge=0, le=1)  # of a caption to follow its language's prefix, given unscored
    source_mask_probability: float = Field(0.0, ge=0, lt=1)  # of a word of a translation's source to be hidden
    max_bad_share: float = Field(0.01, ge=0, le=1)  # of samples; with more bad ones the run stops
    image_mean: tuple[float, float, float] = IMAGENET_MEAN
    image_std: tuple[float, float, float] = IMAGENET_STD


@dataclass
class Batch:
    """Samples side by side.

    `pixels` are bytes [n, size, size, 4], the fourth of them idle, until `model_inputs` normalises them.
    """

    input_ids: Tensor
    attention_mask: Tensor
    decoder_input_ids: Tensor
    labels: Tensor
    pixels: Tensor | None
    image_features: Tensor | None
    num_target_tokens: Tensor  # labels of each sample that are scored
    pair_numbers: Tensor  # places in `pairs`
    indices: Tensor  # places in the global order (in evaluation: among the rows of the pair)
    rows: Tensor  # the annotations used
    image_numbers: Tensor
    pairs: tuple[Pair, ...]
    config: BatchConfig
    step: int = 0
    number: int = 0  # which micro-batch of the step, or which batch of the evaluation

    def __len__(self) -> int:
        return len(self.input_ids)

    def model_inputs(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """What the model's forward takes, on the device; images as float32 [n, 3, size, size], or their features."""
        names = ("input_ids", "attention_mask", "decoder_input_ids", "labels")
        inputs = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        if self.image_features is not None:
            inputs["image_features"] = self.image_features.to(device, non_blocking=True)
        elif self.pixels is not None:
            scale, shift = scale_and_shift(self.config.image_mean, self.config.image_std)
            pixels = self.pixels.to(device, non_blocking=True)[..., :3].permute(0, 3, 1, 2).contiguous().float()
            pixels *= torch.from_numpy(scale).to(device).view(1, 3, 1, 1)
            inputs["pixel_values"] = pixels.sub_(torch.from_numpy(shift).to(device).view(1, 3, 1, 1))
        return inputs

    def pin_memory(self) -> "Batch":
        """Page-locked, so that copies to a GPU overlap with its work. Called by torch's DataLoader."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)}
        return replace(self, **{name: tensor.pin_memory() for name, tensor in tensors.items()})

    def __getstate__(self) -> dict[str, Any]:
        """Small tensors travel between processes by value: a file descriptor each would cost more than they hold."""
        return {n: v.numpy() if isinstance(v, Tensor) and n not in SHARED else v for n, v in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({n: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in state.items()})


@dataclass
class Encoded:
    """One sample, tokenised: what a batch is made of."""

    index: int
    pair_number: int
    row: int
    image_number: int
    prompt: str
    target: str
    language: str
    after_prefix: bool
    features: Tensor | None = None  # of the image, where they stand in for its pixels
    prompt_ids: Sequence[int] = ()
    target_ids: Sequence[int] = ()
    num_given: int = 0  # tokens of the target that are not scored: none, or bos and the prefix

    @property
    def num_text_tokens(self) -> int:
        return len(self.target_ids) - 1 - max(self.num_given, 1)


class FillTokens(NamedTuple):
    """Tokens that a batch adds to those of its texts."""

    encoder_pad: int
    decoder_pad: int
    decoder_start: int


def collate(
    samples: Sequence[Encoded], pairs: tuple[Pair, ...], config: BatchConfig, fill: FillTokens, pixels: Tensor | None
) -> Batch:
    """Right-padded to the longest of these samples. Without pixels, they have image features."""
    return Batch(
        input_ids=pad([sample.prompt_ids for sample in samples], fill.encoder_pad),
        attention_mask=pad([[1] * len(sample.prompt_ids) for sample in samples], 0),
        decoder_input_ids=pad([[fill.decoder_start, *sample.target_ids[:-1]] for sample in samples], fill.decoder_pad),
        labels=pad([[*[IGNORED_LABEL] * s.num_given, *s.target_ids[s.num_given :]] for s in samples], IGNORED_LABEL),
        pixels=pixels,
        image_features=torch.stack([s.features for s in samples if s.features is not None]) if pixels is None else None,
        num_target_tokens=torch.tensor([len(sample.target_ids) - sample.num_given for sample in samples]),
        pair_numbers=torch.tensor([sample.pair_number for sample in samples]),
        indices=torch.tensor([sample.index for sample in samples]),
        rows=torch.tensor([sample.row for sample in samples]),
        image_numbers=torch.tensor([sample.image_number for sample in samples]),
        pairs=pairs,
        config=config,
    )


class PixelBlock:
    """The images of a batch, bytes [n, size, size, 4], each put in its place while the processor still has it at hand.

    In a worker process they are written into an anonymous file that the receiver maps as it is. That is faster than
    filling shared memory page by page, and is not bounded by /dev/shm.
    """

    def __init__(self, num_images: int, size_px: int) -> None:
        self.shape = (num_images, size_px, size_px, 4)
        shared = get_worker_info() is not None and hasattr(os, "memfd_create")
        self._file = io.FileIO(os.memfd_create("babelcap-pixels"), "wb") if shared else None
        self._array = np.empty(0 if shared else self.shape, dtype=np.uint8)

    def put(self, place: int, image: np.ndarray) -> None:
        if self._file is None:
            self._array[place] = image
        elif os.pwrite(self._file.fileno(), image.data, place * image.nbytes) < image.nbytes:
            raise OSError(errno.ENOSPC, "no memory for the images of a batch")

    def take(self, places: Sequence[int]) -> Tensor:
        """The images at these places, ascending: all, or all but those that were bad. Nothing can be put after it."""
        pixels = torch.from_numpy(self._array)
        if self._file is not None:
            with self._file:
                self._file.truncate(math.prod(self.shape))  # where the last ones are missing
                storage = torch.UntypedStorage._new_shared_fd_cpu(  # type: ignore[attr-defined]
                    self._file.fileno(), math.prod(self.shape)
                )
            pixels = torch.empty(0, dtype=torch.uint8).set_(storage).view(self.shape)
        return pixels if len(places) == len(pixels) else pixels[list(places)]


def pad(sequences: Sequence[Sequence[int]], value: int) -> Tensor:
    """int64 [n, longest], filled on the right."""
    padded = np.full((len(sequences), max(map(len, sequences))), value, dtype=np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded)
