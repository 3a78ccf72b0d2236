"""The counts that are kept are those that counting gives, and are shown only where they hold."""

import json
from pathlib import Path

import pytest

from babelcap.cli import counted
from babelcap.cli.counted import KEPT, SIZES, installed, kept_info, source_hash


def test_what_is_kept_was_counted_by_this_source() -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert kept["source"] == source_hash(), "run `python -m babelcap.cli.counted`"
    assert set(kept["sizes"]) == set(SIZES)


@pytest.mark.parametrize("size", [SIZES[0], *(pytest.param(size, marks=pytest.mark.slow) for size in SIZES[1:])])
def test_what_is_kept_is_what_counting_gives(size: str) -> None:
    from babelcap.models.sizing.info import model_info
    from babelcap.models.sizing.sizes import size_config

    kept = json.loads(KEPT.read_text(encoding="utf-8"))["sizes"][size]
    for policy in ("pretraining", "finetuning"):
        assert json.loads(json.dumps(model_info(size_config(size), policy=policy))) == kept[policy]


@pytest.mark.parametrize("change", [{"source": "0"}, {"versions": {"torch": "1.0"}}, None])
def test_a_stale_or_damaged_count_is_not_shown(
    change: dict[str, object] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8")) | {"versions": installed()}
    path = tmp_path / "counted.json"
    monkeypatch.setattr(counted, "KEPT", path)
    path.write_text(json.dumps(kept))
    assert kept_info("3.5B", "pretraining") == kept["sizes"]["3.5B"]["pretraining"]
    assert kept_info("3.5B", "no-such-policy") is None
    assert kept_info("micro-gemma-s", "pretraining") is None
    path.write_text(json.dumps(kept | change) if change else json.dumps(kept)[:-9])
    assert kept_info("3.5B", "pretraining") is None
