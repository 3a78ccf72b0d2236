import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from babelcap.coverage import Coverage, Pair
from babelcap.data.feed.batches import Batch, BatchConfig
from babelcap.data.feed.loader import EvaluationLoader, EvaluationRows, LoaderConfig, TrainingLoader, group_by_length
from babelcap.data.feed.mixture import Mixture, MixtureConfig
from babelcap.data.feed.reader import BatchReader
from babelcap.data.feed.text import Tokenizers
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import UserError

COVERAGE = Coverage()
BATCH_SIZE = 24
MICRO_BATCH_SIZE = 2


def make_loader(
    index: CorpusIndex, tokenizer: Any, rank: int = 0, world_size: int = 1, num_workers: int = 0, **options: Any
) -> TrainingLoader:
    mixture = Mixture(index, MixtureConfig(window_size=options.pop("window_size", 0)), COVERAGE, seed=5)
    settings_of_batch = {"image_size_px": 8, "prefix_probability": 0.5, "max_bad_share": options.pop("share", 0.01)}
    reader = BatchReader(index, Tokenizers(tokenizer, tokenizer), BatchConfig(**settings_of_batch), COVERAGE, seed=5)
    sizes = {"batch_size": BATCH_SIZE, "micro_batch_size": MICRO_BATCH_SIZE} | options
    config = LoaderConfig(num_workers=num_workers, prefetch=2, **sizes)
    return TrainingLoader(mixture, reader, config, rank, world_size)


def contents(batch: Batch) -> list[list[Any]]:
    """All of a batch, sample by sample, as something that can be compared."""
    inputs = batch.model_inputs()
    inputs["rows"], inputs["indices"] = batch.rows, batch.indices
    return [[name, tensor.tolist()] for name, tensor in sorted(inputs.items())]


def samples(batches: list[Batch]) -> list[tuple[int, int]]:
    return sorted((int(i), int(r)) for batch in batches for i, r in zip(batch.indices, batch.rows, strict=True))


@pytest.fixture(scope="module")
def reference(small_index: CorpusIndex, tokenizer: Any) -> dict[int, list[Batch]]:
    """One process, no workers, from the start."""
    return dict(make_loader(small_index, tokenizer).steps(0, 6))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    world_size=st.sampled_from([1, 2, 3, 4, 6, 12]),
    num_workers=st.sampled_from([0, 0, 0, 1, 2]),
    start=st.integers(0, 5),
)
def test_any_ranks_workers_and_restart_give_the_same_sequence(
    small_index: CorpusIndex,
    tokenizer: Any,
    reference: dict[int, list[Batch]],
    world_size: int,
    num_workers: int,
    start: int,
) -> None:
    stop = min(start + 2, 6)
    rank_steps = [
        dict(make_loader(small_index, tokenizer, rank, world_size, num_workers).steps(start, stop))
        for rank in range(world_size)
    ]
    for step in range(start, stop):
        # Micro-batch m of rank r is micro-batch m * world_size + r of a single process, to the last bit.
        together = [
            rank_steps[rank][step][number]
            for number in range(BATCH_SIZE // MICRO_BATCH_SIZE // world_size)
            for rank in range(world_size)
        ]
        assert list(map(contents, together)) == list(map(contents, reference[step]))
        assert all(batch.step == step for batch in together)


def test_steps_are_the_global_order_cut_in_pieces(
    small_index: CorpusIndex, tokenizer: Any, reference: dict[int, list[Batch]]
) -> None:
    mixture = make_loader(small_index, tokenizer).dataset.mixture
    for step, batches in reference.items():
        indices = np.arange(step * BATCH_SIZE, (step + 1) * BATCH_SIZE)
        _, rows = mixture.resolve(indices)
        assert samples(batches) == list(zip(indices.tolist(), rows.tolist(), strict=True))


@pytest.mark.parametrize("micro_batch_size", [1, 4, 12, 24])
def test_the_micro_batch_size_does_not_change_what_a_step_sees(
    small_index: CorpusIndex, tokenizer: Any, reference: dict[int, list[Batch]], micro_batch_size: int
) -> None:
    loader = make_loader(small_index, tokenizer, micro_batch_size=micro_batch_size)
    (batches,) = [batches for _, batches in loader.steps(3, 4)]
    assert samples(batches) == samples(reference[3])
    assert [len(batch) for batch in batches] == [micro_batch_size] * (BATCH_SIZE // micro_batch_size)


def test_no_caption_of_an_unseen_pair_is_in_a_batch(
    small_index: CorpusIndex, reference: dict[int, list[Batch]]
) -> None:
    """The corpus does hold Spanish captions in its train split."""
    assert Pair.parse("caption-es") in small_index.pairs("train")
    seen = {small_index.annotation(row).pair for batches in reference.values() for _, row in samples(batches)}
    assert seen == set(COVERAGE.seen_pairs)


def test_pair_numbers_name_the_pairs_of_the_rows(small_index: CorpusIndex, reference: dict[int, list[Batch]]) -> None:
    for batch in reference[0]:
        pairs = [batch.pairs[number] for number in batch.pair_numbers]
        assert pairs == [small_index.annotation(row).pair for row in batch.rows.tolist()]


def test_building_a_loader_leaves_torchs_generator_alone(small_index: CorpusIndex, tokenizer: Any) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(make_loader(small_index, tokenizer).steps(0, 1))
    assert torch.equal(torch.get_rng_state(), before)


@given(
    lengths=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), min_size=1, max_size=40),
    micro_batch_size=st.integers(1, 6),
)
def test_grouping_is_a_permutation(lengths: list[tuple[int, int]], micro_batch_size: int) -> None:
    count = len(lengths) // micro_batch_size * micro_batch_size
    prompts, targets = np.array(lengths)[:count].T
    groups = group_by_length(prompts, targets, micro_batch_size) if count else np.empty((0, micro_batch_size))
    assert groups.shape == (count // micro_batch_size, micro_batch_size)
    assert sorted(groups.reshape(-1).tolist()) == list(range(count))


def test_grouping_leaves_little_padding() -> None:
    generator = np.random.default_rng(0)
    targets = generator.integers(10, 400, 1024)
    # Captions have a short prompt whatever their target; a translation's grows with it.
    prompts = np.where(generator.random(1024) < 2 / 7, 0, targets + generator.integers(-5, 6, 1024))

    def padded_share(groups: np.ndarray) -> float:
        padded = sum(lengths[groups].max(axis=1).sum() * groups.shape[1] for lengths in (prompts, targets))
        return 1 - (prompts.sum() + targets.sum()) / padded

    assert padded_share(np.arange(1024).reshape(-1, 16)) > 0.4
    assert padded_share(group_by_length(prompts, targets, 16)) < 0.12


@pytest.mark.parametrize(
    ("batch_size", "micro_batch_size", "world_size", "words"),
    [(24, 5, 1, "1 rank of micro_batch_size 5"), (24, 4, 4, "4 ranks .* multiple of 16"), (2, 4, 1, "multiple of 4")],
)
def test_a_batch_size_that_does_not_divide_is_refused(
    small_index: CorpusIndex, tokenizer: Any, batch_size: int, micro_batch_size: int, world_size: int, words: str
) -> None:
    with pytest.raises(UserError, match=f"batch_size is {batch_size}.*{words}"):
        make_loader(small_index, tokenizer, 0, world_size, batch_size=batch_size, micro_batch_size=micro_batch_size)


@pytest.fixture
def damaged_index(small_corpus: Path, tmp_path: Path) -> CorpusIndex:
    """The corpus with the images of one tar in six overwritten."""
    folder = tmp_path / "damaged"
    shutil.copytree(small_corpus, folder)
    tar = sorted((folder / "images").glob("*.tar"))[2]
    tar.write_bytes(b"\x00" * tar.stat().st_size)
    return CorpusIndex.open(folder)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_bad_images_are_replaced_alike_everywhere_and_totalled(
    damaged_index: CorpusIndex, small_index: CorpusIndex, tokenizer: Any, num_workers: int
) -> None:
    alone = make_loader(damaged_index, tokenizer, share=1.0)
    expected = dict(alone.steps(0, 4))
    ranks = [make_loader(damaged_index, tokenizer, rank, 2, num_workers, share=1.0) for rank in range(2)]
    found = [dict(loader.steps(0, 4)) for loader in ranks]
    sound = dict(make_loader(small_index, tokenizer).steps(0, 4))
    for step in range(4):
        assert samples(found[0][step] + found[1][step]) == samples(expected[step])
        # Only the bad ones changed, each for another of its own pair.
        for (index, row), (index_before, row_before) in zip(samples(expected[step]), samples(sound[step]), strict=True):
            assert index == index_before
            assert damaged_index.pair(row) == small_index.pair(row_before)
            was_bad = small_index.tar_of(np.array([row_before]))[0] == 2
            assert (row != row_before) == was_bad
    assert alone.bad.counts["not an image"] > 4
    assert ranks[0].bad.counts + ranks[1].bad.counts == alone.bad.counts


@pytest.mark.parametrize("num_workers", [0, 1])
def test_too_many_bad_images_stop_the_run(damaged_index: CorpusIndex, tokenizer: Any, num_workers: int) -> None:
    loader = make_loader(damaged_index, tokenizer, num_workers=num_workers, share=0.002)
    with pytest.raises(UserError, match=r"samples are bad, more than max_bad_share = 0.002 allows(.|\n)*not an image"):
        list(loader.steps(0, 10))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_corpus_of_bad_images_alone_is_one_clear_message(
    small_corpus: Path, tmp_path: Path, tokenizer: Any, num_workers: int
) -> None:
    shutil.copytree(small_corpus, tmp_path / "bad")
    for tar in (tmp_path / "bad" / "images").glob("*.tar"):
        tar.write_bytes(b"\x00" * tar.stat().st_size)
    loader = make_loader(CorpusIndex.open(tmp_path / "bad"), tokenizer, num_workers=num_workers, share=1.0)
    with pytest.raises(UserError, match=r"^no usable sample after 65 attempts at one index \("):
        list(loader.steps(0, 1))


def make_evaluation(index: CorpusIndex, tokenizer: Any, **options: Any) -> EvaluationLoader:
    reader = BatchReader(
        index, Tokenizers(tokenizer, tokenizer), BatchConfig(image_size_px=8, max_bad_share=1.0), COVERAGE
    )
    num_workers = options.pop("num_workers", 0)
    wanted = EvaluationRows(**({"split": "eval", "pairs": COVERAGE.split("SC")} | options))
    return EvaluationLoader(index, reader, wanted, batch_size=5, num_workers=num_workers)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_evaluation_visits_every_row_once_and_by_length(
    small_index: CorpusIndex, tokenizer: Any, num_workers: int
) -> None:
    loader = make_evaluation(small_index, tokenizer, num_workers=num_workers)
    batches = list(loader)
    assert len(batches) == len(loader) == 5 + 3  # 24 captions in English, 12 in German, by fives
    for number, pair in enumerate(COVERAGE.split("SC")):
        of_pair = [batch for batch in batches if (batch.pair_numbers == number).all()]
        rows = small_index.rows("eval", pair)
        assert [row for _, row in samples(of_pair)] == rows.tolist()
        assert all(rows[index] == row for index, row in samples(of_pair))
        lengths = [int(count) for batch in of_pair for count in batch.num_target_tokens]
        assert lengths == sorted(lengths)
    assert [contents(batch) for batch in loader] == [contents(batch) for batch in batches]


def test_a_larger_limit_adds_to_a_smaller_one(small_index: CorpusIndex, tokenizer: Any) -> None:
    few, more = (samples(list(make_evaluation(small_index, tokenizer, limit=limit))) for limit in (3, 7))
    assert len(few) == 6
    assert len(more) == 14
    assert set(few) < set(more)
    for limit in (0, -3):
        with pytest.raises(UserError, match=f"limit is {limit}; at least 1"):
            make_evaluation(small_index, tokenizer, limit=limit)


def test_evaluation_leaves_bad_samples_out(damaged_index: CorpusIndex, tokenizer: Any) -> None:
    loader = make_evaluation(damaged_index, tokenizer, split="train")
    found = [row for batch in loader for row in batch.rows.tolist()]
    expected = [row for pair in loader.pairs for row in damaged_index.rows("train", pair).tolist()]
    kept = [row for row in expected if damaged_index.tar_of(np.array([row]))[0] != 2]
    assert sorted(found) == sorted(kept)
    assert loader.bad.counts == {"not an image": len(expected) - len(kept)}
    assert {len(batch) for batch in loader} == {3, 4, 5}
    ahead = make_evaluation(damaged_index, tokenizer, split="train", num_workers=1)
    assert [contents(batch) for batch in ahead] == [contents(batch) for batch in loader]


def test_evaluation_names_a_pair_that_is_missing(small_index: CorpusIndex, tokenizer: Any) -> None:
    with pytest.raises(UserError, match=r"no caption-zh in split 'eval'.*it has caption-en"):
        make_evaluation(small_index, tokenizer, pairs=COVERAGE.split("UC"))
