"""The study on photographs: its configuration is whole, and its steps run in tiny on a bridged captioner."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from babelcap.config import build_config
from babelcap.coverage import CAPTION, Coverage, Pair, Style
from babelcap.data.importers.multi30k import SEEN_WITH_PAIRS, SPLITS_WITH_PAIRS
from babelcap.data.store.store import CorpusWriter
from babelcap.models.network.bridge import BridgeConfig
from babelcap.models.surgery.bridge import prepare_bridge
from babelcap.records import Annotation, read_run_records
from babelcap.study.config import StudyConfig, load_study
from babelcap.study.grid import study_graph
from babelcap.study.local import run_study

CONFIG = Path(__file__).parents[2] / "configs" / "study" / "photos.toml"
TINY = BridgeConfig(
    layers=(1, 3), num_heads=2, head_width=8, num_encoder_layers=1, width=16, num_encoder_heads=2,
    feed_forward_width=24, grid=2, max_positions=160, image_size_px=32, dropout=0.0,
)  # fmt: skip


def test_the_configuration_is_that_of_the_corpus() -> None:
    config = load_study(CONFIG, [])
    assert config.corpus is not None
    assert config.coverage.seen == SEEN_WITH_PAIRS
    assert config.coverage.splits == SPLITS_WITH_PAIRS
    runs = study_graph(config).runs
    main = [run for run in runs if run.kind == "main" and run.size == "photos-l"]
    assert {run.seed for run in main} == {0, 1, 2}
    assert len(main) == 12
    assert {run.kind for run in runs} == {"main", "no-translation", "unfit-translation"}
    steps = sum(run.train.units for run in {run.train.hash: run for run in runs}.values()) / 16
    assert steps == 3 * 1410 + 2 * 690 + 2 * 1200


def make_corpus(folder: Path) -> Path:
    coverage = Coverage(seen=SEEN_WITH_PAIRS, splits=SPLITS_WITH_PAIRS)
    generator = np.random.default_rng(0)
    with CorpusWriter(folder, provenance={"source": "test"}, coverage=coverage) as writer:
        for number in range(16):
            stream = io.BytesIO()
            Image.fromarray(generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(stream, "png")
            split = "train" if number < 12 else "val"
            pairs = coverage.seen_pairs if split == "train" else coverage.evaluated_pairs
            writer.add(f"{number}", stream.getvalue(), "png", split, [_annotation(pair) for pair in pairs])
    return folder


def _annotation(pair: Pair) -> Annotation:
    made: dict[str, Any] = {"style": Style.SHORT} if pair.task == CAPTION else {"source": "cat dog"}
    return Annotation(task=pair.task, language=pair.language, target="dog cat Katze", origin="test", **made)


def test_its_steps_run_in_tiny(
    tiny_gemma: Path, tiny_backbones: dict[str, Path], bridge_tokenizer: Any, tmp_path: Path
) -> None:
    corpus, model = make_corpus(tmp_path / "corpus"), tmp_path / "model"
    prepare_bridge([tiny_backbones["vit"]], tiny_gemma, model, TINY, tokenizer=bridge_tokenizer)
    whole = load_study(CONFIG, []).model_dump(mode="json", exclude_unset=True)
    values = whole | {
        "output": str(tmp_path / "study"),
        "num_workers": 1,
        "corpus": whole["corpus"] | {"folder": str(corpus)},
        "checkpoints": [{"base": "gemma3-270m", "size": "photos-l", "model": str(model)}],
        "grid": [
            {"sizes": ["photos-l"], "bases": ["gemma3-270m"], "budgets": [2, 4], "seeds": [0]},
            {"kind": "no-translation", "sizes": ["photos-l"], "bases": ["gemma3-270m"], "budgets": [4], "seeds": [0]},
        ],
    }
    values["training"]["data"] = values["training"]["data"] | {"image_size_px": 32}
    config = build_config(StudyConfig, values)
    run_study(config)
    records = read_run_records(tmp_path / "study" / "runs.jsonl")
    assert {record.kind for record in records} == {"main", "no-translation"}
    for record in records:
        assert {"UC", "ST", "SC"} <= record.results[0].per_split.keys()
        assert record.Pt < record.P


@pytest.mark.parametrize("size", ["photos-s", "photos-m", "photos-l"])
def test_sizes_differ_in_what_trains_alone(size: str) -> None:
    from babelcap.models.sizing.sizes import size_config

    config = size_config(size)
    assert config.decoder_config.hidden_size == 640
    assert config.vocab_size == 262_144
