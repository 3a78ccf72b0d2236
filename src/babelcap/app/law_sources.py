"""Laws to play with: the published ones, those of a study's runs, and those of a table that a user brings."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from babelcap.errors import UserError
from babelcap.laws import PUBLISHED, Choice, Fit, Law, fit, form_of, parse_map, published, read_source
from babelcap.measures import TARGETS, Reading, loss_measure
from babelcap.report.study_folder import RUNS

PAPER = "paper-v1"
OWN = "own"
STUDY = "study"
NUM_BOOTSTRAP = 300
MAX_TABLE_BYTES = 5 * 2**20
FORMS = ("pst", "ps", "chinchilla", "ps+eps", "pst+eps")
RANGES = {"P": (1e6, 1e11), "S": (1e3, 1e9), "T": (1.0, 12.0)}  # of sliders where a law has no points to say it


@dataclass(frozen=True)
class Laws:
    """The laws of one source and form, by test split or by the name of a table's loss."""

    laws: dict[str, Law]
    taken: str  # which runs they rest on
    refused: dict[str, str]  # those that could not be fitted, and why

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for law in self.laws.values() for name in law.form.columns))

    def range_of(self, column: str) -> tuple[float, float]:
        ranges = [law.ranges[column] for law in self.laws.values() if column in law.ranges]
        if not ranges:
            return RANGES.get(column, (1.0, 10.0))
        return min(low for low, _ in ranges), max(high for _, high in ranges)


def find_laws(source: str, form: str, reading: Reading, path: Path | None, names: str) -> Laws:
    """`path` is a study's folder or a table's file; `names` are a table's own names of its columns."""
    if source == PAPER:
        forms = PUBLISHED[PAPER]
        used = form if form in forms else "ps"
        return Laws({target: published(PAPER, target, used) for target in forms[used]}, "as printed", {})
    if path is None:
        what = "table of runs" if source == OWN else "study"
        raise UserError(f"there is no {what} yet; bring one, or look at the paper's laws")
    file = path / RUNS if source == STUDY else path
    if not file.is_file():
        raise UserError(f"{path.name} has no finished runs yet; a study writes them when it ends")
    size, modified = file.stat().st_size, file.stat().st_mtime_ns
    if source == OWN and size > MAX_TABLE_BYTES:
        raise UserError(f"the table has more than {MAX_TABLE_BYTES >> 20} MiB; give one line a run")
    return _fitted(str(file), modified, form, reading, names)


@lru_cache(maxsize=32)
def _fitted(file: str, modified: int, form: str, reading: Reading, names: str) -> Laws:
    source = read_source(file, parse_map(names))
    with_T = "T" in form_of(form).columns
    laws: dict[str, Law] = {}
    refused: dict[str, str] = {}
    taken = ""
    for target in source.targets(None, every=True):
        try:
            table = source.table(target, Choice(loss_measure(reading)), with_T=with_T)
            laws[target] = _fit(form, table)
            taken = table.taken
        except UserError as error:
            refused[target] = str(error).replace(f"{file}: ", "").replace(file, Path(file).name)
    if not laws:
        raise UserError(next(iter(refused.values()), "no law can be fitted to this"))
    return Laws(laws, taken, refused)


def _fit(form: str, table: object) -> Fit:
    columns, y, groups, name = (getattr(table, field) for field in ("columns", "y", "groups", "name"))
    return fit(form, columns, y, groups=groups, target=name, num_bootstrap=NUM_BOOTSTRAP)


def ordered_targets(laws: Laws) -> list[str]:
    return sorted(laws.laws, key=lambda name: (TARGETS.index(name) if name in TARGETS else len(TARGETS), name))
