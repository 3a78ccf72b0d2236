"""The study on photographs: its configuration is whole, and its steps run in tiny on a bridged captioner."""

import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from babelcap.config import build_config
from babelcap.coverage import CAPTION, Coverage, Pair, Style
from babelcap.data.importers.multi30k import SEEN_WITH_PAIRS, SPLITS_WITH_PAIRS, load_texts
from babelcap.data.store.store import CorpusWriter
from babelcap.evaluation import photographs
from babelcap.evaluation.captions import caption_result
from babelcap.measures import EVAL
from babelcap.models.network.bridge import BridgeConfig
from babelcap.models.surgery.bridge import prepare_bridge
from babelcap.records import Annotation, RunRecord, read_run_records
from babelcap.report.photograph_claims import has_photographs, photograph_claims
from babelcap.report.study_folder import Study
from babelcap.report.verdicts import DOES_NOT, HOLDS, NOT_MEASURED
from babelcap.study.config import StudyConfig, load_study
from babelcap.study.gallery import make_gallery
from babelcap.study.grid import study_graph
from babelcap.study.local import run_study
from babelcap.study.records import collect_record
from babelcap.study.steps import run_step

CODES = ("en", "de", "fr", "es", "ru", "zh")
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
    assert {(run.leg, run.seed) for run in main if run.predicted} == {("budget-001200", seed) for seed in (1, 2, 3)}
    assert {run.leg for run in main if not run.predicted} == {"budget-000150", "budget-000300", "budget-000600"}
    assert {run.kind for run in runs} == {"main", "no-translation", "unfit-translation", "finetuned"}
    assert all(run.captions is not None for run in runs)
    steps = sum(run.train.units for run in {run.train.hash: run for run in runs}.values()) / 16
    assert steps == 690 + 2 * 660 + 3 * 1200 + 2 * 1200 + 40


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


def make_texts(folder: Path) -> Path:
    """What people wrote of the corpus' photographs, and of others that the map is fitted on."""
    for split, numbers in {"train": range(20, 26), "val": range(12, 16)}.items():
        files = {f"task1/image_splits/{split}.txt": "".join(f"{n}.jpg\n" for n in numbers)}
        files[f"task2/image_splits/{split}_images.txt"] = files[f"task1/image_splits/{split}.txt"]
        for code in ("en", "de", "fr"):
            files[f"task1/raw/{split}.{code}.gz"] = "".join(f"dog {n}\n" for n in numbers)
            for place in range(1, 6) if code != "fr" else ():
                files[f"task2/raw/{split}.{place}.{code}.gz"] = "".join(f"cat {n}\n" for n in numbers)
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder


def planted_vectors(texts: Sequence[str]) -> np.ndarray:
    """Each text has a direction of its own."""
    return np.stack([np.random.default_rng(zlib.crc32(text.encode())).normal(size=8) for text in texts])


def test_its_steps_run_in_tiny(
    tiny_gemma: Path, tiny_backbones: dict[str, Path], bridge_tokenizer: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    corpus, model = make_corpus(tmp_path / "corpus"), tmp_path / "model"
    prepare_bridge(list(tiny_backbones.values()), tiny_gemma, model, TINY, tokenizer=bridge_tokenizer)
    whole = load_study(CONFIG, []).model_dump(mode="json", exclude_unset=True)
    values = whole | {
        "output": str(tmp_path / "study"),
        "num_workers": 1,
        "finetune": [],
        "corpus": whole["corpus"] | {"folder": str(corpus)},
        "checkpoints": [{"base": "gemma3-270m", "size": "photos-l", "model": str(model)}],
        "grid": [
            {"sizes": ["photos-l"], "bases": ["gemma3-270m"], "budgets": [2, 4], "seeds": [0]},
            {"kind": "no-translation", "sizes": ["photos-l"], "bases": ["gemma3-270m"], "budgets": [4], "seeds": [0]},
        ],
    }
    values["training"]["data"] = values["training"]["data"] | {"image_size_px": 32}
    values["evaluation"] = values["evaluation"] | {"num_captions": 0}
    run_study(build_config(StudyConfig, values))
    records = read_run_records(tmp_path / "study" / "runs.jsonl")
    assert {record.kind for record in records} == {"main", "no-translation"}
    for record in records:
        assert {"UC", "ST", "SC"} <= record.results[0].per_split.keys()
        assert record.Pt < record.P
    # Captions are measured in this process, where the space of sentences is a planted one.
    load_texts.cache_clear()
    monkeypatch.setattr(photographs, "sentence_vectors", planted_vectors)
    monkeypatch.setattr(photographs, "NUM_FITTED", 4)
    measured = whole["evaluation"] | {"texts": str(make_texts(tmp_path / "texts")), "max_new_tokens": 4}
    graph = study_graph(build_config(StudyConfig, values | {"evaluation": measured}))
    for run in graph.runs:
        assert run.captions is not None
        run_step(run.captions.job(tmp_path / "study"))
    shorter, record = (collect_record(run, "photos", tmp_path / "study") for run in graph.runs[:2])
    assert not [result for result in shorter.results if result.measure.endswith(("/plain", "/shuffled"))]
    found = {result.measure: result for result in record.results}
    for name in ("language", "found", "found_first"):
        for variant in ("plain", "prefix"):
            assert found[f"captions/{name}/{variant}"].per_pair.keys() == {f"caption-{code}" for code in CODES}
    assert record.extra["chance"].keys() >= {"found", "found_first"}
    gallery = make_gallery(graph, tmp_path / "study")
    assert [picture["key"] for picture in gallery["pictures"]] == ["12", "13", "14", "15"]
    assert len(gallery["pictures"][0]["captions"]) == 2 * 2 * len(CODES)  # main and control, plain and prefix


def test_its_claims_rest_on_retrieval(tmp_path: Path) -> None:
    """Planted shares: main finds 60 % of the photographs, captions alone 30 %; the language needs the prefix."""
    records = [
        planted_record(kind, seed, found)
        for kind, found in (("main", 0.6), ("no-translation", 0.3))
        for seed in (0, 1, 2)
    ]
    study = Study(tuple(records), Coverage(seen=SEEN_WITH_PAIRS, splits=SPLITS_WITH_PAIRS))
    main = study.headline()
    assert main is not None
    assert has_photographs(main)
    claims = {claim.key: claim for claim in photograph_claims(study, main)}
    verdicts = {key: claim.verdict for key, claim in claims.items()}
    assert verdicts["emergence"] == HOLDS
    assert verdicts["prefix"] == HOLDS
    assert verdicts["translations"] != DOES_NOT
    assert verdicts["finetuning"] == NOT_MEASURED
    assert verdicts["image"] == NOT_MEASURED


def planted_record(kind: str, seed: int, found: float) -> RunRecord:
    shares = {
        "language/prefix": 1.0,
        "language/plain": 0.1,
        "found/prefix": found,
        "found/plain": 0.1,
        "found/chance": 0.08,
    }
    results = [
        caption_result(
            f"captions/{name}", EVAL, Coverage(seen=SEEN_WITH_PAIRS, splits=SPLITS_WITH_PAIRS),
            {f"caption-{code}": share + 0.001 * seed if "found/p" in name else share for code in CODES},
        ).model_copy(update={"num_samples": {f"caption-{code}": 129 for code in CODES}})
        for name, share in shares.items()
    ]  # fmt: skip
    return RunRecord(
        run=f"{kind}.{seed}", kind=kind, family="gemma", size="photos-l", base="gemma3-270m", seed=seed, num_steps=10,
        batch_size=16, P=10, Pt=5, F=1, S=160, C=1, results=results, extra={"chance": {"found": 0.08}},
    )  # fmt: skip


@pytest.mark.parametrize("size", ["photos-s", "photos-m", "photos-l"])
def test_sizes_differ_in_what_trains_alone(size: str) -> None:
    from babelcap.models.sizing.sizes import size_config

    config = size_config(size)
    assert config.decoder_config.hidden_size == 640
    assert config.vocab_size == 262_144
