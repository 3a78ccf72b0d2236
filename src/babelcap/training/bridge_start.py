"""Where a new bridge starts: it says of an image what its features tell of captions, in the decoder's own embeddings.

features  z = (f - mean) / deviation: the mean over an image's positions, each channel by itself
words     t: sqrt(count) log(N / images that have the token) of its captions in seen languages, length one, centred
ridge     B = (Z'Z / N + lambda I)^-1 Z'T / N, what the words are, told by the features
image projection           V_r B' z, with V_r the first r right singular vectors of Z B
cross-attention, o_proj v_proj   E' V_r', with E the tokens' embeddings: what was told, as a sum of embeddings

Positions get the same map as their mean. All of it is in closed form and takes seconds. Drawn at random, a projection
gives nearly the same for all images, because of a frozen backbone's channels the means are larger than the differences,
and the decoder has to find out by itself what in it stands for which word. Gates stay closed, so that the captioner
still begins as its decoder. No caption in an unseen language is looked at.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from babelcap.coverage import CAPTION
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import BadSample, UserError
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.checkpoints.processor import load_processor
from babelcap.models.checkpoints.saving import save_captioner
from babelcap.models.network.captioner import Captioner
from babelcap.models.network.features_encoder import FeaturesEncoder
from babelcap.training.features import FeatureStore, open_features
from babelcap.training.parallel import join_world

RIDGE = 0.3  # lambda; channels have a mean square of one
MIN_IMAGES = 5  # that have a token in their captions, or it tells nothing of others
MAX_SHARE = 0.5  # of the images; what nearly all captions have tells none apart
MIN_DEVIATION = 1e-3  # of a channel, as a share of that of all: one that never changes is not blown up
CROSSING = 0.5  # the size of what is started, of values and of what is written
DRAWN_SHARE = 0.1  # of the drawn weights that stays beside it, so that heads and layers can part

Matrix = NDArray[np.float64]


class Words(NamedTuple):
    tokens: list[int]
    vectors: Matrix  # [images, tokens]


class BridgeStart(NamedTuple):
    weight: Matrix  # of the image projection, [width, channels]; over images its results have a mean square of one
    bias: Matrix  # [width]
    words: Matrix  # [tokens, width]: which words a result of the projection stands for
    explained: float  # share of the words' variance that is told, of the images it was fitted on


class Fitted(NamedTuple):
    num_images: int
    num_tokens: int
    explained: float


def word_vectors(captions: Sequence[Sequence[int]]) -> Words:
    """The tokens of each image's captions -> rows of length one, centred, over the tokens that tell some apart."""
    found = Counter(token for tokens in captions for token in set(tokens))
    number = len(captions)
    telling = sorted(token for token, count in found.items() if MIN_IMAGES <= count <= MAX_SHARE * number)
    if not telling:
        raise UserError(f"no token is in the captions of at least {MIN_IMAGES} and at most half of {number} images")
    columns = {token: column for column, token in enumerate(telling)}
    rows = np.zeros((number, len(telling)))
    for row, tokens in zip(rows, captions, strict=True):
        for token, count in Counter(tokens).items():
            if token in columns:
                row[columns[token]] = np.sqrt(count) * np.log(number / found[token])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(lengths == 0, 1, lengths)
    return Words(telling, rows - rows.mean(axis=0))


def fit_start(features: Matrix, words: Matrix, width: int, strength: float = RIDGE) -> BridgeStart:
    """Rows are images."""
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    deviation = np.maximum(deviation, MIN_DEVIATION * features.std())
    if not deviation.any():
        raise UserError("the images' features are all the same; nothing can be told from them")
    z = (features - mean) / deviation
    gram = z.T @ z / len(z)
    ridge = np.linalg.solve(gram + strength * np.eye(len(gram)), z.T @ words / len(z))
    told = z @ ridge
    _, sizes, directions = np.linalg.svd(told, full_matrices=False)
    rank = min(width, int((sizes > 1e-9 * max(sizes[0], 1e-12)).sum()))
    if not rank:
        raise UserError("the images' features tell nothing of the captions' words")
    largest = np.abs(directions[:rank]).argmax(axis=1)
    directions = directions[:rank] * np.sign(directions[np.arange(rank), largest])[:, None]  # svd leaves the sign open
    weight, meant = np.zeros((width, features.shape[1])), np.zeros((words.shape[1], width))
    weight[:rank] = (ridge @ directions.T / deviation[:, None]).T
    weight /= np.sqrt((sizes[:rank] ** 2).sum() / len(z) / width)
    meant[:, :rank] = directions.T
    missed = np.square(words - told @ directions.T @ directions).sum()
    return BridgeStart(weight, -weight @ mean, meant, float(1 - missed / np.square(words).sum()))


def start_bridge(
    model_folder: str | Path, corpus: str | Path, output: str | Path, *, split: str, num_images: int
) -> Fitted:
    """Writes the captioner, whole or not at all, with its bridge started from a corpus' captions in seen languages."""
    model, processor = load_model(model_folder), load_processor(model_folder)
    require_new_bridge(model, model_folder)
    index = CorpusIndex.open(corpus)
    with join_world() as world:
        config = BatchConfig(image_size_px=model.config.image_size_px)
        store = open_features(model, index, config, world, torch.device("cpu"))
    numbers = index.images(split)
    rows, texts = [], []
    for number in numbers[:: max(1, len(numbers) // num_images)][:num_images]:
        said, row = _captions(index, number), _mean(store, number)
        if said and row is not None:
            rows.append(row)
            texts.append(said)
    if not rows:
        raise UserError(f"{corpus}: no image of split '{split}' has a caption in a seen language")
    words = word_vectors(processor.decoder_tokenizer(texts, add_special_tokens=False).input_ids)
    start = fit_start(np.stack(rows), words.vectors, model.encoder.config.hidden_size)
    put_start(model, start, words.tokens)
    save_captioner(output, model, processor)
    return Fitted(len(rows), len(words.tokens), start.explained)


def require_new_bridge(model: Captioner, where: str | Path) -> None:
    if not isinstance(model.encoder, FeaturesEncoder):
        raise UserError(f"{where}: has no bridge over frozen features; `babelcap model bridge` makes one")
    if any(gate.any() for name, gate in model.named_parameters() if name.endswith("encoder_attn_gate")):
        raise UserError(f"{where}: its bridge has been trained, and starting it anew would undo that; give a new one")


@torch.no_grad()
def put_start(model: Captioner, start: BridgeStart, tokens: Sequence[int]) -> None:
    """Into the image projection, and into values and output of every cross-attention."""
    projection = model.encoder.image_projection
    projection.weight.copy_(torch.from_numpy(start.weight))
    projection.bias.copy_(torch.from_numpy(start.bias))
    embeddings = model.decoder.embed_tokens.weight[list(tokens)].double()
    written = (embeddings - embeddings.mean(dim=0)).T @ torch.from_numpy(start.words)  # [embedding, width]
    written /= written.square().sum(dim=1).mean().sqrt()
    for index in model.config.decoder_config.layers_with_cross_attention():
        crossing = model.decoder.layers[index].encoder_attn
        values, output = crossing.v_proj.weight, crossing.o_proj.weight
        rank = min(len(values), written.shape[1])
        values.mul_(DRAWN_SHARE)[:rank] += CROSSING * torch.eye(rank, values.shape[1])
        output.mul_(DRAWN_SHARE)[:, :rank] += CROSSING * written[:, :rank].to(output)


def _captions(index: CorpusIndex, number: int) -> str:
    """All captions of an image in seen languages, a line each."""
    of_image = map(index.annotation, index.image_rows(number))
    is_seen = index.corpus.coverage.is_seen
    return "\n".join(one.target for one in of_image if one.task == CAPTION and is_seen(one.pair))


def _mean(store: FeatureStore, number: int) -> Matrix | None:
    """Over positions; None of an image that cannot be decoded."""
    try:
        tokens: Tensor = store(number)
    except BadSample:
        return None
    return tokens.double().mean(dim=0).numpy()
