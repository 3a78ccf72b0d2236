"""`babelcap caption` and `babelcap translate`: a captioner in use."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from babelcap.models import CaptionPipeline

MODEL = typer.Option(None, "--model", "-m", envvar="BABELCAP_MODEL", help="Folder or hub id of a captioner.")
LANGUAGE = typer.Option(..., "--language", "-l", help="Target languages, such as es or es,fr,zh.", show_default=False)
BEAMS = typer.Option(4, min=1, help="Beams of the search.")
NEW_TOKENS = typer.Option(128, min=1, help="At most so many tokens a text.")
BATCH_SIZE = typer.Option(16, min=1, help="Texts generated at once.")
IMAGE_SIZE = typer.Option(None, min=32, help="Side of the square images in pixels; by default the model's own.")
SHORTLIST = typer.Option(False, help="Use each language's shortlist of tokens, which is faster.")
JSON = typer.Option(False, "--json", help="Print one JSON object a line.")


def caption(
    images: list[Path] = typer.Argument(help="Image files.", show_default=False),
    model: str = MODEL,
    language: str = LANGUAGE,
    style: str = typer.Option("short", help="short, detailed or more_detailed."),
    prefix: str = typer.Option(
        "auto",
        help="auto: the language's prefix where the model never learnt to caption in it; always; none; or a text.",
    ),
    num_beams: int = BEAMS,
    max_new_tokens: int = NEW_TOKENS,
    batch_size: int = BATCH_SIZE,
    image_size_px: int = IMAGE_SIZE,
    shortlist: bool = SHORTLIST,
    json_output: bool = JSON,
) -> None:
    """Caption images, in several languages at once.

    \b
    babelcap caption dog.jpg cat.jpg --model models/0.4B --language es
    babelcap caption *.jpg --model models/0.4B --language es,fr,zh --json
    """
    _check_files(images)
    pipeline, codes = _load(model, image_size_px), _codes(language)
    results = pipeline.caption(
        images,
        codes,
        style=style,
        prefix=prefix,
        num_beams=num_beams,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        allowed_tokens="language" if shortlist else None,
    )
    rows = [
        {"image": str(image), "language": code, "caption": results[code][number]}
        for number, image in enumerate(images)
        for code in codes
    ]
    _print_rows(rows, "caption", json_output)


def translate(
    images: list[Path] = typer.Argument(
        None, help="One image, or one for each text; none is allowed.", show_default=False
    ),
    text: list[str] = typer.Option(
        ..., "--text", "-t", help="A text to translate; may be repeated.", show_default=False
    ),
    model: str = MODEL,
    language: str = LANGUAGE,
    num_beams: int = BEAMS,
    max_new_tokens: int = NEW_TOKENS,
    batch_size: int = BATCH_SIZE,
    image_size_px: int = IMAGE_SIZE,
    shortlist: bool = SHORTLIST,
    json_output: bool = JSON,
) -> None:
    """Translate English texts; the image beside a text tells which meaning is meant.

    \b
    babelcap translate bat.jpg --text "A bat on the grass." --model models/0.4B --language de
    """
    _check_files(images or [])
    pipeline, codes = _load(model, image_size_px), _codes(language)
    results = pipeline.translate(
        list(images) if images else None,
        text,
        codes,
        num_beams=num_beams,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        allowed_tokens="language" if shortlist else None,
    )
    pictures = [None] * len(text) if not images else list(images) * (len(text) if len(images) == 1 else 1)
    rows = [
        {"image": image and str(image), "text": source, "language": code, "translation": results[code][number]}
        for number, (image, source) in enumerate(zip(pictures, text, strict=True))
        for code in codes
    ]
    _print_rows(rows, "translation", json_output)


def _load(model: str | None, image_size_px: int | None) -> "CaptionPipeline":
    from babelcap.errors import UserError
    from babelcap.models import load

    if not model:
        raise UserError("no model given; name its folder or hub id with --model, or in BABELCAP_MODEL")
    return load(model, image_size_px=image_size_px)


def _codes(language: str) -> list[str]:
    return list(dict.fromkeys(code.strip() for code in language.split(",") if code.strip()))


def _check_files(images: list[Path]) -> None:
    """Before a model is loaded for nothing."""
    from babelcap.errors import UserError

    for image in images:
        if not image.is_file():
            raise UserError(f"{image}: no such image file")


def _print_rows(rows: list[dict[str, Any]], result: str, json_output: bool) -> None:
    import json

    for row in rows:
        if json_output:
            typer.echo(json.dumps(row, ensure_ascii=False))
        else:
            typer.echo(row[result] if len(rows) == 1 else "\t".join(str(value) for value in row.values() if value))
