"""What of a study is done, what is queued, what the rest takes on this machine and on GPUs; nothing is written."""

from typing import Any

from babelcap.config import content_hash
from babelcap.study.config import StudyConfig
from babelcap.study.cost import step_costs
from babelcap.study.estimate import estimate_steps, read_timing, wall_seconds
from babelcap.study.grid import GridRun, StudyGraph, study_graph
from babelcap.study.local import num_workers_of
from babelcap.study.slurm import script_of, states_of


def describe_study(config: StudyConfig, with_costs: bool = False) -> dict[str, Any]:
    """`with_costs` adds GPU-hours to every step, which takes seconds for each size."""
    study = config.output.resolve()
    graph = study_graph(config)
    estimates = estimate_steps(graph.steps, read_timing(study))
    states = states_of(study)
    costs = step_costs(config, graph.steps) if with_costs else {}
    num_workers = num_workers_of(config)
    rows: list[dict[str, Any]] = []
    for step in graph.steps:
        done = step.done(study) is not None
        row = {
            "name": step.name,
            "kind": step.kind,
            "folder": str(step.folder),
            "done": done,
            "state": "done" if done else states.get(step.hash, "to do").lower(),
            "seconds": round(estimates[step.hash].seconds, 1),
            "measured": estimates[step.hash].measured,
        }
        cost = costs.get(step.hash)
        rows.append(row if cost is None else row | cost._asdict() | {"hours": cost.hours})
    todo = [step for step, row in zip(graph.steps, rows, strict=True) if not row["done"]]
    described = {
        "name": config.name,
        "output": str(config.output),
        "hash": content_hash(config),
        "num_runs": len(graph.runs),
        "num_steps": len(rows),
        "num_done": len(rows) - len(todo),
        "num_workers": num_workers,
        "core_seconds": round(sum(estimates[step.hash].seconds for step in todo), 1),
        "wall_seconds": round(wall_seconds(todo, estimates, num_workers), 1),
        "trained_share": trained_share(graph),
        "steps": rows,
    }
    if with_costs:
        described |= {name: sum(row[name] for row in rows) for name in ("flops", "gpu_hours")}
        described |= {"peak_tflops": config.peak_tflops, "reached_share": config.reached_share}
    return described


def trained_share(graph: StudyGraph) -> float:
    """Samples that the trainings see, as a share of what one training for each budget would: branches share a trunk."""
    trainings = {run.train.hash: run.train.units for run in graph.runs}
    alone = sum(_samples(run) for run in graph.runs)
    return sum(trainings.values()) / alone if alone else 1.0


def _samples(run: GridRun) -> int:
    return int(run.leg.removeprefix("budget-")) * int(run.train.resources["config"]["batch_size"])


def first_script(config: StudyConfig) -> str:
    """Of the first training, as an example: the other jobs differ in name, resources and what they wait for."""
    step = next(step for step in study_graph(config).steps if step.kind == "train")
    return script_of(config, step)


def show_states(described: dict[str, Any]) -> str:
    lines = [f"{row['state']:<12} {row['name']}" for row in described["steps"]]
    lines.append(f"{described['name']}: {described['num_done']} of {described['num_steps']} steps done")
    return "\n".join(lines)


def show_costs(described: dict[str, Any]) -> str:
    width = max(len(row["name"]) for row in described["steps"])
    head = f"{'step':<{width}} {'state':<10} {'FLOPs':>9} {'GPUs':>5} {'GPU-hours':>10} {'hours':>7} {'GiB/GPU':>8}"
    lines = [head]
    for row in described["steps"]:
        memory = "" if row["memory_gib"] is None else f"{row['memory_gib']:.1f}"
        lines.append(
            f"{row['name']:<{width}} {row['state']:<10} {row['flops']:>9.2e} {row['num_gpus']:>5} "
            f"{row['gpu_hours']:>10.2f} {row['hours']:>7.2f} {memory:>8}"
        )
    lines.append(
        f"{described['name']}: {described['num_runs']} records from {described['num_steps']} steps, "
        f"{described['num_done']} done; {described['flops']:.3g} FLOPs, {described['gpu_hours']:.1f} GPU-hours, "
        f"assuming {described['reached_share']:.0%} of {described['peak_tflops']:g} TFLOP/s a GPU "
        "(peak_tflops, reached_share)"
    )
    return "\n".join(lines)
