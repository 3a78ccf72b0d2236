"""README is no rosier than its report, and configurations name pages and files that are there."""

import csv
import re
from pathlib import Path

import pytest

from .markdown import REPOSITORY, blocks_of

CONFIGS = sorted((REPOSITORY / "configs").rglob("*.toml"))
NUMBERS = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]


def test_the_readme_is_no_rosier_than_the_report() -> None:
    """The paper's titular claim and whatever else does not hold comes before what does."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    with (REPOSITORY / "results/small/claims.csv").open(encoding="utf-8", newline="") as file:
        verdicts = {row["claim"]: row["verdict"] for row in csv.DictReader(file)}
    assert text.index("### What does not hold") < text.index("### What it shows")
    first = text.partition("### What does not hold")[2].lstrip().splitlines()[0]
    is_met = next(verdict for claim, verdict in verdicts.items() if "conditional" in claim) == "holds"
    assert is_met or ("titular claim" in first and "does not hold" in first)
    found = re.search(r"lists (\w+) claims with verdicts: (\w+) holds?, (\w+) partly, (\w+) do(?:es)? not", text)
    assert found is not None
    counts = [list(verdicts.values()).count(verdict) for verdict in ("holds", "partly", "does not")]
    assert list(found.groups()) == [NUMBERS[number] for number in (len(verdicts), *counts)]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_what_a_configuration_names_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w/.-])((?:docs|configs|bench|tests|results)/[\w./-]*\w\.(?:md|toml|py|png|jsonl))", text)
    assert [name for name in dict.fromkeys(named) if not (REPOSITORY / name).is_file()] == []
    for page, heading in re.findall(r'(docs/\w+\.md), "([^"]+)"', text):
        assert f"# {heading}\n" in (REPOSITORY / page).read_text(encoding="utf-8"), f"{page} has no '{heading}'"


def test_the_commands_of_a_run_in_small_are_where_its_configuration_says() -> None:
    page = REPOSITORY / "docs/training.md"
    before, _, section = page.read_text(encoding="utf-8").partition("# A run in small\n")
    assert section
    lines = [line for block in blocks_of(page) if block.is_commands for line in block.lines]
    ours = [line.split()[1:3] for line in lines if line.startswith("babelcap ") and line not in before]
    assert ours[:4] == [
        ["world", "base"],
        ["model", "prepare"],
        ["world", "make"],
        ["train", "configs/micro/pretrain.toml"],
    ]
