"""What a release is made with: an audit that could not look up everything never passes."""

import json
import sys
from typing import Any

import pytest

from babelcap.version import VERSION

from .markdown import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "release"))
from audit import verdict

PINS = ["jinja2==3.1.6", "numpy==2.4.6"]
WELL = {"name": "numpy", "version": "2.4.6", "vulns": []}


def answer(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def test_all_pins_looked_up_and_well() -> None:
    assert verdict(answer(WELL, WELL | {"name": "jinja2"}), PINS) == (0, ["2 pins looked up, 0 known faults"])


def test_a_known_fault_fails() -> None:
    fault = {"name": "jinja2", "version": "3.1.6", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.7"]}]}
    code, lines = verdict(answer(WELL, fault), PINS)
    assert code == 1
    assert lines[0] == "jinja2 3.1.6: PYSEC-1, mended in ['3.1.7']"


@pytest.mark.parametrize("text", ["", "no known vulnerabilities found", "[]", "null", answer(), answer(WELL)])
def test_what_was_not_looked_up_fails_loudly(text: str) -> None:
    code, lines = verdict(text, PINS)
    assert code == 2
    assert "NOT AUDITED" in lines[-1]


def test_a_skipped_pin_fails_with_its_reason() -> None:
    code, lines = verdict(answer(WELL, {"name": "jinja2", "skip_reason": "service cannot be reached"}), PINS)
    assert code == 2
    assert lines == ["jinja2: service cannot be reached", "NOT AUDITED: 1 of 2 pins were not looked up"]


def test_the_citation_and_the_changelog_are_of_this_version() -> None:
    assert f"\nversion: {VERSION}\n" in (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = [line for line in changes.splitlines() if line.startswith("## ")]
    assert headings[0].split()[1] == VERSION
