"""Damaged files of runs, tables and studies: one clear line or success, never another exception.

Bytes are flipped, cut, doubled and replaced; values of JSON change their type. Seeded, so that a failure comes back.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow
import pyarrow.parquet
import pytest

from babelcap.errors import UserError
from babelcap.laws import compare, fit, read_source
from babelcap.report.build import make_claims, make_tables
from babelcap.report.page import render_page
from babelcap.report.study_folder import read_study
from babelcap.report.study_laws import StudyLaws, fit_study_laws, law_entries
from babelcap.report.tables import Table, captions_table, timing_table
from babelcap.report.verdicts import Claim
from torture.readers.points import damage_bytes, damage_cell, damage_json, make_good, read_and_fit

Attack = Callable[[Path, random.Random], None]
Watch = Callable[[Callable[[], object], object], str]


class Known(NamedTuple):
    """What is said of the good runs."""

    laws: StudyLaws
    claims: list[Claim]
    tables: dict[str, Table]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_good(tmp_path_factory.mktemp("good"))


def read_and_render(folder: Path, known: Known | None = None) -> None:
    """The page without its figures, whose seconds would allow few cases; `known` where the runs are not damaged."""
    study = read_study(folder)
    if known is None:
        laws = fit_study_laws(study)
        law_entries(laws)
        claims = make_claims(study, laws)
        known = Known(laws, claims, make_tables(study, claims, laws))
    tables = known.tables | {table.name: table for table in (timing_table(study), captions_table(study))}
    page = render_page(study, known.claims, known.laws, [], {}, tables)
    (page + "".join(table.to_csv() for table in tables.values())).encode("utf-8")


POINT_FILES: list[tuple[str, Attack]] = [
    ("runs.jsonl", damage_bytes), ("runs.jsonl", damage_json), ("points.csv", damage_bytes),
    ("points.csv", damage_cell), ("points.parquet", damage_bytes),
]  # fmt: skip
STUDY_FILES = ("study.json", "gallery.json", "timing.json", "laws.json")


def attack_points(good: Path, folder: Path, name: str, attack: Attack, numbers: range, watch: Watch) -> int:
    num_good = 0
    for number in numbers:
        rng = random.Random(f"{name} {attack.__name__} {number}")
        path = folder / name
        shutil.copy(good / name, path)
        for _ in range(rng.choice((1, 1, 1, 3))):
            attack(path, rng)
        num_good += not watch(lambda path=path, rng=rng: read_and_fit(path, rng), f"{name} {attack.__name__} {number}")  # type: ignore[misc]
    return num_good


def attack_study(
    good: Path, folder: Path, name: str, attack: Attack, known: Known, numbers: range, watch: Watch
) -> int:
    for other in (*STUDY_FILES, "runs.jsonl"):
        shutil.copy(good / other, folder / other)
    num_good = 0
    for number in numbers:
        rng = random.Random(f"study {name} {attack.__name__} {number}")
        shutil.copy(good / name, folder / name)
        attack(folder / name, rng)
        given = None if name == "runs.jsonl" else known
        num_good += not watch(lambda given=given: read_and_render(folder, given), f"{name} {attack.__name__} {number}")  # type: ignore[misc]
    return num_good


@pytest.fixture(scope="module")
def known(good: Path) -> Known:
    study = read_study(good)
    laws = fit_study_laws(study)
    claims = make_claims(study, laws)
    return Known(laws, claims, make_tables(study, claims, laws))


def test_the_good_files_are_good(good: Path, known: Known, watch: Watch) -> None:
    for name in ("runs.jsonl", "points.csv", "points.parquet"):
        for number in range(4):
            assert not watch(lambda name=name, n=number: read_and_fit(good / name, random.Random(n)), name)  # type: ignore[misc]
    assert not watch(lambda: read_and_render(good, known), "study")


@pytest.mark.parametrize("number", [40, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "attack"), POINT_FILES)
def test_damaged_points(good: Path, tmp_path: Path, name: str, attack: Attack, number: int, watch: Watch) -> None:
    num_good = attack_points(good, tmp_path, name, attack, range(number), watch)
    assert num_good < number  # damage is found


@pytest.mark.parametrize("number", [15, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("attack", [damage_bytes, damage_json])
@pytest.mark.parametrize("name", STUDY_FILES)
def test_damaged_study_files(
    good: Path, tmp_path: Path, known: Known, name: str, attack: Attack, number: int, watch: Watch
) -> None:
    number = 2 if name == "laws.json" else number  # laws.json is not read
    attack_study(good, tmp_path, name, attack, known, range(number), watch)


@pytest.mark.parametrize("number", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_damaged_runs_of_a_study(good: Path, tmp_path: Path, known: Known, number: int, watch: Watch) -> None:
    attack_study(good, tmp_path, "runs.jsonl", damage_json, known, range(number), watch)


def test_points_that_no_law_can_be_made_of(watch: Watch) -> None:
    """Columns so far apart that whole terms vanish: said, where it once was a singular matrix."""
    for scale in (1e-300, 1e150):
        columns = {"P": [scale * 2.0**i for i in range(8)], "S": [1e3 * 3.0 ** (i * i % 7) for i in range(8)]}
        for form in ("chinchilla", "ps+eps", "ps"):
            watch(lambda c=columns, f=form: fit(f, c, [2.0 + 1 / (i + 1) for i in range(8)]), f"{form} {scale}")  # type: ignore[misc]
    watch(lambda: compare(["ps", "chinchilla"], {"P": [1e308] * 7, "S": range(1, 8)}, [1.0] * 7), "compare")


def test_a_parquet_of_many_rows_in_few_bytes_is_refused(tmp_path: Path, watch: Watch) -> None:
    """A column of one value takes no bytes: a file of a megabyte took gigabytes and minutes."""
    rows = pyarrow.table({"loss": pyarrow.nulls(11_000_000, pyarrow.float32())})
    pyarrow.parquet.write_table(rows, tmp_path / "points.parquet")
    assert (tmp_path / "points.parquet").stat().st_size < 2**16
    assert "has 11,000,000 rows" in watch(lambda: read_source(tmp_path / "points.parquet"), "many rows")


def test_deep_and_long_json_is_one_line(good: Path, tmp_path: Path) -> None:
    for name in (*STUDY_FILES[:3], "runs.jsonl"):
        for text in ("[" * 100_000, '{"a":' * 100_000, '{"config":' + "9" * 5000 + "}", '{"hash": "\\ud800"}'):
            folder = tmp_path / name / str(abs(hash(text[:9])))
            shutil.copytree(good, folder)
            (folder / name).write_text(text)
            with pytest.raises(UserError):
                read_study(folder)
