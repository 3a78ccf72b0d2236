"""The rules of the house: data flows one way, and what must be light to import is light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "babelcap"
# A room imports only from rooms before it, and from itself.
ROOMS = [
    ["version", "errors"],
    ["storage"],
    ["languages"],
    ["identification"],
    ["coverage"],
    ["config", "measures", "pages"],
    ["records"],
    ["jobs"],
    ["laws"],
    ["data"],
    ["world"],
    ["native"],
    ["models"],
    ["bases"],
    ["generate"],
    ["training"],
    ["evaluation"],
    ["report"],
    ["study"],
    ["cli", "app", "__init__", "__main__"],
]
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute in this house"
            names = [node.module]
            if node.module == "babelcap":
                names = [f"babelcap.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("babelcap.")}
    return rooms


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_from_rooms_above(path: Path) -> None:
    room = room_of(path)
    assert room in RANK, f"{room} has no place in the list of rooms"
    for other in imported_rooms(path) - {room}:
        assert RANK[other] < RANK[room] or room in ROOMS[-1], f"{room} imports {other}, which stands below it"


@pytest.mark.parametrize(
    "module",
    [
        "babelcap",
        "babelcap.cli",
        "babelcap.config",
        "babelcap.records",
        "babelcap.laws",
        "babelcap.evaluation.metrics",
        "babelcap.evaluation.benchmarks",
        "babelcap.evaluation.systems",
        "babelcap.report.figures",
    ],
)
def test_imports_without_torch(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'torch', 'transformers'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_room_is_a_drawer() -> None:
    drawers = {"utils", "helpers", "common", "misc"}
    assert not [path for path in MODULES if drawers & set(path.relative_to(SOURCE).with_suffix("").parts)]
