"""Killed at random moments of every stage, on local workers: the same command ends with the same bytes."""

from pathlib import Path

import pytest

from torture.kill_stages import NUM_KILLS, STAGES, Builder, copy_build, kill_in_stage


def test_killed_in_a_stage_a_build_ends_the_same(builder: Builder, whole: Path, tmp_path: Path) -> None:
    copy_build(whole, tmp_path / "killed")
    assert kill_in_stage(builder, whole, tmp_path / "killed", "clean", 3).num_hits >= 2


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_killed_twenty_times_in_every_stage(builder: Builder, whole: Path, tmp_path: Path, stage: str) -> None:
    copy_build(whole, tmp_path / "killed")
    kills = kill_in_stage(builder, whole, tmp_path / "killed", stage, NUM_KILLS)
    print(f"{stage}: {kills.num_hits} kills while it had files to make, {kills.num_workers} of a worker", flush=True)
    assert kills.num_hits >= NUM_KILLS // 2
