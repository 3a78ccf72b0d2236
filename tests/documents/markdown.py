"""What the documents show: fenced blocks with their markers, commands within lines, links and headings.

A marker is a comment on the line before a fence. `<!-- run -->`: a test executes it; `<!-- run: slow -->`: a slow test
does; `<!-- needs: weights -->` (data, cluster, network, time, tools): it is not executed, but parsed.
"""

import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
DOCUMENTS = sorted(
    [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")], key=lambda path: path.relative_to(REPOSITORY)
)
FENCE = re.compile(r"^(?:<!-- (?P<marker>[^\n]*?) -->\n)?```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.M | re.S)
PROGRAMS = ("babelcap", "make", "torchrun", "python", "pip", "uv")
NEEDS = {"weights", "data", "cluster", "network", "time", "tools"}
LINK = re.compile(r"(?<!!)\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    path: Path
    line: int
    language: str
    marker: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.path.relative_to(REPOSITORY)}:{self.line}"

    @property
    def is_commands(self) -> bool:
        shown = [line.strip().removeprefix("$ ") for line in self.text.splitlines()]
        return self.language in ("", "bash", "console") and any(line.startswith(PROGRAMS) for line in shown)

    @property
    def lines(self) -> list[str]:
        """Its commands: without comments, continued lines joined, `a && b` as two."""
        text = self.text.replace("\\\n", " ")
        if self.language == "console":
            text = "\n".join(line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ "))
        commands = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
        return [part.strip() for line in commands for part in line.split("&&") if part.strip()]


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(path, text.count("\n", 0, found.start("text")), found["language"], found["marker"] or "", found["text"])
        for found in FENCE.finditer(text)
    ]


def without_blocks(path: Path) -> str:
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def inline_commands(path: Path) -> list[str]:
    """`babelcap ...` and `make ...` between backticks, in one line; the bars of tables without their backslash."""
    found = re.findall(r"`((?:babelcap|make) [^`]+)`", without_blocks(path))
    return [" ".join(command.replace("\\|", "|").split()) for command in found]


def links_of(path: Path) -> list[str]:
    return [first or second for first, second in LINK.findall(without_blocks(path))]


def anchors_of(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ +(.+?) *$", without_blocks(path), re.M)
    plain = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}
