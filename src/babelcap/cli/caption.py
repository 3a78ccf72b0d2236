"""`babelcap caption` and `babelcap translate`: a captioner in use. Results come as they are ready, in order."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from babelcap.cli.result_lines import ResultLines
    from babelcap.models import CaptionPipeline, GenerationRequest

MODEL = typer.Option(None, "--model", "-m", envvar="BABELCAP_MODEL", help="Folder or hub id of a captioner.")
LANGUAGE = typer.Option(..., "--language", "-l", help="Target languages, such as es or es,fr,zh.", show_default=False)
PREFIX_TEXT = typer.Option(None, "--prefix-text", help="A text of your own for the model to continue.")
BEAMS = typer.Option(None, "--num-beams", min=1, help="Beams of the search; by default 4, or 1 with sampling.")
NEW_TOKENS = typer.Option(128, min=1, help="At most so many tokens a text.")
NUM_TEXTS = typer.Option(1, "--num-return-sequences", min=1, help="So many of the best texts, with their scores.")
TEMPERATURE = typer.Option(None, min=1e-6, help="Draw tokens, the more freely the higher it is.")
TOP_P = typer.Option(None, min=1e-6, max=1.0, help="Draw from the likeliest tokens that have this share together.")
SEED = typer.Option(0, min=0, help="Of the draws.")
BATCH_SIZE = typer.Option(16, min=1, help="Texts generated at once.")
IMAGE_SIZE = typer.Option(None, min=32, help="Side of the square images in pixels; by default the model's own.")
SHORTLIST = typer.Option(False, help="Use each language's shortlist of tokens, which is faster.")
DEVICE = typer.Option(None, help="cpu, cuda, cuda:1, ...; by default a graphics card where there is one.")
DTYPE = typer.Option(None, help="float32, bfloat16 or float16; by default as the weights are stored.")
ENCODER_TOKENIZER = typer.Option(None, help="Folder or hub id, where it does not lie beside the model.")
DECODER_TOKENIZER = typer.Option(None, help="Folder or hub id, where it does not lie beside the model.")
OUTPUT = typer.Option(None, "--output", "-o", help="File of JSON lines; what is in it already is not computed again.")
JSON = typer.Option(False, "--json", help="Print one JSON object a line.")


def caption(
    images: list[str] = typer.Argument(
        help="Image files, folders, patterns, http addresses, or - for standard input.", show_default=False
    ),
    model: str = MODEL,
    language: str = LANGUAGE,
    style: str = typer.Option("short", help="short, detailed or more_detailed."),
    prefix: str = typer.Option(
        "auto", help="auto: the language's prefix where the model never learnt to caption in it; always; none."
    ),
    prefix_text: str = PREFIX_TEXT,
    num_beams: int = BEAMS,
    max_new_tokens: int = NEW_TOKENS,
    num_return_sequences: int = NUM_TEXTS,
    temperature: float = TEMPERATURE,
    top_p: float = TOP_P,
    seed: int = SEED,
    batch_size: int = BATCH_SIZE,
    image_size_px: int = IMAGE_SIZE,
    shortlist: bool = SHORTLIST,
    device: str = DEVICE,
    dtype: str = DTYPE,
    encoder_tokenizer: str = ENCODER_TOKENIZER,
    decoder_tokenizer: str = DECODER_TOKENIZER,
    output: Path = OUTPUT,
    json_output: bool = JSON,
) -> None:
    """Caption images, in several languages at once.

    \b
    babelcap caption dog.jpg cat.jpg --model models/0.4B --language es
    babelcap caption photos/ --model models/0.4B --language es,fr,zh --output captions.jsonl

    An image that cannot be used is reported and left out; the exit code is then 1.
    """
    options = dict(locals())
    from dataclasses import replace

    from babelcap.data.feed.image_sources import STANDARD_INPUT, expand_sources
    from babelcap.models.generation.requests import check_prefix_mode
    from babelcap.models.inference import languages_of, request_template

    names, codes = list(dict.fromkeys(expand_sources(images))), list(languages_of(_codes(language)))
    template = request_template(**_request_options(options), style=style, prefix=check_prefix_mode(prefix))
    with _results(options, "caption", len(names) * len(codes)) as results:
        requests = (
            replace(
                template,
                image=sys.stdin.buffer if name == STANDARD_INPUT else name,
                language=code,
                key=name,
            )
            for name in names
            for code in codes
            if not results.has({"image": name, "language": code})
        )
        _run(requests, results, options, lambda request: {"image": request.key, "language": request.language})


def translate(
    images: list[str] = typer.Argument(
        None, help="One image, or one for each text; none is allowed.", show_default=False
    ),
    text: list[str] = typer.Option(
        ..., "--text", "-t", help="A text to translate; may be repeated.", show_default=False
    ),
    model: str = MODEL,
    language: str = LANGUAGE,
    prefix_text: str = PREFIX_TEXT,
    num_beams: int = BEAMS,
    max_new_tokens: int = NEW_TOKENS,
    num_return_sequences: int = NUM_TEXTS,
    temperature: float = TEMPERATURE,
    top_p: float = TOP_P,
    seed: int = SEED,
    batch_size: int = BATCH_SIZE,
    image_size_px: int = IMAGE_SIZE,
    shortlist: bool = SHORTLIST,
    device: str = DEVICE,
    dtype: str = DTYPE,
    encoder_tokenizer: str = ENCODER_TOKENIZER,
    decoder_tokenizer: str = DECODER_TOKENIZER,
    output: Path = OUTPUT,
    json_output: bool = JSON,
) -> None:
    """Translate English texts; the image beside a text tells which meaning is meant.

    \b
    babelcap translate bat.jpg --text "A bat on the grass." --model models/0.4B --language de
    """
    options = dict(locals())
    from babelcap.models.inference import translation_requests

    requests = translation_requests(images or None, text, _codes(language), **_request_options(options))

    def identity(request: "GenerationRequest") -> dict[str, Any]:
        return {"image": request.image, "text": request.source, "language": request.language}

    with _results(options, "translation", len(requests)) as results:
        wanted = (request for request in requests if not results.has(identity(request)))
        _run(wanted, results, options, identity)


def _request_options(options: dict[str, Any]) -> Any:
    names = ("prefix_text", "num_beams", "max_new_tokens", "num_return_sequences", "temperature", "top_p", "seed")
    found = {name: options[name] for name in names}
    return found | {"allowed_tokens": "language" if options["shortlist"] else None}


def _results(options: dict[str, Any], what: str, total: int) -> "ResultLines":
    """Where results go. Lines of other settings are not mixed with ours."""
    from babelcap.cli.result_lines import ResultLines
    from babelcap.errors import UserError

    if not options["model"]:
        raise UserError("no model given; name its folder or hub id with --model, or in BABELCAP_MODEL")
    without = {"images", "text", "language", "batch_size", "device", "output", "json_output"}
    settings = {name: value for name, value in options.items() if name not in without}
    return ResultLines(what, options["output"], settings, json_output=options["json_output"], total=total)


def _run(
    requests: Iterator["GenerationRequest"],
    results: "ResultLines",
    options: dict[str, Any],
    identity: Callable[["GenerationRequest"], dict[str, Any]],
) -> None:
    from contextlib import nullcontext
    from itertools import chain

    from babelcap.errors import UserError
    from babelcap.jobs.progress import progress

    first = next(requests, None)
    if first is None:
        return  # all is there already: no model is loaded for nothing
    pipeline = _load(options)
    bad: dict[str, None] = {}

    def report(request: "GenerationRequest", error: UserError) -> None:
        if request.key not in bad:
            typer.echo(f"babelcap: {error}; left out", err=True)
        bad[request.key] = None

    shows_itself = sys.stdout.isatty() and options["output"] is None  # then the results are the progress
    bar = nullcontext(lambda number: None) if shows_itself else progress("Generating", results.total)
    with bar as advance:
        for result in pipeline.generate(
            chain([first], requests), batch_size=options["batch_size"], on_bad_image=report
        ):
            results.add(identity(result.request), result)
            advance(1)
    for line in results.remarks(pipeline.coverage.languages):
        typer.echo(f"babelcap: {line}", err=True)
    if bad:
        typer.echo(f"babelcap: {len(bad)} image{'s' if len(bad) > 1 else ''} could not be used", err=True)
        raise typer.Exit(1)


def _load(options: dict[str, Any]) -> "CaptionPipeline":
    from babelcap.models import load

    names = ("device", "dtype", "image_size_px", "encoder_tokenizer", "decoder_tokenizer")
    return load(options["model"], **{name: options[name] for name in names})


def _codes(language: str) -> list[str]:
    return [code.strip() for code in language.split(",") if code.strip()]
