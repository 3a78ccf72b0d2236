"""Studies on a cluster: the published grid, and what a dry run tells of it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.errors import UserError
from babelcap.records import EvalResult, RunRecord, read_run_records
from babelcap.storage import write_json
from babelcap.study.cluster import (
    gather_cluster_study,
    is_cluster_study,
    load_cluster_study,
    plan_cluster_study,
)

ROOT = Path(__file__).parents[2]
TRAIN = """
model = "models/nowhere"
policy = "pretraining"
budgets = [10, 30]
batch_size = 8
data = { corpus = "corpora/nowhere", image_size_px = 64 }
cluster = { nodes = 2, gpus_per_node = 4 }
"""
STUDY = """
name = "small grid"
output = "OUTPUT"
peak_tflops = 100.0
reached_share = 0.5
[[runs]]
config = "train.toml"
size = "micro-florence-s"
seeds = [0, 1]
[[runs]]
config = "train.toml"
size = "micro-gemma-m"
budgets = [20]
overrides = ["schedule.kind=wsd"]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "train.toml").write_text(TRAIN)
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace("OUTPUT", str(tmp_path / "output")))
    return path


def test_the_published_grid() -> None:
    path = ROOT / "configs" / "study" / "paper.toml"
    assert is_cluster_study(path)
    _, jobs = load_cluster_study(path, [])
    sizes, budgets = ("0.4B", "1.0B", "3.5B", "11.2B"), (500, 2000, 5000, 10000)
    assert [(job.size, job.config.budgets) for job in jobs] == [
        (size, (budget,)) for size in sizes for budget in budgets
    ]
    assert {job.config.batch_size for job in jobs} == {1024}
    assert len({job.config.output for job in jobs}) == 16


def test_jobs_flops_and_hours(study: Path) -> None:
    plan = plan_cluster_study(study, [])
    assert [job["name"] for job in plan["jobs"]] == [
        "micro-florence-s.s0.b000010",
        "micro-florence-s.s0.b000030",
        "micro-florence-s.s1.b000010",
        "micro-florence-s.s1.b000030",
        "micro-gemma-m.s0.b000020",
    ]
    short, long = plan["jobs"][:2]
    assert (long["num_samples"], long["num_gpus"]) == (240, 8)
    assert long["training_flops"] == pytest.approx(3 * short["training_flops"])
    assert plan["training_flops"] == pytest.approx(sum(job["training_flops"] for job in plan["jobs"]))
    assert plan["gpu_hours"] == pytest.approx(plan["training_flops"] / 50e12 / 3600)
    assert long["hours"] == pytest.approx(long["gpu_hours"] / 8)
    assert "#SBATCH --nodes=2" in long["script"]
    assert "babelcap train" in long["script"]
    assert str(Path("runs") / long["name"] / "job.json") in long["script"]


def test_records_of_ended_jobs_become_a_report(study: Path) -> None:
    with pytest.raises(UserError, match="none of its 5 runs has ended"):
        gather_cluster_study(study, [])
    _, jobs = load_cluster_study(study, [])
    for job in jobs[:3]:
        loss = 5 / job.config.budgets[0]
        measured = [
            EvalResult(
                measure=f"cross_entropy/sample_mean/{reading}",
                split="eval",
                per_pair={"caption-es": loss},
                per_split={"UC": loss},
                num_samples={"caption-es": 4},
            )
            for reading in ("raw", "conditioned")
        ]
        record = RunRecord(
            run="any", family="florence", size="?", seed=job.config.seed, num_steps=job.config.budgets[0], batch_size=8,
            P=10, Pt=5, F=1.0, S=8 * job.config.budgets[0], C=1.0, initial=measured, results=measured,
        )  # fmt: skip
        write_json(job.config.output / f"budget-{job.config.budgets[0]:06d}" / "record.json", record.model_dump())
    done = CliRunner().invoke(app, ["study", "gather", str(study), "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert Path(answer["report"]).is_file()
    assert answer["missing"] == ["micro-florence-s.s1.b000030", "micro-gemma-m.s0.b000020"]
    names = [record.run for record in read_run_records(study.parent / "output" / "runs.jsonl")]
    assert names == [job.name for job in jobs[:3]]


def test_dry_run_submits_and_writes_nothing(study: Path) -> None:
    study.write_text(study.read_text().partition('[[runs]]\nconfig = "train.toml"\nsize = "micro-gemma')[0])
    before = sorted(study.parent.rglob("*"))
    arguments = ["study", "run", str(study), "--submit", "slurm", "--dry-run"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "4 jobs" in done.stdout
    assert "50% of 100 TFLOP/s" in done.stdout
    assert sorted(study.parent.rglob("*")) == before


def test_mistakes_are_named(study: Path) -> None:
    study.write_text(study.read_text() + '[[runs]]\nconfig = "train.toml"\nsize = "micro-florence-s"\n')
    with pytest.raises(UserError, match=r"'micro-florence-s.s0.b000010' comes twice"):
        load_cluster_study(study, [])
    study.write_text("name = 'x'\nruns = []\n")
    assert CliRunner().invoke(app, ["study", "run", str(study)]).exit_code == 2
