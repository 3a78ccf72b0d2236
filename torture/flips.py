"""Single bits of files turned around: what is read is what it was, or the damage is found. Nothing is used silently."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from babelcap.config import build_config
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import UserError
from babelcap.models import load_model, load_processor
from babelcap.models.checkpoints.saving import save_captioner
from babelcap.training import checkpoint
from babelcap.training.config import TrainConfig
from babelcap.training.features import open_features
from babelcap.training.optimiser import make_optimiser
from babelcap.training.parallel import World
from tiny_training import SIZE_PX, make_corpus, make_model, save_model
from torture.damage import flip_bit
from torture.readers.flipped_results import flipped_prediction, flipped_records, flipped_stage, flipped_step
from torture.readers.target import Target

ALONE = World(0, 1, torch.device("cpu"))


def flipped_weights(folder: Path) -> Target:
    """safetensors, configuration and tokenizers of a captioner: refused when it is loaded."""
    model = save_model("bart", folder / "made")
    place = folder / "model"
    save_captioner(place, load_model(model, dtype=torch.float32), load_processor(model))

    def read(out: Path) -> object:
        load_processor(place)
        return [float(tensor.sum()) for tensor in load_model(place).state_dict().values()]

    files = [place / "model.safetensors", place / "config.json", *sorted(place.glob("*_tokenizer/*.json"))]
    return Target(files, read)


def flipped_checkpoint(folder: Path) -> Target:
    """Set aside when a training is started again."""
    model = make_model("bart")
    optimiser = make_optimiser(model, build_config(TrainConfig, {"model": "m", "data": {"corpus": "c"}}).optimiser)
    checkpoint.save_checkpoint(folder, model, optimiser, {"step": 5}, ALONE)
    place = folder / "step-00000005"

    def read(out: Path) -> object:
        if (damage := checkpoint.find_damage(place, ALONE)) is not None:
            raise UserError(damage)
        return "whole"

    return Target(sorted(place.iterdir()), read)


def flipped_features(folder: Path) -> Target:
    """Computed again."""
    corpus, model = make_corpus(folder / "corpus"), make_model("bart")

    def read(out: Path) -> object:
        index = CorpusIndex.open(corpus)
        store = open_features(model, index, BatchConfig(image_size_px=SIZE_PX), ALONE, ALONE.device)
        return [store(number).sum().item() for number in range(index.num_images)]

    read(folder)
    return Target(sorted(path for path in corpus.glob("features/*/*") if path.suffix in (".f32", ".sums")), read)


FLIPPED: dict[str, Callable[[Path], Target]] = {
    "predictions: description, items, answers, scores (JSON lines)": flipped_prediction,
    "records: runs.jsonl, record.json, initial.json": flipped_records,
    "a shard of the dataset pipeline (Parquet)": flipped_stage,
    "results of a study's step": flipped_step,
    "weights, configuration, tokenizers (safetensors, JSON)": flipped_weights,
    "a checkpoint of a training (safetensors)": flipped_checkpoint,
    "features of pictures": flipped_features,
}


def flip_target(make: Callable[[Path], Target], folder: Path, number: int, seed: int) -> Counter[str]:
    """How each flip ended; fails at the first that was used silently."""
    target, draw, ended = make(folder), random.Random(seed), Counter[str]()
    expected = repr(target.read(folder))  # NaN is not NaN
    for case in range(number):
        path = target.files[case % len(target.files)]
        whole = path.read_bytes()
        path.write_bytes(flip_bit(whole, draw))
        try:
            assert repr(target.read(folder)) == expected, f"flip {case} of {path.name}: used silently"
            ended["as it was"] += 1  # made again, or a bit that nobody reads
        except UserError:
            ended["found"] += 1
        path.write_bytes(whole)
    assert repr(target.read(folder)) == expected
    return ended
