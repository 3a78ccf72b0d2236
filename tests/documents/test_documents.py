"""README and docs: links lead somewhere, commands parse, examples compile, and every message can be found."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from .command_lines import WrongLine, parse_line
from .markdown import DOCUMENTS, NEEDS, REPOSITORY, anchors_of, blocks_of, inline_commands, links_of, without_blocks

sys.path.insert(0, str(REPOSITORY / "release"))
from messages import messages, messages_page, user_errors

GENERATED = {"commands/index.md", "api/index.md", "messages.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"}
UNMARKED = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}  # plain on the page that everybody sees: parsed, not run

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))


@each_document
def test_links_and_anchors_lead_somewhere(path: Path) -> None:
    for link in links_of(path):
        if re.match(r"https?://|mailto:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), f"{path.name}: {link}"
        assert not anchor or anchor in anchors_of(target), f"{path.name}: {link} (has {sorted(anchors_of(target))})"


@each_document
def test_named_pages_are_there(path: Path) -> None:
    for name in re.findall(r"\bdocs/[\w-]+\.md\b", without_blocks(path)):
        assert (REPOSITORY / name).exists(), f"{path.name}: {name}"


@each_document
def test_commands_are_those_of_the_command_line(path: Path) -> None:
    for block in blocks_of(path):
        if block.is_commands:
            for line in block.lines:
                _parses(line, block.name, whole=True)
    for command in inline_commands(path):
        _parses(command, path.name, whole=False)


def _parses(line: str, where: str, *, whole: bool) -> None:
    try:
        parse_line(line, whole=whole)
    except (WrongLine, ValueError) as error:
        pytest.fail(f"{where}: {line}: {error}")


def test_examples_of_every_help_are_those_of_the_command_line() -> None:
    found = []
    for path in sorted((REPOSITORY / "src" / "babelcap" / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                found += [(path.name, line) for line in re.findall(r"^(?:Examples?: )?(babelcap .*)$", text, re.M)]
    assert len(found) > 20
    for name, line in found:
        try:
            parse_line(line, with_files=False)
        except (WrongLine, ValueError) as error:
            pytest.fail(f"{name}: {line}: {error}")


@each_document
def test_commands_say_whether_they_are_run(path: Path) -> None:
    if path.name in UNMARKED:
        return
    for block in blocks_of(path):
        if block.is_commands or block.language == "python":
            kind, _, what = block.marker.partition(": ")
            known = {"run": {"", "slow"}, "needs": NEEDS}
            assert what in known.get(kind, set()), f"{block.name}: put <!-- run --> or <!-- needs: ... --> before it"


@each_document
def test_python_examples_compile_and_import_what_is_there(path: Path) -> None:
    for block in blocks_of(path):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text, block.name)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("babelcap"):
                    module = importlib.import_module(node.module or "")
                    assert all(hasattr(module, alias.name) for alias in node.names), f"{block.name}: {node.module}"


@pytest.mark.parametrize(
    "line",
    [
        "babelcap lawz fit runs.csv",
        "babelcap laws fit runs.csv --from ps",
        "babelcap laws fit",
        "babelcap data",
        "babelcap model info 3.5B --image-size-px large",
        "babelcap train configs/pretrain/0.5B.toml",
        "torchrun --nproc-per-node 8 -m babelcap train x.toml --dry-runs",
        "make studdy",
        "python bench/no_such.py",
    ],
)
def test_a_wrong_line_is_found(line: str) -> None:
    with pytest.raises(WrongLine):
        parse_line(line)


@pytest.mark.parametrize("line", ["babelcap data import coco|flickr ...", "babelcap laws fit X --froms ps"])
def test_a_wrong_mention_is_found(line: str) -> None:
    with pytest.raises(WrongLine):
        parse_line(line, whole=False)


def test_the_navigation_has_every_page() -> None:
    settings = tomllib.loads((REPOSITORY / "zensical.toml").read_text(encoding="utf-8"))
    named = re.findall(r"'([\w/-]+\.md)'", str(settings["project"]["nav"]))
    assert len(named) == len(set(named))
    pages = {path.name for path in (REPOSITORY / "docs").glob("*.md")}
    assert set(named) - GENERATED <= pages
    assert settings["project"]["theme"]["font"] is False


def test_every_message_is_in_the_list() -> None:
    listed, page = messages(), messages_page()
    source = REPOSITORY / "src" / "babelcap"
    assert len(listed) > 0.9 * sum(1 for path in source.rglob("*.py") for _ in user_errors(path))
    raising = {path.relative_to(source).parts[0] for path in source.rglob("*.py") if any(user_errors(path))}
    assert {name.removesuffix(".py") for name in raising} == {message.room for message in listed}
    for room in {message.room for message in listed}:
        assert f"\n## {room}\n" in page
    assert "texts are waiting already" in page  # of a kind of UserError
    assert "{" not in page  # a brace at the end of a cell would be taken for its attributes, and not be shown


def test_troubleshooting_quotes_messages_that_exist_and_has_every_room() -> None:
    text = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    source = "\n".join(
        "".join(part for part in re.split(r"\{[^{}]*\}", message.text) if part) for message in messages()
    ) + (REPOSITORY / "src" / "babelcap" / "errors.py").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| \"(.+?)\" \|", text, re.M)
    assert len(quoted) > 40
    for message in quoted:
        for part in message.split(" ... "):
            assert part in source, f"troubleshooting.md quotes {part!r}, which no message says"
    rooms = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^## .*$", text, re.M))))
    assert {message.room for message in messages()} <= rooms


def test_a_wheel_has_every_configuration_and_record() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = settings["tool"]["setuptools"]["data-files"]
    tracked = subprocess.run(
        ["git", "ls-files", "configs", "results"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("not a clone: what is in the repository is not known")
    folders = {str(Path(name).parent) for name in tracked.stdout.splitlines()}
    assert {f"share/babelcap/{folder}": [f"{folder}/*"] for folder in folders} == shipped


@pytest.mark.parametrize("target", ["study", "data", "photos", "app", "captioner", "figures"])
def test_the_commands_of_make_are_right(target: str) -> None:
    """As make would run them, parsed: the longer ones are not run by any test."""
    made = subprocess.run(
        ["make", "--dry-run", "--assume-old=.venv/.ready", target],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    text = made.stdout.replace("\\\n", " ")
    lines = re.findall(r"\.venv/bin/(babelcap [^;&|{}\n]+)", text)
    assert lines, text
    for line in lines:
        parse_line(line.replace("$size", "l"), with_files=False)
