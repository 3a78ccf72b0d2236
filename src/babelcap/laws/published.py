"""Laws published elsewhere, by name, with the intervals that were printed. Prefactors were printed as log10."""

from dataclasses import dataclass

from babelcap.errors import UserError
from babelcap.laws.forms import FORMS, form_of
from babelcap.laws.law import Law

# The points behind the laws of arXiv 2503.09443 v1: 4 model sizes, {500, 2000, 5000, 10000} steps at batch 1024.
PAPER_RANGES = {"P": (428.8e6, 11221.8e6), "S": (500 * 1024.0, 10000 * 1024.0)}
Printed = tuple[float, float, float]  # value, low, high
PAPER_V1: dict[str, dict[str, tuple[Printed, ...]]] = {
    "compute": {
        "UC": ((1.86, 0.92, 2.80), (-0.15, -0.26, -0.04)),
        "ST": ((2.02, 1.75, 2.23), (-0.18, -0.21, -0.15)),
        "SC": ((1.42, 1.29, 1.56), (-0.15, -0.16, -0.13)),
    },
    "ps": {
        "UC": ((2.30, 1.95, 2.66), (-0.16, -0.19, -0.13), (-0.04, -0.08, -0.01)),
        "ST": ((3.03, 2.55, 3.50), (-0.15, -0.19, -0.11), (-0.19, -0.24, -0.15)),
        "SC": ((2.20, 2.02, 2.38), (-0.13, -0.14, -0.11), (-0.15, -0.16, -0.13)),
    },
}
PRECISION = 0.005  # half of the last printed digit


@dataclass
class PublishedLaw(Law):
    """A law of which only printed, rounded coefficients are known."""

    source: str = ""
    units: str = ""

    def rounding_interval(self, **columns: float) -> tuple[float, float]:
        """The predictions that the printed digits allow; the width that rounding alone leaves."""
        ends = []
        for direction in (-1.0, 1.0):
            moved = dict(self.coefficients)
            for name in self.form.coefficients:
                if name in self.form.prefactors:
                    moved[name] *= 10 ** (direction * PRECISION)
                else:
                    moved[name] += direction * PRECISION  # all columns are above one, so up is up
            ends.append(float(Law(self.form, moved, {}).predict(columns)))
        return ends[0], ends[1]


def _paper_v1(form_name: str, split: str) -> PublishedLaw:
    form = FORMS[form_name]
    printed = dict(zip(form.coefficients, PAPER_V1[form_name][split], strict=True))
    natural = {
        name: tuple(10**value for value in values) if name in form.prefactors else values
        for name, values in printed.items()
    }
    return PublishedLaw(
        form,
        {name: values[0] for name, values in natural.items()},
        {name: (values[1], values[2]) for name, values in natural.items()},
        target=split,
        ranges={} if form_name == "compute" else dict(PAPER_RANGES),
        warnings=[
            "printed to two digits, without covariance: predictions have no interval beyond that of the rounding"
        ],
        source="arXiv 2503.09443 v1",
        units="C in GMACs (1e9 multiply-accumulates)" if form_name == "compute" else "P in parameters, S in samples",
    )


PUBLISHED = {"paper-v1": PAPER_V1}


def published(name: str, split: str = "UC", form: str = "ps") -> PublishedLaw:
    """A published law, e.g. published("paper-v1", "UC").predict(P=11.2218e9, S=10.24e6)."""
    if name not in PUBLISHED:
        raise UserError(f"published law: found {name!r}; choose one of {', '.join(PUBLISHED)}")
    laws = PUBLISHED[name]
    if form_of(form).name not in laws:
        raise UserError(f"form: {name} has no law of the form {form!r}; choose one of {', '.join(laws)}")
    if split not in laws[form]:
        raise UserError(f"target: {name} has no law for {split!r}; choose one of {', '.join(laws[form])}")
    return _paper_v1(form, split)
