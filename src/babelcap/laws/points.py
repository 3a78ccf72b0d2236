"""Points a law is fitted to: checked columns of positive numbers. What cannot be fitted is said in one line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from babelcap.errors import UserError
from babelcap.laws.columns import listed
from babelcap.laws.forms import Form
from babelcap.laws.solver import Array


@dataclass(frozen=True)
class Points:
    columns: dict[str, Array]
    y: Array
    groups: NDArray[np.intp] | None = None  # points of one group are seeds of one run, not independent
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: NDArray[Any]) -> "Points":
        groups = None if self.groups is None else np.unique(self.groups[rows], return_inverse=True)[1]
        return Points({name: values[rows] for name, values in self.columns.items()}, self.y[rows], groups, self.notes)


def positive_numbers(name: str, values: Any) -> Array:
    """One column as floats; text, missing values, zero and negative numbers are the user's to mend."""
    try:
        found = np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        bad = next((value for value in np.ravel(np.asarray(values, dtype=object)) if not _is_number(value)), values)
        raise UserError(f"column {name}: found {repr(bad)[:60]}, which is not a number that can be used") from None
    if not np.isfinite(found).all():
        count = int(np.sum(~np.isfinite(found)))
        raise UserError(f"column {name}: {count} of {found.size} values are missing or infinite; remove those points")
    if (found <= 0).any():
        raise UserError(f"column {name}: found {found[found <= 0].flat[0]:g}; a power law needs numbers above zero")
    return found


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def make_points(
    form: Form, columns: Mapping[str, Any], y: Any, groups: Sequence[Any] | NDArray[Any] | None = None
) -> Points:
    """Checks the columns that the form needs. Rows that say the same twice count once, unless groups account for it."""
    columns = with_compute(dict(columns)) if "C" in form.columns else dict(columns)
    missing = [name for name in form.columns if name not in columns]
    if missing:
        found = listed(columns)
        raise UserError(f"form {form.name} needs the column {missing[0]}; found {found} (name yours with --map)")
    target = np.atleast_1d(positive_numbers("y", y))
    clean = {name: np.atleast_1d(positive_numbers(name, columns[name])) for name in form.columns}
    for name, values in clean.items():
        if values.shape != target.shape or target.ndim != 1:
            raise UserError(f"column {name}: {values.size} values for {target.size} values of y; give one for each")
    for name in ("P", "F", "Pt"):  # what a plan may ask for
        if name in columns and name not in clean and np.size(columns[name]) == target.size:
            clean[name] = np.atleast_1d(positive_numbers(name, columns[name]))
    codes = None
    if groups is not None:
        if len(groups) != len(target):
            raise UserError(f"groups: {len(groups)} names for {len(target)} points; give one for each")
        codes = np.unique(np.asarray([str(group) for group in groups]), return_inverse=True)[1]
    points = Points(clean, target, codes)
    return points if codes is not None else _without_duplicates(form, points)


def with_compute(columns: dict[str, Any]) -> dict[str, Any]:
    """Adds C = S F (1 + Pt / P) where it is not given but its parts are."""
    if "C" in columns or not {"S", "F", "P", "Pt"} <= set(columns):
        return columns
    S, F, P, Pt = (positive_numbers(name, columns[name]) for name in ("S", "F", "P", "Pt"))
    with np.errstate(over="ignore"):  # an infinite C is found where it is used
        return columns | {"C": S * F * (1 + Pt / P)}


def _without_duplicates(form: Form, points: Points) -> Points:
    table = np.stack([*(points.columns[name] for name in form.columns), points.y], axis=1)
    _, first = np.unique(table, axis=0, return_index=True)
    dropped = len(points) - len(first)
    if not dropped:
        return points
    kept = points.take(np.sort(first))
    note = f"{dropped} of {len(points)} rows repeat another row exactly and are counted once; name seeds with groups"
    return Points(kept.columns, kept.y, None, (note,))


def mean_over_groups(
    columns: Mapping[str, Any], y: Any, groups: Sequence[Any] | NDArray[Any]
) -> tuple[dict[str, Array], Array]:
    """One point a group, in the order of their first points: the means of the loss and of the columns of numbers."""
    names = [str(group) for group in groups]
    order = {name: place for place, name in enumerate(dict.fromkeys(names))}
    rows = np.array([order[name] for name in names])
    sizes = np.bincount(rows)
    means = {
        name: np.bincount(rows, np.asarray(values, dtype=float)) / sizes
        for name, values in columns.items()
        if len(values) == len(rows) and all(isinstance(value, Real) for value in values)
    }
    return means, np.bincount(rows, positive_numbers("y", y)) / sizes


def frontier(columns: Mapping[str, Any], y: Any, cost: str = "C") -> NDArray[np.intp]:
    """The rows on the Pareto frontier: no other point has a loss as low for a cost as low."""
    costs, losses = positive_numbers(cost, columns[cost]), positive_numbers("y", y)
    order = np.lexsort((losses, costs))
    best = np.minimum.accumulate(losses[order])
    first = np.concatenate([[True], losses[order][1:] < best[:-1]])
    return np.sort(order[first])


def check_determined(form: Form, points: Points) -> None:
    """Stops where no number could be right: too few points, a column that never changes, columns that are one."""
    size, num_points = len(form.coefficients), len(points)
    least = size + (1 if form.is_linear else 2)
    if num_points < least:
        raise UserError(
            f"{num_points} distinct points for the {size} coefficients of {form.name} ({form.formula}): "
            f"not identified; give at least {least}"
        )
    for name in form.columns:
        logs = np.log(points.columns[name])
        num_values = len(np.unique(logs))
        what = "one model size" if name == "P" else "one value"
        if num_values == 1:
            raise UserError(
                f"column {name}: {what} ({points.columns[name][0]:g}) in all {num_points} points, so the exponent of "
                f"{name} is not identified; add points with another {name} or choose a form without it"
            )
        if not form.is_linear and _needs_three(form, name) and num_values == 2:
            raise UserError(
                f"column {name}: two values in all points, but {form.name} needs three to tell its term of {name} from "
                f"{form.floor}: not identified; add points with another {name}"
            )
    if points.groups is not None and int(points.groups.max()) + 1 <= size:
        raise UserError(
            f"groups: {int(points.groups.max()) + 1} groups for {size} coefficients: not identified; add runs"
        )
    for term in form.terms:
        names = [column for column, _, _ in term.powers]
        logs = np.array([np.log(points.columns[name]) for name in names])
        if len(names) > 1 and condition_number(logs) > 1e6:
            raise UserError(
                f"columns {', '.join(names)}: one follows from the others in every point, so their exponents are not "
                f"identified apart; vary them independently or leave one out"
            )


def _needs_three(form: Form, name: str) -> bool:
    """A term of this column alone can trade against the floor; in a product the other columns keep them apart."""
    return form.floor is not None and any([column for column, _, _ in term.powers] == [name] for term in form.terms)


def condition_number(logs: Array) -> float:
    """Of the columns in log space, centred and scaled to one: 1 when independent, infinite when one follows."""
    centred = logs - logs.mean(axis=1, keepdims=True)
    size = np.linalg.norm(centred, axis=1, keepdims=True)
    values = np.linalg.svd(centred / np.maximum(size, 1e-300), compute_uv=False)
    return float(values[0] / max(values[-1], 1e-300))
