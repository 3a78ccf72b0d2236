"""babelcap language: the table of languages, and a new row for it, checked and written into a configuration."""

import json
import re
from pathlib import Path
from typing import Any

import typer

from babelcap.errors import UserError

group = typer.Typer(
    no_args_is_help=True,
    help="The languages, and how to add one.\n\n"
    'Example: babelcap language add it --name Italian --prefix "L\'immagine mostra" --nllb ita_Latn',
)
STRING = r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\''


@group.command("list")
def list_languages(
    config: Path | None = typer.Option(None, help="A configuration whose languages to list, in place of the table."),
    as_json: bool = typer.Option(False, "--json", help="Print the rows as JSON."),
) -> None:
    """Print the languages: code, name, NLLB's code, script and decoder prefix.

    Example: babelcap language list --config run.toml
    """
    from babelcap.config import build_config, read_values
    from babelcap.coverage import Coverage

    values = {} if config is None else read_values(config).get("coverage", {})
    if not isinstance(values, dict):
        raise UserError(f"{config}: coverage: expected a table of settings, found {type(values).__name__}")
    rows = [language.model_dump() for language in build_config(Coverage, values, str(config)).languages]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
    for row in [] if as_json else rows:
        typer.echo(f"{row['code']:<4} {row['name']:<20} {row['nllb']:<10} {row['script']:<6} {row['prefix']}")


@group.command()
def add(
    code: str = typer.Argument(help="ISO 639-1, such as it.", show_default=False),
    name: str = typer.Option(..., help="In English, as prompts call it.", show_default=False),
    prefix: str = typer.Option(..., help='What captions begin with, like "The image shows".', show_default=False),
    nllb: str = typer.Option(..., help="NLLB's code, such as ita_Latn.", show_default=False),
    script: str = typer.Option("Latn", help="ISO 15924; Hans, Jpan, Thai, ... are written without spaces."),
    tokenizer: Path | None = typer.Option(None, help="Folder of a decoder's tokenizer, or of a captioner, to check."),
    output: Path | None = typer.Option(
        None, "-o", "--output", help="Configuration to write it into (made where there is none); else it is printed."
    ),
) -> None:
    """Make the row of a new language, check its prefix, and write it into the coverage of a configuration.

    Example: babelcap language add it --name Italian --prefix "L'immagine mostra" --nllb ita_Latn -o run.toml
    """
    from babelcap.config import build_config
    from babelcap.languages import Language

    values = {"code": code, "name": name, "nllb": nllb, "prefix": prefix, "script": script}
    language = build_config(Language, values, "language")
    for warning in _checked(language, tokenizer):
        typer.echo(f"warning: {warning}", err=True)
    if output is None:
        typer.echo(toml_value(values))
        return
    write_language(output, values)
    typer.echo(
        f"{output}: {code} is the last of coverage.languages; to train on it, add translation-{code} to coverage.seen"
    )


def _checked(language: Any, folder: Path | None) -> tuple[str, ...]:
    from babelcap.data.feed.prefix import check_prefix, prefix_warnings

    if folder is None:
        return prefix_warnings(language)
    from babelcap.models.checkpoints.processor import DECODER_TOKENIZER
    from babelcap.models.checkpoints.sources import load_tokenizer

    place = folder / DECODER_TOKENIZER if (folder / DECODER_TOKENIZER).is_dir() else folder
    if not place.is_dir():
        raise UserError(f"--tokenizer: {place}: no such folder")
    found = check_prefix(language, load_tokenizer(place, "decoder's"))
    if found.faults:
        raise UserError(f"--prefix '{language.prefix}' cannot be used: {'; '.join(found.faults)}")
    typer.echo(f"prefix '{language.prefix}': {found.num_tokens} tokens", err=True)
    return found.warnings


def write_language(path: Path, row: dict[str, str]) -> None:
    """Adds a row to a configuration, TOML or JSON; the rest of a TOML file stays as it is, comments too."""
    from babelcap.config import build_config, read_values
    from babelcap.coverage import Coverage
    from babelcap.languages import LANGUAGES
    from babelcap.storage import read_text, write_json, write_text

    values = read_values(path) if path.exists() else {}
    coverage = values.get("coverage", {})
    if not isinstance(coverage, dict) or not isinstance(coverage.get("languages", []), list):
        raise UserError(f"{path}: coverage: expected a table with a list of languages")
    known = coverage.get("languages", [language.code for language in LANGUAGES])
    if row["code"] in [item.get("code") if isinstance(item, dict) else item for item in known]:
        raise UserError(f"{path}: coverage.languages has '{row['code']}' already; change it there")
    wanted = values | {"coverage": coverage | {"languages": [*known, row]}}
    build_config(Coverage, wanted["coverage"], f"{path}: coverage")
    if path.suffix == ".json":
        write_json(path, wanted)
        return
    text = with_languages(read_text(path) if path.exists() else "", wanted["coverage"]["languages"])
    if _parsed(text) != wanted:
        line = f"languages = {toml_value([*known, row])}"
        raise UserError(f"{path} is written in a way that cannot be changed here; put this into its [coverage]: {line}")
    write_text(path, text)


def with_languages(text: str, languages: list[Any]) -> str:
    """A TOML text with these languages in its [coverage]; the caller checks what came of it."""
    block = "languages = [\n" + "".join(f"    {toml_value(item)},\n" for item in languages) + "]"
    header = re.search(r"^\[coverage\][^\n]*\n?", text, re.MULTILINE)
    if header is None:
        return f"{text.rstrip()}\n\n[coverage]\n{block}\n".lstrip()
    following = re.compile(r"^\[", re.MULTILINE).search(text, header.end())
    end = following.start() if following is not None else len(text)
    old = re.compile(r"^languages\s*=\s*(?=\[)", re.MULTILINE).search(text, header.end(), end)
    if old is None:
        start = text[: header.end()].rstrip("\n")
        return f"{start}\n{block}\n{text[header.end() :]}"
    return text[: old.start()] + block + text[_end_of_array(text, old.end()) :]


def _end_of_array(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(rf"{STRING}|#[^\n]*|[\[\]]").finditer(text, start):
        depth += {"[": 1, "]": -1}.get(match.group(), 0)
        if depth == 0 and match.group() == "]":
            return match.end()
    return len(text)


def _parsed(text: str) -> dict[str, Any] | None:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def toml_value(value: Any) -> str:
    """Text, lists and tables as TOML in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False)
