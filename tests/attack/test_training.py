"""Attacks on what training keeps on disk: stale and damaged features and checkpoints, planted pickles, two at once."""

import io
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from babelcap.config import build_config
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.manifest import read_corpus_manifest, write_corpus_manifest
from babelcap.data.store.store import CorpusWriter
from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.network.captioner import Captioner
from babelcap.storage import check_manifest, locked, write_manifest
from babelcap.training import checkpoint, feature_files, features
from babelcap.training.config import TrainConfig
from babelcap.training.features import FeatureStore, feature_key, open_features
from babelcap.training.metrics import JsonLines
from babelcap.training.optimiser import make_optimiser
from babelcap.training.parallel import World
from babelcap.training.run import train
from tiny_training import SIZE_PX
from torture.damage import damage_in_turn, flip_bit

ALONE = World(0, 1, torch.device("cpu"))
CONFIG = BatchConfig(image_size_px=SIZE_PX)
NUM_FLIPS = [40, pytest.param(300, marks=pytest.mark.slow)]
Flips = Callable[[str, dict[str, int]], None]
Watch = Callable[[Callable[[], object], object], str]
MakeConfig = Callable[..., TrainConfig]


# Image features


def write_corpus(folder: Path, seeds: list[int], images_per_tar: int = 2) -> None:
    """Bitmaps: pictures of other seeds have other pixels and not a byte more or less."""
    with CorpusWriter(folder, provenance={}, images_per_tar=images_per_tar) as writer:
        for number, seed in enumerate(seeds):
            pixels = np.random.default_rng(seed).integers(0, 255, (SIZE_PX, SIZE_PX, 3), dtype=np.uint8)
            stream = io.BytesIO()
            Image.fromarray(pixels).save(stream, "bmp")
            writer.add(f"{number:06d}", stream.getvalue(), "bmp", "train", [])


def index_again(folder: Path, seeds: list[int], *, checksums: bool) -> None:
    """Other pictures under the same names, indexed anew, with or without checksums of the tars' data."""
    other = folder.with_name("other")
    shutil.rmtree(other, ignore_errors=True)
    write_corpus(other, seeds)
    for name in ("images", "annotations"):
        shutil.rmtree(folder / name)
        shutil.copytree(other / name, folder / name)
    manifest = read_corpus_manifest(other)
    if not checksums:
        shards = [shard.model_copy(update={"tar_sha256": None}) for shard in manifest.shards]
        manifest = manifest.model_copy(update={"shards": shards})
    write_corpus_manifest(folder, manifest)


@pytest.fixture(scope="module")
def captioner(tiny_models: dict[str, Path]) -> Captioner:
    return load_model(tiny_models["bart"], dtype=torch.float32)


def opened(model: Captioner, folder: Path, config: BatchConfig = CONFIG) -> FeatureStore:
    return open_features(model, CorpusIndex.open(folder), config, ALONE, ALONE.device)


def all_features(model: Captioner, folder: Path, config: BatchConfig = CONFIG) -> torch.Tensor:
    store = opened(model, folder, config)
    return torch.stack([store(number) for number in range(CorpusIndex.open(folder).num_images)])


def true_features(model: Captioner, folder: Path, config: BatchConfig = CONFIG) -> torch.Tensor:
    """Computed anew, in a copy of the corpus that has no features."""
    copy = folder.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("features"))
    return all_features(model, copy, config)


def count_computed(monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """Gets the numbers of the images whose features are computed from now on."""
    computed: list[range] = []
    tokens = features._image_tokens

    def counted(index: CorpusIndex, numbers: range, *rest: Any) -> np.ndarray:
        computed.append(numbers)
        return tokens(index, numbers, *rest)

    monkeypatch.setattr(features, "_image_tokens", counted)
    return computed


@pytest.mark.parametrize("checksums", [True, False])
def test_replaced_pictures_are_not_the_old_ones(captioner: Captioner, tmp_path: Path, checksums: bool) -> None:
    folder = tmp_path / "corpus"
    write_corpus(folder, [1, 2, 3, 4, 5])
    before = all_features(captioner, folder)
    index_again(folder, [6, 7, 8, 9, 10], checksums=checksums)
    after = all_features(captioner, folder)
    assert torch.equal(after, true_features(captioner, folder))
    assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_a_new_tar_costs_one_tar(captioner: Captioner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, computed = tmp_path / "corpus", count_computed(monkeypatch)
    write_corpus(folder, [1, 2, 3, 4])
    opened(captioner, folder)
    index_again(folder, [1, 2, 30, 40, 5], checksums=True)
    after = all_features(captioner, folder)
    assert computed == [range(2), range(2, 4), range(2, 4), range(4, 5)]
    assert torch.equal(after, true_features(captioner, folder))
    (kept,) = [path for path in (folder / "features").iterdir() if path.is_dir()]
    assert len(list(kept.glob("*.f32"))) == 3, "the features of a tar that is gone are gone"


def test_the_key_covers_what_features_depend_on(
    captioner: Captioner, tiny_models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = load_model(tiny_models["bart"], dtype=torch.float32)
    with torch.no_grad():
        next(other.encoder.vision_tower.parameters()).view(-1)[0] += 1e-3
    halves = load_model(tiny_models["bart"], dtype=torch.bfloat16)
    rearranged = load_model(tiny_models["bart"], dtype=torch.float32)
    rearranged.encoder.config.image_feature_source = ("temporal_avg_pool",)
    configs = [
        CONFIG,
        BatchConfig(image_size_px=SIZE_PX * 2),
        BatchConfig(image_size_px=SIZE_PX, image_mean=(0.5, 0.5, 0.5)),
        BatchConfig(image_size_px=SIZE_PX, image_std=(0.5, 0.5, 0.5)),
    ]
    keys = [feature_key(captioner, config) for config in configs]
    keys += [feature_key(model, CONFIG) for model in (other, halves, rearranged)]
    monkeypatch.setattr(features, "CODE_VERSION", features.CODE_VERSION + 1)
    keys.append(feature_key(captioner, CONFIG))
    assert len(set(keys)) == len(keys)


def test_a_changed_mean_reaches_the_features(captioner: Captioner, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    write_corpus(folder, [1, 2])
    plain = all_features(captioner, folder)
    other = all_features(captioner, folder, BatchConfig(image_size_px=SIZE_PX, image_mean=(0.1, 0.2, 0.3)))
    assert not torch.allclose(plain, other, atol=1e-3)


def test_a_tar_that_is_not_the_indexed_one_is_refused(captioner: Captioner, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    write_corpus(folder, [1, 2])
    tar = folder / "images" / "00000.tar"
    tar.write_bytes(flip_bit(tar.read_bytes(), random.Random(0)))
    with pytest.raises(UserError, match=r"00000\.tar is not the tar that was indexed"):
        opened(captioner, folder)


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def zero_half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))


@pytest.mark.parametrize("damage", [cut_in_half, zero_half, Path.unlink])
@pytest.mark.parametrize("suffix", [".f32", ".sums"])
def test_damaged_features_are_computed_again(
    captioner: Captioner, tmp_path: Path, damage: Callable[[Path], None], suffix: str
) -> None:
    folder = tmp_path / "corpus"
    write_corpus(folder, [1, 2, 3, 4])
    before = all_features(captioner, folder)
    damage(next(folder.glob(f"features/*/*{suffix}")))
    assert torch.equal(all_features(captioner, folder), before)


@pytest.mark.parametrize("number", NUM_FLIPS)
def test_no_flipped_bit_of_the_features_is_used(
    captioner: Captioner, tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str], flips: Flips
) -> None:
    folder, generator = tmp_path / "corpus", random.Random(0)
    write_corpus(folder, [1, 2, 3, 4])
    before = all_features(captioner, folder)
    for case in range(number):
        kind = (".f32", ".sums", "whole.json")[case % 3]
        path = generator.choice(sorted(folder.glob(f"features/*/*{kind}")))
        path.write_bytes(flip_bit(path.read_bytes(), generator))
        capsys.readouterr()
        assert torch.equal(all_features(captioner, folder), before), (case, kind)
        assert kind == "whole.json" or "are damaged; computing them again" in capsys.readouterr().err, (case, kind)
    flips("features", {"computed again": number})


def test_features_go_on_where_they_stopped(
    captioner: Captioner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, calls = tmp_path / "corpus", []
    write_corpus(folder, [1, 2, 3, 4, 5, 6])
    write_at = feature_files._write_at

    def stop(path: Path, offset: int, content: bytes) -> None:
        if calls.append(1) or len(calls) == 4:  # the second block's checksum
            raise KeyboardInterrupt
        write_at(path, offset, content)

    with monkeypatch.context() as patch:
        patch.setattr(feature_files, "_write_at", stop)
        with pytest.raises(KeyboardInterrupt):
            opened(captioner, folder)
    computed = count_computed(monkeypatch)
    assert torch.equal(all_features(captioner, folder), true_features(captioner, folder))
    assert computed[:2] == [range(2, 4), range(4, 6)]


@pytest.mark.parametrize("found_by", ["disk_usage", "posix_fallocate"])
def test_too_little_disk_is_one_line(
    captioner: Captioner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found_by: str
) -> None:
    folder = tmp_path / "corpus"
    write_corpus(folder, [1, 2])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if found_by == "disk_usage":
        monkeypatch.setattr(feature_files.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 99, 1))
    else:
        monkeypatch.setattr(feature_files.os, "posix_fallocate", full)
    with pytest.raises(UserError, match=r"image_features = 'cache' .*free some space, or set data.image_features"):
        opened(captioner, folder)


# Checkpoints


@pytest.fixture
def saved(captioner: Captioner, tmp_path: Path) -> Path:
    """A folder with the checkpoints of steps 5 and 10."""
    optimiser = make_optimiser(captioner, build_config(TrainConfig, {"model": "m", "data": {"corpus": "c"}}).optimiser)
    for step in (5, 10):
        checkpoint.save_checkpoint(tmp_path, captioner, optimiser, {"step": step}, ALONE)
    return tmp_path


@pytest.mark.parametrize("number", NUM_FLIPS)
def test_no_flipped_bit_of_a_checkpoint_is_used(saved: Path, number: int, flips: Flips) -> None:
    place, generator = saved / "step-00000010", random.Random(0)
    assert checkpoint.find_damage(place, ALONE) is None
    files = sorted(place.iterdir())
    for case in range(number):
        path = files[case % len(files)]
        whole = path.read_bytes()
        path.write_bytes(flip_bit(whole, generator))
        assert checkpoint.find_damage(place, ALONE) is not None, path
        path.write_bytes(whole)
    assert checkpoint.find_damage(place, ALONE) is None
    flips("checkpoint", {"set aside on resume": number})


@pytest.mark.parametrize("number", [12, pytest.param(600, marks=pytest.mark.slow)])
def test_damaged_checkpoints_that_a_manifest_vouches_for(
    saved: Path, captioner: Captioner, number: int, watch: Watch
) -> None:
    """As a faulty program would write them: loaded, or refused in one line."""
    place = saved / "step-00000010"
    optimiser = make_optimiser(captioner, build_config(TrainConfig, {"model": "m", "data": {"corpus": "c"}}).optimiser)

    def read() -> None:
        write_manifest(place)
        assert checkpoint.newest_whole(saved, ALONE) == place
        checkpoint.load_checkpoint(place, captioner, optimiser, {}, ALONE)

    files = [*place.glob("*.safetensors"), place / "progress.json"]
    for case, path in enumerate(damage_in_turn(files, number, random.Random(number))):
        watch(read, (case, path.name))


@pytest.mark.parametrize("damage", [cut_in_half, Path.unlink])
def test_newest_whole_checkpoint_is_taken(
    saved: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(next((saved / "step-00000010").glob("*.safetensors")))
    assert checkpoint.newest_whole(saved, ALONE) == saved / "step-00000005"
    said = capsys.readouterr().err
    assert "set aside as" in said
    assert "going on from" in said
    assert (saved / "damaged-step-00000010").is_dir()
    damage(saved / "step-00000005" / "manifest.json")
    assert checkpoint.newest_whole(saved, ALONE) is None


def test_run_resumes_from_the_whole_checkpoint_and_ends_the_same(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = make_config(budgets=[12], checkpoint__every_steps=4)
    train(whole)
    values = whole.model_dump(mode="json") | {"output": str(tmp_path / "damaged")}
    damaged = build_config(TrainConfig, values)
    with pytest.raises(RuntimeError, match="enough"):
        train(damaged, after_step=_stop_at(9))
    newest = damaged.output / "budget-000012" / "checkpoints" / "step-00000008"
    cut_in_half(next(newest.glob("*.safetensors")))
    train(damaged)
    assert "going on from" in capsys.readouterr().err
    for name in ("metrics.jsonl", "model/model.safetensors"):
        parts = [config.output / "budget-000012" / name for config in (whole, damaged)]
        assert parts[0].read_bytes() == parts[1].read_bytes()
    assert check_manifest(damaged.output / "budget-000012" / "model", full=True) == []


def _stop_at(last: int) -> Callable[[int], None]:
    def after_step(step: int) -> None:
        if step == last:
            raise RuntimeError("enough")

    return after_step


class Planted:
    """Unpickling it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("name", [".metadata", "progress.json", "shard-00001-model-00001-of-00001.safetensors", "x.pt"])
@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_a_planted_pickle_does_not_run(saved: Path, captioner: Captioner, tmp_path: Path, name: str, form: str) -> None:
    place, marker = saved / "step-00000010", tmp_path / "it-ran"
    stream = io.BytesIO()
    if form == "pickle":
        pickle.dump(Planted(marker), stream)
    else:
        torch.save(Planted(marker), stream)
    (place / name).write_bytes(stream.getvalue())
    assert checkpoint.find_damage(place, ALONE) is not None
    write_manifest(place)  # as one who can write there would
    assert checkpoint.find_damage(place, ALONE) is None
    optimiser = make_optimiser(captioner, build_config(TrainConfig, {"model": "m", "data": {"corpus": "c"}}).optimiser)
    if name in (".metadata", "x.pt"):
        checkpoint.load_checkpoint(place, captioner, optimiser, {}, ALONE)  # such files are not even opened
    else:
        with pytest.raises(UserError):
            checkpoint.load_checkpoint(place, captioner, optimiser, {}, ALONE)
    assert not marker.exists()
    pickle.loads(pickle.dumps(Planted(marker)))
    assert marker.exists(), "the attack itself works"


def test_checkpoints_may_lie_on_another_disk(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(budgets=[4], checkpoint__every_steps=2)
    elsewhere, leg = tmp_path / "large-disk", config.output / "budget-000004"
    elsewhere.mkdir()
    (elsewhere / "notes.txt").write_text("mine")
    leg.mkdir(parents=True)
    (leg / "checkpoints").symlink_to(elsewhere)
    (record,) = train(config)
    assert record.num_steps == 4
    assert [path.name for path in elsewhere.iterdir()] == ["notes.txt"]


def test_a_file_in_the_place_of_checkpoints_is_one_line(make_config: MakeConfig) -> None:
    config = make_config(budgets=[2])
    (config.output / "budget-000002").mkdir(parents=True)
    (config.output / "budget-000002" / "checkpoints").write_text("")
    with pytest.raises(UserError, match="step 2: the checkpoint could not be written"):
        train(config)


# Metrics and locks


@pytest.mark.parametrize("damaged", [b'{"step": 2, "lo', b"\xff\xfe{", b"[]", b'{"step": "2"}', b"[" * 5000])
def test_rewinding_keeps_every_good_line(tmp_path: Path, damaged: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": step, "loss": 1 / step}).encode() for step in range(1, 16)]
    path.write_bytes(b"\n".join([lines[0], damaged, *lines[2:]]) + b"\n")
    JsonLines(path).rewind(12)
    assert path.read_bytes() == b"\n".join([lines[0], *lines[2:12]]) + b"\n"
    assert "metrics.jsonl: damaged and left out: line 2;" in capsys.readouterr().err


def test_a_line_cut_short_by_a_kill_is_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 8}\n{"step": 9}\n{"st')
    JsonLines(path).rewind(9)
    assert path.read_text() == '{"step": 8}\n{"step": 9}\n'
    assert capsys.readouterr().err == ""


def test_what_a_killed_training_left_half_written_goes(make_config: MakeConfig) -> None:
    """Once killed while the model was saved, a run kept a folder of hundreds of megabytes for good."""
    config = make_config(budgets=[2])
    left = config.output / "budget-000002" / ".model.123-0a1b2c3d.partial"
    (left / "decoder_tokenizer").mkdir(parents=True)
    (config.output / ".run.json.123-0a1b2c3d.partial").touch()
    (config.output / "mine").mkdir()
    (config.output / "mine" / ".notes.partial").touch()
    train(config)
    assert [path.name for path in config.output.rglob(".*.partial")] == [".notes.partial"]


def test_a_second_training_on_one_output_is_refused(make_config: MakeConfig) -> None:
    config = make_config(budgets=[2])
    with (
        locked(config.output / "run.lock"),
        pytest.raises(UserError, match=rf"another training is writing there.*held by process {os.getpid()} on"),
    ):
        train(config)
    assert len(train(config)) == 1


HOLDER = """
import os, sys, time
from pathlib import Path
os.register_at_fork(after_in_child=lambda: time.sleep(float(sys.argv[2])))  # before the lock's own: a slow start
from babelcap.storage import locked
with locked(Path(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(30)  # as a loader's worker does, which outlives its parent for some seconds
        os._exit(0)
    print("held", flush=True)
    time.sleep(30)
"""


@pytest.fixture(params=["0", "0.5"])
def holder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run.lock"), request.param]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.stdout.close()


def test_a_killed_training_gives_its_lock_back(holder: subprocess.Popen[bytes], tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with pytest.raises(UserError, match=f"taken .held by process {holder.pid} on"), locked(path, refuse="taken"):
        pass
    holder.kill()
    holder.wait()
    with locked(path, refuse="taken"):
        pass
