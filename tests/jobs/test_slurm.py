"""Slurm without a Slurm: the script, the ranks, and what a task does when its command ends."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from babelcap.config import build_config, content_hash, load_config
from babelcap.errors import UserError
from babelcap.jobs import slurm
from babelcap.jobs.signals import REQUEUE_EXIT_CODE, STOP_SIGNALS, stop_requests
from babelcap.jobs.slurm import ClusterConfig, TrainingTask, distributed_environment, first_host, submit

TRAIN = ["python", "-m", "babelcap", "train", "my run.toml", "seed=1"]
SLURM_STEP = {
    "SLURM_JOB_ID": "1234",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_NODELIST": "gpu[07-09]",
}


def script(folder: Path, **settings: object) -> list[str]:
    return submit(TRAIN, ClusterConfig(**settings), folder / "slurm", "micro", dry_run=True).splitlines()


def test_the_script_asks_for_what_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # neither srun nor sbatch is there
    lines = script(
        tmp_path,
        partition="gpu",
        account="lab",
        qos="long",
        constraint="a100",
        nodes=2,
        gpus_per_node=4,
        cpus_per_task=8,
        memory_gb=1.5,
        time_hours=0.75,
        signal_seconds=120,
        setup=("module load cuda",),
        extra={"reservation": "spring", "exclusive": True, "overcommit": False},
    )
    options = {line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")}
    expected = "partition=gpu account=lab qos=long constraint=a100 nodes=2 gpus-per-node=4 ntasks-per-node=4"
    expected += " cpus-per-task=8 mem=1536M time=45 signal=USR1@120 requeue reservation=spring exclusive job-name=micro"
    assert set(expected.split()) <= options
    assert not [option for option in options if "overcommit" in option]
    assert lines.index("# each task runs: python -m babelcap train 'my run.toml' seed=1") < lines.index(
        "module load cuda"
    )
    srun = next(line for line in lines if line.startswith("srun "))
    assert " --cpus-per-task=8 --kill-on-bad-exit=1 " in srun
    assert sys.executable in srun
    assert list(tmp_path.iterdir()) == [], "a dry run writes nothing"


def test_defaults_leave_the_choice_to_slurm(tmp_path: Path) -> None:
    text = "\n".join(script(tmp_path))
    for option in ("partition", "account", "qos", "constraint", "gpus", "mem"):
        assert f"--{option}" not in text
    assert "--ntasks-per-node=1" in text


def test_no_requeues_are_told_to_slurm(tmp_path: Path) -> None:
    lines = script(tmp_path, max_requeues=0)
    assert "#SBATCH --no-requeue" in lines
    assert "#SBATCH --requeue" not in lines


def test_a_line_break_in_the_command_stays_in_the_comment(tmp_path: Path) -> None:
    text = submit(["echo", "one\ntwo"], ClusterConfig(), tmp_path, "name", dry_run=True)
    assert "\ntwo" not in text


def test_submitting_without_slurm_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="login node, or use --dry-run"):
        submit(TRAIN, ClusterConfig(), tmp_path, "name")


def test_what_sbatch_refuses_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "srun", "exit 0")
    program(tmp_path / "sbatch", "echo 'sbatch: error: invalid partition specified: gpux' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(UserError, match=r"^sbatch refused the job: .*invalid partition specified: gpux$"):
        submit(TRAIN, ClusterConfig(partition="gpux"), tmp_path / "slurm", "name")


def test_resources_are_no_part_of_the_hash() -> None:
    assert content_hash(ClusterConfig()) == content_hash(ClusterConfig(nodes=4, extra={"nice": 5}, setup=("date",)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"time_hours": 0.01, "signal_seconds": 90}, "signal_seconds is 90, not less than the time limit of 60 s"),
        ({"extra": {"open_mode": "truncate"}}, "extra.open_mode is set by babelcap itself"),
        ({"extra": {"signal": "USR2"}}, "extra.signal is set by babelcap itself"),
        ({"extra": {"nodes": 2}}, "extra.nodes is set by babelcap itself or by another key"),
        ({"nodes": 0}, "nodes"),
        ({"gpu_per_node": 8}, "did you mean 'gpus_per_node'"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_config(ClusterConfig, settings)


def test_settings_from_the_command_line() -> None:
    config = load_config(
        ClusterConfig, overrides=["nodes=2", "gpus_per_node=8", "extra.reservation=spring", "qos=null"]
    )
    assert (config.num_tasks, config.extra, config.qos) == (16, {"reservation": "spring"}, None)


def test_ranks_of_a_slurm_step() -> None:
    assert distributed_environment(SLURM_STEP) == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "gpu07",
        "MASTER_PORT": str(15_000 + 1234 * 31 % 15_000),
    }


def test_ranks_agree_on_the_meeting_point_and_jobs_do_not() -> None:
    first = distributed_environment(SLURM_STEP)
    other_rank = distributed_environment({**SLURM_STEP, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"})
    other_job = distributed_environment({**SLURM_STEP, "SLURM_JOB_ID": "1235"})
    other_step = distributed_environment({**SLURM_STEP, "SLURM_STEP_ID": "1"})
    assert (first["MASTER_ADDR"], first["MASTER_PORT"]) == (other_rank["MASTER_ADDR"], other_rank["MASTER_PORT"])
    assert len({found["MASTER_PORT"] for found in (first, other_job, other_step)}) == 3


def test_one_node_meets_on_itself() -> None:
    assert distributed_environment({**SLURM_STEP, "SLURM_STEP_NUM_NODES": "1"})["MASTER_ADDR"] == "127.0.0.1"


def test_torchrun_comes_before_slurm() -> None:
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}
    assert distributed_environment({**SLURM_STEP, **torchrun, "HOME": "there"}) == torchrun


def test_what_neither_started_has_no_ranks() -> None:
    in_batch_script = {name: value for name, value in SLURM_STEP.items() if "STEP" not in name}
    assert distributed_environment({}) == {}
    assert distributed_environment({**in_batch_script, "SLURM_PROCID": "0"}) == {}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("node1", "node1"),
        ("node-a,node-b", "node-a"),
        ("gpu[003-005,9],cpu1", "gpu003"),
        ("gpu[7,3-5]", "gpu7"),
        ("rack[1-2]n[04-05]-ib,x", "rack1n04-ib"),
        ("cpu1,gpu[1-2]", "cpu1"),
    ],
)
def test_first_host(nodes: str, expected: str) -> None:
    assert first_host(nodes) == expected


def program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """squeue answers what `state` holds; scontrol writes down what it is asked."""
    program(tmp_path / "squeue", f"cat {tmp_path}/state")
    program(tmp_path / "scontrol", f'echo "$@" >> {tmp_path}/calls; exit $(cat {tmp_path}/scontrol_code)')
    (tmp_path / "state").write_text("RUNNING\n")
    (tmp_path / "scontrol_code").write_text("0")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    return tmp_path


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []


def leave(code: int, max_requeues: int = 3) -> int | str | None:
    """The exit code of a task whose command ends with `code`."""
    with pytest.raises(SystemExit) as caught:
        TrainingTask(("sh", "-c", f"exit {code}"), max_requeues)()
    return caught.value.code


def test_a_finished_command_is_a_result(fake_slurm: Path) -> None:
    assert TrainingTask(("true",), 3)() == 0
    assert calls(fake_slurm) == []


def test_a_fault_keeps_its_exit_code(fake_slurm: Path) -> None:
    assert leave(2) == 2
    assert calls(fake_slurm) == []


def test_the_first_rank_requeues(fake_slurm: Path) -> None:
    assert leave(REQUEUE_EXIT_CODE) == 0
    assert calls(fake_slurm) == ["requeue 77"]


def test_the_other_ranks_are_silent(fake_slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert leave(REQUEUE_EXIT_CODE) == 0
    assert calls(fake_slurm) == []


@pytest.mark.parametrize("state", ["COMPLETING", "CANCELLED"])
def test_a_job_that_slurm_is_ending_is_left_alone(fake_slurm: Path, state: str) -> None:
    (fake_slurm / "state").write_text(state)
    assert leave(REQUEUE_EXIT_CODE) == 0
    assert calls(fake_slurm) == []


def test_a_state_that_is_not_known_is_a_fault(fake_slurm: Path) -> None:
    """A cancelled job must not be requeued, and an unfinished one must not pass for completed."""
    (fake_slurm / "state").write_text("")
    assert leave(REQUEUE_EXIT_CODE) == REQUEUE_EXIT_CODE
    assert calls(fake_slurm) == []


def test_requeues_have_an_end(fake_slurm: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", "3")
    assert leave(REQUEUE_EXIT_CODE, max_requeues=4) == 0
    assert leave(REQUEUE_EXIT_CODE, max_requeues=3) == REQUEUE_EXIT_CODE
    assert calls(fake_slurm) == ["requeue 77"]
    assert "requeued 3 times (cluster.max_requeues)" in capfd.readouterr().err


def test_a_requeue_that_is_refused_is_a_fault(fake_slurm: Path) -> None:
    (fake_slurm / "scontrol_code").write_text("1")
    assert leave(REQUEUE_EXIT_CODE) == REQUEUE_EXIT_CODE


# A command that says when it has begun, and leaves with a code when it is told to.
BEGINS = """
import signal, sys, time
from babelcap.jobs.signals import stop_requests

begun, code = sys.argv[1], int(sys.argv[2])
open(begun, "w").close()
"""
LISTENS = """
with stop_requests() as stop:
    while not stop:
        time.sleep(0.01)
sys.exit(code)
"""
# It is told before it listens, as during the imports.
LISTENS_LATE = f"""
while not signal.sigpending():
    time.sleep(0.01)
{LISTENS}"""


def leave_when_told(folder: Path, body: str, number: signal.Signals, code: int) -> int | str | None:
    """The exit code of a task that gets a signal while its command runs, which then ends with `code`."""
    begun = folder / "begun"
    os.mkfifo(begun)

    def send() -> None:
        begun.read_text()  # waits until the command opens it too
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(SystemExit) as caught:
        TrainingTask((sys.executable, "-c", BEGINS + body, str(begun), str(code)), 3)()
    sender.join()
    assert signal.getsignal(number) == signal.SIG_DFL
    assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return caught.value.code


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
@pytest.mark.parametrize("body", [LISTENS, LISTENS_LATE], ids=["listening", "importing"])
def test_a_stop_signal_is_handed_on_and_leads_to_a_requeue(fake_slurm: Path, body: str, number: signal.Signals) -> None:
    assert leave_when_told(fake_slurm, body, number, REQUEUE_EXIT_CODE) == 0
    assert calls(fake_slurm) == ["requeue 77"]


def test_a_fault_after_a_stop_signal_stays_a_fault(fake_slurm: Path) -> None:
    """srun ends the other ranks of one that failed by SIGTERM, while the job is still RUNNING."""
    assert leave_when_told(fake_slurm, LISTENS, signal.SIGTERM, 3) == 3
    assert calls(fake_slurm) == []


def test_a_process_on_its_way_out_is_not_ended_by_a_second_signal() -> None:
    code = """
import os, signal, sys
from babelcap.jobs.signals import stop_requests

for number in (signal.SIGUSR1, signal.SIGTERM):
    with stop_requests() as stop:
        os.kill(os.getpid(), number)
    os.kill(os.getpid(), number)
sys.exit(75 if stop.name == "SIGTERM" else 1)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == REQUEUE_EXIT_CODE


def test_without_a_request_signals_do_what_they_did() -> None:
    with stop_requests():
        pass
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == [signal.SIG_DFL] * 2


def test_importing_is_light() -> None:
    code = f"import sys, {slurm.__name__}; print(sorted({{'torch', 'submitit'}} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


@pytest.mark.parametrize("name", ["x\ntouch INJ #", "a b", "../x", ""])
def test_a_name_cannot_put_a_line_into_the_script(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="a job cannot be called") as raised:
        submit(["true"], ClusterConfig(), tmp_path, name, dry_run=True)
    assert "\n" not in str(raised.value)


def test_nor_can_an_option_or_the_folder(tmp_path: Path) -> None:
    for values in ({"partition": "x\ntouch INJ"}, {"extra": {"comment": "x\ntouch INJ"}}, {"extra": {"x\ny": 1}}):
        with pytest.raises(UserError, match="no line breaks"):
            build_config(ClusterConfig, values)
    with pytest.raises(UserError, match="no line breaks"):
        submit(["true"], ClusterConfig(), tmp_path / "x\ntouch INJ", "x", dry_run=True)


def test_a_job_can_wait_for_others(tmp_path: Path) -> None:
    text = submit(["true"], ClusterConfig(), tmp_path, "x", dry_run=True, after=["7", "9"])
    assert "#SBATCH --dependency=afterok:7:9\n" in text
    assert "#SBATCH --kill-on-invalid-dep=yes\n" in text
    assert "dependency" not in submit(["true"], ClusterConfig(), tmp_path, "x", dry_run=True)
