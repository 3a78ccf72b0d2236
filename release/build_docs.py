"""Builds the documentation site: python release/build_docs.py [OUTPUT]; the page is OUTPUT/site/index.html.

What is generated is generated here, at every build: a page for each group of commands (typer's own generator), for each
room's Python names (docstrings), and all messages. Zensical then builds the whole, and any warning of it fails.
"""

import html
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from messages import messages_page

REPOSITORY = Path(__file__).parent.parent
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")  # of the repository's root
# What may be imported from where: the names that the documents speak of.
MODULES = {
    "captioner": ["babelcap.models.inference", "babelcap.models.generation.requests",
                  "babelcap.models.generation.core"],
    "laws": ["babelcap.laws.fit", "babelcap.laws.fitted", "babelcap.laws.law", "babelcap.laws.forms",
             "babelcap.laws.runs", "babelcap.laws.plan", "babelcap.laws.validate", "babelcap.laws.published"],
    "corpus": ["babelcap.data.store.store", "babelcap.data.store.index", "babelcap.data.store.format",
               "babelcap.data.inspect.stats", "babelcap.data.inspect.export"],
    "feed": ["babelcap.data.feed.mixture", "babelcap.data.feed.reader", "babelcap.data.feed.loader",
             "babelcap.data.feed.batches"],
    "coverage": ["babelcap.languages", "babelcap.coverage", "babelcap.records", "babelcap.measures"],
    "models": ["babelcap.models.network.captioner", "babelcap.models.network.configuration",
               "babelcap.models.checkpoints.loading", "babelcap.models.checkpoints.saving",
               "babelcap.models.sizing.info", "babelcap.models.surgery.prepare"],
    "training": ["babelcap.training.config", "babelcap.training.run", "babelcap.training.loop"],
    "evaluation": ["babelcap.evaluation.metrics", "babelcap.evaluation.benchmarks", "babelcap.evaluation.systems",
                   "babelcap.evaluation.loss", "babelcap.evaluation.captions"],
    "study": ["babelcap.study.config", "babelcap.report"],
    "world": ["babelcap.world.scenes", "babelcap.world.render", "babelcap.world.corpus", "babelcap.world.parser"],
}  # fmt: skip


def main() -> None:
    output = Path(sys.argv[1] if len(sys.argv) > 1 else REPOSITORY / "build" / "docs").resolve()
    source = output / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(REPOSITORY / "docs", source)
    for name in PAGES:
        shutil.copy(REPOSITORY / name, source)
    for page in source.glob("*.md"):
        page.write_text(for_the_site(page.read_text(encoding="utf-8")), encoding="utf-8")
    write_api(source / "api")
    write_commands(source / "commands")
    (source / "messages.md").write_text(messages_page(), encoding="utf-8")
    (output / "zensical.toml").write_text(configuration(source), encoding="utf-8")
    program = Path(sys.executable).parent / "zensical"
    subprocess.run([program, "build", "--clean", "--strict", "--config-file", "zensical.toml"], cwd=output, check=True)
    print(output / "site" / "index.html")


def for_the_site(text: str) -> str:
    """Where a document names another by its place in the repository, the site has a link."""
    parts = re.split(r"(^```.*?^```$|`[^`\n]*`|\[[^\]]*\]\([^)]*\))", text, flags=re.M | re.S)
    for number in range(0, len(parts), 2):
        parts[number] = re.sub(r"\bdocs/([\w-]+)\.md\b", r"[\1](\1.md)", parts[number])
    text = "".join(parts)
    return re.sub(r"\]\((?:docs|\.\.)/([\w-]+\.md)", r"](\1", text)


def write_api(folder: Path) -> None:
    folder.mkdir()
    lines = ["# Python", "", "The names that the documents speak of, from their docstrings.", ""]
    for name, modules in MODULES.items():
        listed = "".join(f"::: {module}\n\n" for module in modules)
        (folder / f"{name}.md").write_text(f"# {name.capitalize()}\n\n{listed}", encoding="utf-8")
        lines.append(f"- [{name.capitalize()}]({name}.md): {', '.join(f'`{module}`' for module in modules)}")
    (folder / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_commands(folder: Path) -> None:
    """A page a command of the first level, cut from what typer writes of all."""
    folder.mkdir()
    typer = [Path(sys.executable).parent / "typer", "babelcap.cli", "utils", "docs", "--name", "babelcap"]
    whole = subprocess.run(typer, capture_output=True, text=True, check=True).stdout
    start, *sections = re.split(r"^## `babelcap ([\w-]+)`$", whole, flags=re.M)
    listed = re.sub(r"^\* `([a-z][\w-]*)`", r"* [`babelcap \1`](\1.md)", start, flags=re.M)
    (folder / "index.md").write_text(re.sub(r"^# `babelcap`", "# Commands", listed), encoding="utf-8")
    for name, text in zip(sections[::2], sections[1::2], strict=True):
        raised = re.sub(r"^#(#+) ", r"\1 ", with_examples(text), flags=re.M)
        (folder / f"{name}.md").write_text(f"# `babelcap {name}`\n{raised}", encoding="utf-8")


def with_examples(text: str) -> str:
    """The examples of a command's help, which are lines of their own, as a block."""
    lines = re.sub(r"^Examples?: (?=babelcap )", "", text, flags=re.M)
    return re.sub(r"(?:^ *babelcap .*\n?)+", lambda found: _block(found[0]), lines, flags=re.M)


def _block(commands: str) -> str:
    return f"\n```bash\n{html.unescape(commands).rstrip()}\n```\n\n"


def configuration(source: Path) -> str:
    with (REPOSITORY / "zensical.toml").open("rb") as file:
        settings = tomllib.load(file)
    project = settings["project"]
    python = project["plugins"]["mkdocstrings"]["handlers"]["python"]
    python["paths"] = [str(REPOSITORY / "src")]
    project["nav"] = there(project["nav"], source)
    named = set(re.findall(r"[\w/-]+\.md", str(project["nav"])))
    for entry in project["nav"]:
        for title, pages in entry.items():
            if title == "Reference":
                put(pages, "Commands", sorted(f"commands/{page.name}" for page in (source / "commands").glob("*.md")))
                put(pages, "Python", ["api/index.md", *(f"api/{name}.md" for name in MODULES)])
    more = sorted(page.name for page in source.glob("*.md") if page.name not in named)
    if more:
        project["nav"].append({"More": more})
    return tomli_w.dumps(settings)


def put(pages: list[dict[str, Any]], title: str, names: list[str]) -> None:
    names.sort(key=lambda name: not name.endswith("index.md"))
    titled = [{name.split("/")[1].removesuffix(".md"): name} for name in names[1:]]
    pages[[title in page for page in pages].index(True)] = {title: [names[0], *titled]}


def there(entries: list[Any], source: Path) -> list[Any]:
    kept = []
    for entry in entries:
        ((title, value),) = entry.items()
        if isinstance(value, list):
            kept.append({title: there(value, source)})
        elif (source / value).exists() or value.startswith(("commands/", "api/")) or value == "messages.md":
            kept.append(entry)
    return kept


if __name__ == "__main__":
    main()
