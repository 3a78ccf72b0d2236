"""A head of the corpus' tokens alone: the loss of a softmax over them, and a run that goes on where it stopped."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from babelcap.coverage import Coverage
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.checkpoints.processor import load_processor
from babelcap.models.generation.shortlist import Shortlist
from babelcap.models.sizing.freezing import apply_policy
from babelcap.training.config import TrainConfig
from babelcap.training.head import corpus_shortlist, in_shortlist
from babelcap.training.loop import Requeue
from babelcap.training.run import train


class Stop(Exception):
    pass


def stop_at(step: int) -> Callable[[int], None]:
    def after(done: int) -> None:
        if done == step:
            raise Stop

    return after


def open_shortlist(folder: Path, corpus: Path) -> tuple:
    model = apply_policy(load_model(folder), "bridge")
    opened = Corpus.open(corpus)
    return model, corpus_shortlist(model, load_processor(folder), opened, opened.coverage, "train")


def test_the_loss_is_that_of_masked_logits(tiny_models: dict[str, Path], tiny_corpus: Path) -> None:
    model, shortlist = open_shortlist(tiny_models["gemma2"], tiny_corpus)
    assert isinstance(shortlist, Shortlist)
    assert 4 < len(shortlist.ids) < 80
    some = shortlist.ids[-6:]
    labels = torch.stack([torch.tensor([2, *some[:3], 1]), torch.tensor([2, *some[3:5], 1, -100])])
    inputs = {
        "input_ids": torch.tensor([[0, 5, 6, 2], [0, 7, 8, 2]]),
        "attention_mask": torch.ones(2, 4, dtype=torch.long),
        "decoder_input_ids": model.shift_right(labels),
        "labels": labels,
    }
    found = model(**in_shortlist(inputs, shortlist), shortlist=shortlist, logits_needed=False)
    logits = model(**inputs).logits
    blocked = torch.ones(80, dtype=torch.bool)
    blocked[shortlist.ids] = False
    expected = torch.nn.functional.cross_entropy(
        logits.masked_fill(blocked, -torch.inf).flatten(0, 1), labels.flatten()
    )
    torch.testing.assert_close(found.loss, expected, rtol=1e-5, atol=1e-6)
    assert in_shortlist(inputs, None) is inputs


def test_it_has_every_token_that_a_target_can_have(tiny_models: dict[str, Path], tiny_corpus: Path) -> None:
    _, shortlist = open_shortlist(tiny_models["gemma2"], tiny_corpus)
    tokenizer = load_processor(tiny_models["gemma2"]).decoder_tokenizer
    known = set(shortlist.ids.tolist())
    coverage: Coverage = Corpus.open(tiny_corpus).coverage
    for row in Corpus.open(tiny_corpus).rows("train"):
        for annotation in row.annotations:
            prefix = coverage.language(annotation.language).prefix
            for text in (annotation.target, f"{prefix} {annotation.target}"):
                assert set(tokenizer(text, add_special_tokens=False)["input_ids"]) <= known
    assert {0, 1, 2} <= known
    assert tokenizer.convert_tokens_to_ids("<unk>") in known  # a mark is never a target, and learnt to be left alone


def test_a_run_goes_on_where_it_stopped(make_config: Callable[..., TrainConfig], tmp_path: Path) -> None:
    settings = {"policy": "bridge", "head": "corpus", "data__prefix_probability": 0.5, "data__image_features": "cache"}
    (whole,) = train(make_config("gemma2", output=str(tmp_path / "whole"), **settings))
    with pytest.raises((Stop, Requeue)):
        train(make_config("gemma2", output=str(tmp_path / "parts"), **settings), after_step=stop_at(13))
    (parts,) = train(make_config("gemma2", output=str(tmp_path / "parts"), **settings))
    metrics = [(tmp_path / name / "budget-000020" / "metrics.jsonl").read_text() for name in ("whole", "parts")]
    assert metrics[0] == metrics[1]
    assert whole.Pt == parts.Pt < whole.P


def test_an_embedding_that_trains_is_refused(make_config: Callable[..., TrainConfig]) -> None:
    with pytest.raises(UserError, match="head is 'corpus', but the policy trains the embedding"):
        train(make_config("gemma2", head="corpus"))
