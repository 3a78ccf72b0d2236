"""Stands in for a training run in the tests: ranks that add up over a process group, save, leave when told, and resume.

python stand_in.py FOLDER NUM_STEPS. The folder gets state.json (the checkpoint), attempts.txt (the step each attempt
began at) and result.json. The sum is of floats and depends on every rank at every step, so a lost step shows.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from babelcap.jobs.signals import REQUEUE_EXIT_CODE, stop_requests
from babelcap.jobs.slurm import distributed_environment
from babelcap.storage import read_json, write_json


def main(folder: Path, num_steps: int) -> int:
    with stop_requests() as stop:
        os.environ.update(distributed_environment(os.environ))
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        path = folder / "state.json"
        state = read_json(path) if path.exists() else {"step": 0, "value": 0.0}
        dist.barrier()
        if rank == 0:
            with (folder / "attempts.txt").open("a") as file:
                file.write(f"{state['step']}\n")
        for step in range(state["step"], num_steps):
            # The second number is the ranks' agreement to leave: signals reach them at different times.
            shared = torch.tensor([math.sin(step + rank / 7), float(bool(stop))], dtype=torch.float64)
            dist.all_reduce(shared)
            state = {"step": step + 1, "value": 0.99 * state["value"] + shared[0].item()}
            if rank == 0:
                (folder / "progress.txt").write_text(str(step + 1))
            if shared[1] > 0:
                if rank == 0:
                    write_json(path, state)
                dist.barrier()
                return REQUEUE_EXIT_CODE
            time.sleep(0.02)
        if rank == 0:
            write_json(folder / "result.json", {**state, "world_size": dist.get_world_size()})
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps({"exit_code": code}), flush=True)
    sys.exit(code)
