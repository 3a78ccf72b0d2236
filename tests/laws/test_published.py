"""The published laws say what the paper says."""

import pytest

from babelcap.errors import UserError
from babelcap.laws import published


@pytest.mark.parametrize(("split", "loss"), [("UC", 2.6), ("ST", 1.5), ("SC", 0.7)])
def test_the_largest_model_after_all_steps(split: str, loss: float) -> None:
    law = published("paper-v1", split)
    where = {"P": 11.2218e9, "S": 10.24e6}
    low, high = law.rounding_interval(**where)
    assert low < loss < high
    assert law.predict(where) == pytest.approx(loss, abs=0.06)


def test_intervals_and_units_are_those_printed() -> None:
    law = published("paper-v1", "UC", "compute")
    assert law.coefficients["a0"] == pytest.approx(10**1.86)
    assert law.intervals["a1"] == (-0.26, -0.04)
    assert "GMACs" in law.units


def test_what_was_not_published() -> None:
    for arguments in (("paper-v9",), ("paper-v1", "XX"), ("paper-v1", "UC", "pst")):
        with pytest.raises(UserError, match="choose one of"):
            published(*arguments)
