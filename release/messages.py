"""Every message that a mistake of a user can end a command with, read from the source, for the documents."""

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src" / "babelcap"


class Message(NamedTuple):
    room: str  # a package or module of babelcap
    path: str
    text: str  # what changes from case to case stands in braces


@functools.cache
def error_names() -> frozenset[str]:
    """UserError and what is made of it."""
    bases = {
        name: set(re.findall(r"\w+", above))
        for path in SOURCE.rglob("*.py")
        for name, above in re.findall(r"^class (\w+)\(([^)]*)\):", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    found = {"UserError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return frozenset(found)


@functools.cache
def messages() -> list[Message]:
    """In the order of rooms and files. A message that is handed on from elsewhere has no text of its own."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE)
        for call in user_errors(path):
            text = "".join(_parts(call.args[0])) if call.args else ""
            if text.replace("{...}", "").strip(" :;.(),'"):
                found.append(Message(relative.parts[0].removesuffix(".py"), str(relative), text))
    return found


@functools.cache
def user_errors(path: Path) -> tuple[ast.Call, ...]:
    text, names = path.read_text(encoding="utf-8"), error_names()
    nodes = ast.walk(ast.parse(text)) if any(f"{name}(" in text for name in names) else iter(())
    return tuple(node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") in names)


def _parts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        for value in node.values:
            yield from _parts(value)
    elif isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name | ast.Attribute):
        yield "{" + (node.value.id if isinstance(node.value, ast.Name) else node.value.attr) + "}"
    elif isinstance(node, ast.BinOp):
        yield from _parts(node.left)
        yield from _parts(node.right)
    else:
        yield "{...}"


def messages_page() -> str:
    """Markdown: all messages by room, for the search of the site."""
    rooms: dict[str, list[Message]] = {}
    for message in messages():
        rooms.setdefault(message.room, []).append(message)
    lines = [
        "# Messages",
        "",
        "Every message of a mistake that a user can mend (exit code 2), from the source. What changes with the case",
        "stands in braces. What to do is in the message itself; [Troubleshooting](troubleshooting.md) says more.",
    ]
    for room, found in rooms.items():
        lines += ["", f"## {room}", "", "| message | where |", "|---|---|"]
        for text, path in dict.fromkeys((message.text, message.path) for message in found):
            # Braces at the end of a cell would be taken for attributes of it.
            escaped = text.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").replace("{", "&#123;")
            lines.append(f"| {escaped} | `{path}` |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(messages_page())
