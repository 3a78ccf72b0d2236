"""A run is repeatable to the bit, survives kills, and is the same computation on one process and on many."""

import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from babelcap.config import build_config, load_config
from babelcap.errors import UserError
from babelcap.evaluation.loss import LossEvaluation, loss_evaluation
from babelcap.models import load_model
from babelcap.records import RunRecord
from babelcap.training import checkpoint, feature_files
from babelcap.training.config import TrainConfig
from babelcap.training.loop import Requeue
from babelcap.training.run import train

GOLDEN = Path(__file__).parent / "golden_losses.json"
CONFIGS = Path(__file__).parents[2] / "configs"
PUBLISHED = sorted([*CONFIGS.glob("pretrain/*.toml"), *CONFIGS.glob("finetune/*.toml")])
FORK = multiprocessing.get_context("fork")  # the child has torch imported already
MakeConfig = Callable[..., TrainConfig]


def metrics_of(config: TrainConfig, leg: str = "budget-000020") -> list[dict[str, Any]]:
    lines = (config.output / leg / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def losses_of(config: TrainConfig, leg: str = "budget-000020") -> list[float]:
    return [line["loss"] for line in metrics_of(config, leg)]


def weights_of(config: TrainConfig, leg: str = "budget-000020") -> dict[str, torch.Tensor]:
    return load_file(config.output / leg / "model" / "model.safetensors")


def elsewhere(config: TrainConfig, output: Path, **settings: Any) -> TrainConfig:
    values = config.model_dump(mode="json") | {"output": str(output)}
    for name, value in settings.items():
        block, _, key = name.partition("__")
        values[block] = values[block] | {key: value} if key else value
    return build_config(TrainConfig, values)


def run_ranks(config: TrainConfig, num_ranks: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def work(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_ranks)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        train(config)

    processes = [FORK.Process(target=work, args=(rank,)) for rank in range(num_ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * num_ranks


def assert_same_run(first: TrainConfig, second: TrainConfig, tolerance: float) -> None:
    assert losses_of(first) == pytest.approx(losses_of(second), abs=tolerance)
    left, right = weights_of(first), weights_of(second)
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(
            left[name], right[name], atol=tolerance, rtol=0, msg=lambda text, n=name: f"{n}: {text}"
        )


@pytest.mark.parametrize("kind", ["bart", "gemma2"])
def test_golden_losses(make_config: MakeConfig, kind: str) -> None:
    config = make_config(kind)
    train(config)
    assert losses_of(config) == pytest.approx(json.loads(GOLDEN.read_text())[kind], abs=1e-4)


def test_every_line_and_weight_repeats(make_config: MakeConfig, tmp_path: Path) -> None:
    first = make_config(dropout=0.1)
    second = elsewhere(first, tmp_path / "second", data__num_workers=1)
    train(first)
    train(second)
    assert metrics_of(first) == metrics_of(second)
    for name, tensor in weights_of(first).items():
        assert torch.equal(tensor, weights_of(second)[name]), name


def kill_after_progress(config: TrainConfig, leg: str, num_steps: int, generator: random.Random) -> bool:
    """Starts the run, kills it some steps later without a warning; whether it had finished before."""
    process = FORK.Process(target=train, args=(config,))
    process.start()
    metrics = config.output / leg / "metrics.jsonl"
    start = _num_lines(metrics)
    deadline = time.monotonic() + 120
    while process.is_alive() and _num_lines(metrics) < start + num_steps and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(generator.random() * 0.03)  # somewhere in a step, or in a checkpoint
    if process.is_alive():
        os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    return process.exitcode == 0


def _num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


# Where a run dies on its own: in the n-th call of a function.
PLACES = {
    "features": (feature_files, "_write_at"),
    "checkpoint": (checkpoint.dcp, "save"),
    "manifest": (checkpoint, "write_manifest"),
    "move": (checkpoint.shutil, "rmtree"),
}
FEW_KILLS = [("features", 3), ("checkpoint", 2), ("manifest", 1), ("step", 2)]
MANY_KILLS = [("features", 1), ("features", 2), ("features", 3), ("features", 2), ("features", 1)]
MANY_KILLS += [(place, number) for number in (1, 2, 3) for place in ("checkpoint", "manifest", "move", "step", "step")]
MANY_KILLS += [(place, number) for number in (2, 4, 1) for place in ("step", "checkpoint", "step", "manifest", "step")]


def train_and_die(config: TrainConfig, place: str, number: int) -> None:
    """In a process of its own."""
    module, name = PLACES[place]
    function, calls = getattr(module, name), itertools.count(1)

    def deadly(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    setattr(module, name, deadly)
    train(config)


@pytest.mark.parametrize(
    ("kills", "budget"), [(FEW_KILLS, 20), pytest.param(MANY_KILLS, 120, marks=pytest.mark.slow, id="35")]
)
def test_killed_run_ends_bit_identical(
    make_config: MakeConfig, tiny_corpus: Path, tmp_path: Path, kills: list[tuple[str, int]], budget: int
) -> None:
    leg = f"budget-{budget:06d}"
    shutil.copytree(tiny_corpus, tmp_path / "corpus", ignore=shutil.ignore_patterns("features"))
    whole = make_config(
        budgets=[budget], dropout=0.1, checkpoint__every_steps=2, data__image_features="cache", seed=len(kills)
    )
    killed = elsewhere(whole, tmp_path / "killed", data__corpus=str(tmp_path / "corpus"))
    train(whole)
    generator = random.Random(0)
    for place, number in kills:
        if place == "step":
            finished = kill_after_progress(killed, leg, number, generator)
        else:
            process = FORK.Process(target=train_and_die, args=(killed, place, number))
            process.start()
            process.join(120)
            finished = process.exitcode != -signal.SIGKILL
        assert not finished, f"the run was not killed in {place} {number}"
    train(killed)
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (whole.output / leg / name).read_bytes() == (killed.output / leg / name).read_bytes()
    records = [json.loads((config.output / leg / "record.json").read_text()) for config in (whole, killed)]
    assert json.dumps(records[0]["extra"]) == json.dumps(records[1]["extra"]), "in the same order, too"


@pytest.mark.parametrize("kind", ["bart", "gemma2"])
def test_ranks_and_accumulation_change_nothing(make_config: MakeConfig, tmp_path: Path, kind: str) -> None:
    """Sharded, replicated and accumulated: the same losses and weights over 20 steps, with frozen parts."""
    # The gradient of a key's bias is zero but for rounding, which AdamW blows up to a whole step; epsilon is above it.
    alone = make_config(kind, optimiser__epsilon=1e-6)
    train(alone)
    accumulated = elsewhere(alone, tmp_path / "accumulated", parallel__micro_batch_size=4)
    train(accumulated)
    assert_same_run(alone, accumulated, 1e-5)
    for name, replicas in (("sharded", 1), ("replicated", "all")):
        spread = elsewhere(alone, tmp_path / name)
        parallel = spread.parallel.model_dump() | {"micro_batch_size": 4, "replicas": replicas}
        spread = elsewhere(spread, tmp_path / name, parallel=parallel)
        run_ranks(spread, 2)
        assert_same_run(alone, spread, 1e-5)
    base = load_model(alone.model)
    after = weights_of(alone)
    frozen = [name for name, _ in base.named_parameters() if name.startswith("encoder.vision_tower")]
    assert frozen
    assert all(torch.equal(after[name], base.state_dict()[name]) for name in frozen)


def test_run_begun_on_two_ranks_continues_on_one(make_config: MakeConfig, tmp_path: Path) -> None:
    alone = make_config("gemma2", optimiser__epsilon=1e-6)
    train(alone)
    moved = elsewhere(alone, tmp_path / "moved", parallel__micro_batch_size=8, checkpoint__every_steps=7)

    # The two ranks leave at step 7 as a preempted job does: saved, to be started again.
    process_code = _run_ranks_until_signal(moved, 2)
    assert process_code == {"requeue"}
    assert 0 < len(metrics_of(moved)) < 20
    train(elsewhere(moved, tmp_path / "moved", parallel__micro_batch_size=16))
    assert_same_run(alone, moved, 1e-5)


def test_small_moments_are_sharded_and_continue_on_one(make_config: MakeConfig, tmp_path: Path) -> None:
    """Which way they are rounded depends on the shards, so that the runs agree as far as bfloat16 does."""
    alone = make_config("gemma2", optimiser__epsilon=1e-6, optimiser__moments="bfloat16")
    train(alone)
    moved = elsewhere(alone, tmp_path / "moved", parallel__micro_batch_size=8, checkpoint__every_steps=7)
    assert _run_ranks_until_signal(moved, 2) == {"requeue"}
    num_steps = len(metrics_of(moved))
    train(elsewhere(moved, tmp_path / "moved", parallel__micro_batch_size=16))
    assert losses_of(moved)[0] == pytest.approx(losses_of(alone)[0], abs=1e-5)
    assert 0 < num_steps < 20 == len(metrics_of(moved))
    assert_same_run(alone, moved, 0.01)


def _run_ranks_until_signal(config: TrainConfig, num_ranks: int) -> set[str]:
    outcomes = FORK.Queue()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def work(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_ranks)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        try:
            train(config)
            outcomes.put("finished")
        except Requeue:
            outcomes.put("requeue")

    processes = [FORK.Process(target=work, args=(rank,)) for rank in range(num_ranks)]
    for process in processes:
        process.start()
    metrics = config.output / "budget-000020" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while _num_lines(metrics) < 3 and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(processes[1].pid or 0, signal.SIGUSR1)  # only one rank hears it; all have to agree
    results = {outcomes.get(timeout=120) for _ in processes}
    for process in processes:
        process.join(60)
    return results


def test_wsd_budgets_equal_runs_of_their_own(make_config: MakeConfig, tmp_path: Path) -> None:
    branched = make_config(budgets=[10, 20], schedule__kind="wsd", schedule__decay_share=0.3)
    records = train(branched)
    assert [record.S for record in records] == [160, 320]
    alone = elsewhere(branched, tmp_path / "alone", budgets=[10])
    train(alone)
    left, right = weights_of(branched, "budget-000010"), weights_of(alone, "budget-000010")
    assert all(torch.equal(left[name], right[name]) for name in right)
    steps = [line["step"] for line in metrics_of(branched, "budget-000010")]
    assert steps == [8, 9, 10]


@pytest.mark.parametrize("kind", ["bart", "gemma2"])
def test_cached_image_features_change_nothing(make_config: MakeConfig, tmp_path: Path, kind: str) -> None:
    computed = make_config(kind)
    cached = elsewhere(computed, tmp_path / "cached", data__image_features="cache")
    train(computed)
    train(cached)
    assert_same_run(computed, cached, 1e-5)


def test_record_holds_what_a_law_needs(make_config: MakeConfig) -> None:
    config = make_config("gemma2", export=False)
    (record,) = train(config, loss_evaluation(config.data.corpus, config.coverage, LossEvaluation(config.data)))
    assert isinstance(record, RunRecord)
    assert record.S == 320
    assert pytest.approx(record.S * record.F * (1 + record.Pt / record.P)) == record.C
    assert set(record.T) == {"UC", "ST", "SC"}
    raw = next(result for result in record.results if result.measure == "cross_entropy/sample_mean/raw")
    assert raw.per_split["SC"] < record.T["SC"]
    assert sum(record.extra["samples_by_pair"].values()) == 320
    assert 0 < record.Pt < record.P
    assert not (config.output / "budget-000020" / "model").exists()


def test_activation_checkpointing_changes_nothing(make_config: MakeConfig, tmp_path: Path) -> None:
    plain = make_config("gemma2", budgets=[5])
    saving = elsewhere(plain, tmp_path / "saving", parallel__activation_checkpointing=True)
    train(plain)
    train(saving)
    assert losses_of(plain, "budget-000005") == pytest.approx(losses_of(saving, "budget-000005"), abs=1e-6)


@pytest.mark.slow
def test_mix_of_seventy_thousand_samples(make_config: MakeConfig) -> None:
    config = make_config(
        budgets=[100], batch_size=700, parallel__micro_batch_size=700, export=False, data__image_features="cache"
    )
    (record,) = train(config)
    counts = record.extra["samples_by_pair"]
    assert set(counts) == set(config.coverage.seen)
    assert all(abs(number / 70_000 - 1 / 7) < 0.005 / 7 for number in counts.values())


# What goes wrong, and what is said about it.


def test_non_finite_loss_stops_with_the_place(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(optimiser__learning_rate=1e18, optimiser__max_gradient_norm=1e30)
    with pytest.raises(UserError, match=r"step \d+: the loss is .*samples \d+ to \d+; last good checkpoint"):
        train(config)
    fault = json.loads((config.output / "budget-000020" / "fault.json").read_text())
    assert len(fault["annotation_rows_of_this_process"]) == 16


def test_full_disk_leaves_the_previous_checkpoint(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(checkpoint__every_steps=5)
    save = checkpoint.dcp.save

    def full(*args: Any, **kwargs: Any) -> Any:
        if calls.append(1) or len(calls) > 1:
            raise OSError(28, "No space left on device")
        return save(*args, **kwargs)

    calls: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.dcp, "save", full)
        with pytest.raises(
            UserError, match=r"step 10: the checkpoint could not be written .*No space left.*step-00000005"
        ):
            train(config)
    folder = config.output / "budget-000020" / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["step-00000005"]
    train(config)
    assert len(metrics_of(config)) == 20


def test_sigterm_saves_and_asks_to_be_started_again(make_config: MakeConfig) -> None:
    config = make_config(budgets=[500], checkpoint__every_steps=1000)
    process = FORK.Process(target=_train_and_exit, args=(config,))
    process.start()
    metrics = config.output / "budget-000500" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while _num_lines(metrics) < 3 and time.monotonic() < deadline:
        time.sleep(0.002)
    os.kill(process.pid or 0, signal.SIGTERM)
    process.join(60)
    assert process.exitcode == 75
    kept = checkpoint.list_checkpoints(config.output / "budget-000500" / "checkpoints")
    assert [step for step, _ in kept] == [_num_lines(metrics)]


def _train_and_exit(config: TrainConfig) -> None:
    try:
        train(config)
    except Requeue:
        os._exit(75)


def test_other_configuration_in_the_same_folder(make_config: MakeConfig) -> None:
    train(make_config(budgets=[2], export=False))
    with pytest.raises(UserError, match="holds a run of another config"):
        train(make_config(budgets=[3]))


def test_checkpoint_of_another_model(make_config: MakeConfig, tiny_models: dict[str, Path]) -> None:
    config = make_config(budgets=[20])
    process = FORK.Process(target=_train_and_exit, args=(config,))
    process.start()
    process.join(60)
    with pytest.raises(UserError, match="another config"):
        train(elsewhere(config, config.output, model=str(tiny_models["gemma2"])))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 15}, "batch_size is 15.* divide"),
        ({"policy": "pretrainin"}, "unknown freezing policy 'pretrainin'; did you mean 'pretraining'"),
        ({"data__mixture": {"weights": {"caption-fr": 1.0}}}, "caption-fr.*seen"),
        ({"data__split": "tran"}, "tran"),
        ({"model": "nowhere/at/all"}, "no such folder"),
    ],
)
def test_mistakes_are_found_before_compute(make_config: MakeConfig, settings: dict[str, Any], message: str) -> None:
    config = make_config(**settings)
    with pytest.raises(UserError, match=message):
        train(config)
    assert not list(config.output.rglob("metrics.jsonl"))


def test_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('model = "m"\nbatchsize = 8\n[data]\ncorpus = "c"\n')
    with pytest.raises(UserError, match="unknown key 'batchsize'; did you mean 'batch_size'"):
        load_config(TrainConfig, path)


def test_budgets_have_to_ascend(make_config: MakeConfig) -> None:
    with pytest.raises(UserError, match="ascending"):
        make_config(budgets=[20, 10])


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_published_configurations_load(path: Path) -> None:
    config = load_config(TrainConfig, path)
    assert config.batch_size == (1024 if path.parent.name == "pretrain" else 256)
    assert math.isclose(config.optimiser.learning_rate, 1e-4 if path.parent.name == "pretrain" else 5e-5)


@pytest.mark.parametrize("name", ["pretrain", "finetune"])
def test_micro_configurations_load(name: str) -> None:
    assert load_config(TrainConfig, CONFIGS / "micro" / f"{name}.toml").data.image_size_px == 64
