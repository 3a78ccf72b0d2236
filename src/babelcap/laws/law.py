"""A law with numbers in it: what predicts, whether it was fitted here or published elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from babelcap.errors import UserError
from babelcap.laws.forms import Form
from babelcap.laws.points import positive_numbers, with_compute
from babelcap.laws.solver import Array


def evaluate(form: Form, natural: Array, columns: Mapping[str, Array]) -> Array:
    """y for every row of `natural` (log prefactors, exponents, the floor itself): (rows, *points)."""
    logs = {name: np.log(values) for name, values in columns.items()}
    shape = np.broadcast_shapes(*(values.shape for values in logs.values()))
    natural = natural.reshape(natural.shape[0], natural.shape[1], *(1,) * len(shape))
    total = np.zeros((len(natural), *shape))
    position = 0
    for term in form.terms:
        if not term.powers:
            total = total + natural[:, position]
        else:
            exponent = natural[:, position] + np.zeros(shape)
            for offset, (column, _, sign) in enumerate(term.powers, 1):
                exponent = exponent + sign * natural[:, position + offset] * logs[column]
            total = total + np.exp(np.minimum(exponent, 700.0))
        position += 1 + len(term.powers)
    return total


@dataclass
class Law:
    """Coefficients as the formula has them: prefactors, exponents and the floor, none of them a logarithm."""

    form: Form
    coefficients: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    target: str = ""
    warnings: list[str] = field(default_factory=list)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)  # of the points behind the law

    @property
    def natural(self) -> Array:
        """The coefficients as `evaluate` takes them."""
        logs = []
        for term in self.form.terms:
            value = self.coefficients[term.prefactor]
            logs.append(np.log(value) if term.powers else value)
            logs += [self.coefficients[name] for _, name, _ in term.powers]
        return np.array(logs)

    def _columns(self, columns: Mapping[str, Any] | None, named: Mapping[str, Any]) -> dict[str, Array]:
        given = with_compute({**(columns or {}), **named}) if "C" in self.form.columns else {**(columns or {}), **named}
        missing = [name for name in self.form.columns if name not in given]
        if missing:
            raise UserError(f"a prediction of {self.form.name} needs {missing[0]}; found {', '.join(given) or 'none'}")
        arrays = {name: positive_numbers(name, given[name]) for name in self.form.columns}
        return dict(zip(arrays, np.broadcast_arrays(*arrays.values()), strict=True))

    def predict(self, columns: Mapping[str, Any] | None = None, **named: Any) -> Array:
        """y at the given columns: `predict({"P": [1e9], "S": [1e7]})` or `predict(P=1e9, S=1e7)`."""
        values: Array = evaluate(self.form, self.natural[None], self._columns(columns, named))[0]
        return values

    def extrapolations(self, columns: Mapping[str, Any] | None = None, **named: Any) -> list[str]:
        """One line for each column that leaves the range of the points behind the law."""
        lines = []
        for name, values in self._columns(columns, named).items():
            if name not in self.ranges:
                continue
            low, high = self.ranges[name]
            for value, factor, side in (
                (values.max(), values.max() / high, "above the largest"),
                (values.min(), low / values.min(), "below the smallest"),
            ):
                if factor > 1 + 1e-9:
                    edge = high if "above" in side else low
                    lines.append(f"{name} = {value:.3g} is {factor:.3g} times {side} of the points ({edge:.3g})")
        return lines
