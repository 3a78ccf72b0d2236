"""The site is built without a warning, and its pages load nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .markdown import REPOSITORY

LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio)[^>]*\ssrc=\"?([^\s\">]+)|<link[^>]*\shref=\"?([^\s\">]+)"
)


@pytest.mark.slow
def test_the_site_builds_and_stays_at_home(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="the extra docs is not installed: make docs-build")
    built = [sys.executable, REPOSITORY / "release" / "build_docs.py", tmp_path]
    done = subprocess.run(built, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    for name in ("index", "quickstart", "troubleshooting", "messages", "commands/laws", "api/laws", "SECURITY"):
        assert (site / f"{name}.html").is_file(), name
    assert "laws fit" in (site / "commands" / "laws.html").read_text(encoding="utf-8")
    assert "Fits <code>form</code>" in (site / "api" / "laws.html").read_text(encoding="utf-8")
    for page in site.rglob("*.html"):
        for first, second in LOADED.findall(page.read_text(encoding="utf-8")):
            address = first or second
            assert not re.match(r"(https?:)?//", address), f"{page.name} loads {address}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import )[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name
