"""The records that come with the repository give the claims that stand beside them, and README's figures exist."""

import csv
import re
from pathlib import Path

import pytest

from babelcap.report import build_report

REPOSITORY = Path(__file__).parents[2]
SMALL = REPOSITORY / "results" / "small"


def claims_in(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_claims_follow_from_the_records(tmp_path: Path) -> None:
    build_report(SMALL, tmp_path / "report")
    again, beside = claims_in(tmp_path / "report" / "claims.csv"), claims_in(SMALL / "claims.csv")
    for name in ("claim", "verdict", "condition", "needs", "holds"):
        assert [row[name] for row in again] == [row[name] for row in beside]
    for row, known in zip(again, beside, strict=True):
        for name in ("measured", "measured low", "measured high"):
            assert bool(row[name]) == bool(known[name])
            if known[name]:
                assert float(row[name]) == pytest.approx(float(known[name]), rel=1e-3, abs=1e-3), row["condition"]


def test_every_figure_of_the_readme_is_there() -> None:
    shown = re.findall(r"\((docs/figures/[^)]+)\)", (REPOSITORY / "README.md").read_text(encoding="utf-8"))
    assert shown
    assert [path for path in shown if not (REPOSITORY / path).is_file()] == []
