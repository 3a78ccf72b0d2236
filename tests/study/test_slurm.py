"""A study on a cluster: what is submitted, in which order, after what; and what it costs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from babelcap.errors import UserError
from babelcap.jobs.slurm import ClusterConfig
from babelcap.storage import read_json, write_json
from babelcap.study import slurm
from babelcap.study.config import StudyConfig
from babelcap.study.cost import cluster_of, step_costs
from babelcap.study.graph import write_done
from babelcap.study.grid import study_graph
from babelcap.study.overview import describe_study, show_costs
from babelcap.training.config import TrainConfig
from babelcap.training.cost import run_cost

Tiny = Callable[..., StudyConfig]


class Queue:
    """Stands in for Slurm: takes jobs and answers with the states that a test gives them."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.states: dict[str, str] = {}

    def submit(self, command: list[str], cluster: ClusterConfig, folder: Path, name: str, after: list[str]) -> str:
        job = str(100 + len(self.jobs))
        self.jobs.append({"id": job, "command": command, "name": name, "after": list(after), "cluster": cluster})
        self.states[job] = "PENDING"
        return job

    def ask(self, jobs: Any) -> dict[str, str]:
        return {job: state for job, state in self.states.items() if job in set(jobs)}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    found = Queue()
    monkeypatch.setattr(slurm, "submit", found.submit)
    monkeypatch.setattr(slurm, "job_states", found.ask)
    return found


def test_every_step_is_a_job_that_waits_for_its_inputs(tiny: Tiny, queue: Queue) -> None:
    config = tiny()
    jobs = slurm.submit_study(config)
    graph = study_graph(config)
    assert list(jobs) == [*(step.name for step in graph.steps), "report"]
    by_name = {job["name"]: job for job in queue.jobs}
    for step in graph.steps:
        needed = [jobs[need.name] for need in step.inputs.values()]
        assert by_name[slurm.job_name(step)]["after"] == needed
        path = Path(by_name[slurm.job_name(step)]["command"][-1])
        assert read_json(path) == json.loads(json.dumps(step.job(config.output.resolve())))
    assert len(queue.jobs[-1]["after"]) == len(graph.steps)
    assert queue.jobs[-1]["command"][-3:] == ["study", "gather", str(config.output.resolve())]


def test_what_is_done_or_queued_is_not_submitted_again(tiny: Tiny, queue: Queue) -> None:
    config = tiny()
    study = config.output.resolve()
    first = slurm.submit_study(config)
    assert slurm.submit_study(config) == {}
    steps = {step.name: step for step in study_graph(config).steps}
    world = next(name for name in steps if name == "world main")
    write_done(study / steps[world].folder, {"hash": steps[world].hash})
    failed = "train micro-gemma-s.balanced.s0"
    for name, job in first.items():  # what depends on a failed job is cancelled by Slurm
        queue.states[job] = "FAILED" if name == failed else "CANCELLED" if "balanced.s0" in name else "RUNNING"
    queue.states[first["report"]] = "CANCELLED"
    states = {row["name"]: row["state"] for row in describe_study(config)["steps"]}
    assert (states[world], states[failed], states["world full"]) == ("done", "failed", "running")
    again = slurm.submit_study(config)
    assert set(again) == {name for name in steps if "balanced.s0" in name} | {"report"}
    resubmitted = next(job for job in queue.jobs if job["id"] == again[failed])
    assert resubmitted["after"] == [first["prepare micro-gemma-s.balanced"]]  # the world is done


def test_each_kind_asks_for_its_own(tiny: Tiny) -> None:
    cluster = {"default": {"partition": "cpu", "time_hours": 1}, "loss": {"gpus_per_node": 4}}
    config = tiny(cluster=cluster, training__cluster={"nodes": 2, "gpus_per_node": 4})
    steps = {step.kind: step for step in study_graph(config).steps}
    asked = {kind: cluster_of(config, kind, step) for kind, step in steps.items()}
    assert {kind: found.partition for kind, found in asked.items()} == dict.fromkeys(steps, "cpu")
    assert (asked["train"].num_tasks, asked["loss"].num_tasks, asked["world"].gpus_per_node) == (8, 1, 0)
    assert "#SBATCH --nodes=2" in slurm.script_of(config, steps["train"])


def test_gpu_hours_of_every_step(tiny: Tiny) -> None:
    config = tiny(peak_tflops=100.0, reached_share=0.5, training__cluster={"gpus_per_node": 2})
    graph = study_graph(config)
    costs = step_costs(config, graph.steps)
    train = next(run for run in graph.runs if run.kind == "no-translation").train
    trained = TrainConfig.model_validate(train.resources["config"])
    told = run_cost(trained, 2, "micro-gemma-s")
    assert costs[train.hash].flops == pytest.approx(told["training_flops"])
    assert costs[train.hash].gpu_hours == pytest.approx(told["training_flops"] / 50e12 / 3600)
    assert costs[train.hash].hours == pytest.approx(costs[train.hash].gpu_hours / 2)
    loss = graph.runs[0].loss
    forward = told["training_flops"] / 48 / (2 + told["Pt"] / told["P"])  # 6 steps of 8 samples
    assert costs[loss.hash].flops == pytest.approx(4 * 6 * 2 * forward)  # samples of each of six pairs, twice
    assert costs[graph.pictures.hash].gpu_hours == 0
    text = show_costs(describe_study(config, with_costs=True))
    assert all(step.name in text for step in graph.steps)
    assert "50% of 100 TFLOP/s" in text


CHANGES = [{"folder": "OUTSIDE"}, {"study": "OUTSIDE"}, {"kind": "sh"}, {"hash": None}, {"inputs": []}]


@pytest.mark.parametrize("change", CHANGES)
def test_a_job_that_is_none_of_the_study_empties_no_folder(tmp_path: Path, change: dict[str, Any]) -> None:
    """A step that begins anew empties its folder first: whatever a file says, it is one of the study's."""
    mine, study = tmp_path / "mine", tmp_path / "study"
    write_json(mine / "notes.json", {})
    values = {"kind": "loss", "name": "loss/x", "hash": "h", "at": "", "size": "", "study": str(study)}
    values |= {"folder": str(study / "evaluations/x"), "settings": {}, "resources": {}, "inputs": {}, "units": 1}
    values |= {name: str(mine) if value == "OUTSIDE" else value for name, value in change.items()}
    write_json(study / "slurm" / "loss-x" / "job.json", values)
    with pytest.raises(UserError, match="is not the job of a step"):
        slurm.run_submitted(study / "slurm" / "loss-x" / "job.json")
    assert (mine / "notes.json").is_file()
