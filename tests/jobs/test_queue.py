"""Slurm's own commands, stood in for by scripts."""

from pathlib import Path

import pytest

from babelcap.jobs.queue import job_states


def program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_states_come_from_the_queue_and_then_from_the_books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert job_states(["7"]) == {}  # no Slurm
    program(tmp_path / "squeue", "echo '7|RUNNING'; echo '9|PENDING'")
    program(tmp_path / "sacct", "echo '5|CANCELLED by 0'")
    assert job_states(["5", "7", "6"]) == {"5": "CANCELLED", "7": "RUNNING"}
