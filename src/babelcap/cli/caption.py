"""`babelcap caption` and `babelcap translate`: a captioner in use. Results come as they are ready, in order."""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from babelcap.cli.shared_options import with_options
from babelcap.cli.starting import starting

if TYPE_CHECKING:
    from babelcap.cli.result_lines import ResultLines
    from babelcap.models import CaptionPipeline, GenerationRequest


@dataclass(frozen=True)
class Generation:
    """Which model, what it generates and where that goes: the options of both commands."""

    model: str = typer.Option(
        None,
        "--model",
        "-m",
        envvar="BABELCAP_MODEL",
        help="Folder or hub id of a captioner, or micro, which comes with babelcap and knows drawn scenes.",
    )
    language: str = typer.Option(
        ..., "--language", "-l", help="Target languages, such as es or es,fr,zh.", show_default=False
    )
    prefix_text: str = typer.Option(None, "--prefix-text", help="A text of your own for the model to continue.")
    num_beams: int = typer.Option(
        None, "--num-beams", min=1, help="Beams of the search; by default 4, or 1 with sampling."
    )
    max_new_tokens: int = typer.Option(128, min=1, help="At most so many tokens a text.")
    num_return_sequences: int = typer.Option(
        1, "--num-return-sequences", min=1, help="So many of the best texts, with their scores."
    )
    temperature: float = typer.Option(None, min=1e-6, help="Draw tokens, the more freely the higher it is.")
    top_p: float = typer.Option(
        None, min=1e-6, max=1.0, help="Draw from the likeliest tokens that have this share together."
    )
    seed: int = typer.Option(0, min=0, help="Of the draws.")
    guidance_scale: float = typer.Option(
        None,
        min=0.01,
        help="Above 1, what the picture adds weighs more; by default, for captions, the model's own.",
    )
    batch_size: int = typer.Option(
        None, min=1, help="Texts generated at once; by default 16, or 64 of a small model on a processor."
    )
    processes: int = typer.Option(
        None, min=1, help="Processes that share many texts; by default one a thread of a small model, else this one."
    )
    image_size_px: int = typer.Option(
        None, min=32, help="Side of the square images in pixels; by default the model's own."
    )
    shortlist: bool = typer.Option(False, help="Use each language's shortlist of tokens, which is faster.")
    device: str = typer.Option(None, help="cpu, cuda, cuda:1, ...; by default a graphics card where there is one.")
    dtype: str = typer.Option(None, help="float32, bfloat16 or float16; by default as the weights are stored.")
    quantise: str = typer.Option(
        None, help="int8: decode with whole numbers, faster on a CPU; by default as the model says."
    )
    encoder_tokenizer: str = typer.Option(None, help="Folder or hub id, where it does not lie beside the model.")
    decoder_tokenizer: str = typer.Option(None, help="Folder or hub id, where it does not lie beside the model.")
    features: Path = typer.Option(
        None, help="Keep what the vision tower gives for each image in this folder; the next call needs no tower."
    )
    output: Path = typer.Option(
        None, "--output", "-o", help="File of JSON lines; what is in it already is not computed again."
    )
    json_output: bool = typer.Option(False, "--json", help="Print one JSON object a line.")


@with_options(generation=Generation)
def caption(
    generation: Generation,
    images: list[str] = typer.Argument(
        help="Image files, folders, patterns, http addresses, or - for standard input.", show_default=False
    ),
    style: str = typer.Option("short", help="short, detailed or more_detailed."),
    prefix: str = typer.Option(
        "auto", help="auto: the language's prefix where the model never learnt to caption in it; always; none."
    ),
) -> None:
    """Caption images, in several languages at once.

    \b
    babelcap caption dog.jpg cat.jpg --model micro --language es
    babelcap caption photos/ --model models/0.4B --language es,fr,zh --output captions.jsonl

    An image that cannot be used is reported and left out; the exit code is then 1.
    """
    from dataclasses import replace

    from babelcap.coverage import CAPTION, check_style
    from babelcap.data.feed.image_sources import expand_sources, open_sources
    from babelcap.languages import check_prefix_mode

    options = vars(generation) | {"style": style, "prefix": prefix}
    codes, look, mode = _checked_codes(options, CAPTION), check_style(style), check_prefix_mode(prefix)
    sources = open_sources(dict.fromkeys(expand_sources(images)))
    with starting():
        from babelcap.models.inference import request_template

    template = request_template(**_request_options(options), style=look, prefix=mode)
    with _results(options, "caption", len(sources) * len(codes)) as results:
        requests = (
            replace(template, image=image, language=code, key=name)
            for name, image in sources
            for code in codes
            if not results.has({"image": name, "language": code})
        )
        _run(requests, results, options, lambda request: {"image": request.key, "language": request.language})


@with_options(generation=Generation)
def translate(
    generation: Generation,
    images: list[str] = typer.Argument(
        None, help="One image, or one for each text; none is allowed.", show_default=False
    ),
    text: list[str] = typer.Option(
        ..., "--text", "-t", help="A text to translate; may be repeated.", show_default=False
    ),
) -> None:
    """Translate English texts; the image beside a text tells which meaning is meant.

    \b
    babelcap translate bat.jpg --text "A bat on the grass." --model models/0.4B --language de
    """
    from dataclasses import replace

    from babelcap.coverage import TRANSLATION
    from babelcap.data.feed.image_sources import open_sources

    options = vars(generation)
    codes = _checked_codes(options, TRANSLATION)
    sources = dict(given := open_sources(images or []))
    with starting():
        from babelcap.models.inference import translation_requests

    names = [name for name, _ in given]
    requests = translation_requests(names or None, text, codes, **_request_options(options))

    def identity(request: "GenerationRequest") -> dict[str, Any]:
        return {"image": request.key or None, "text": request.source, "language": request.language}

    with _results(options, "translation", len(requests)) as results:
        wanted = (
            replace(request, image=sources.get(request.key))
            for request in requests
            if not results.has(identity(request))
        )
        _run(wanted, results, options, identity)


def _request_options(options: dict[str, Any]) -> Any:
    names = (
        *("prefix_text", "num_beams", "max_new_tokens", "num_return_sequences", "temperature", "top_p", "seed"),
        "guidance_scale",
    )
    found = {name: options[name] for name in names}
    return found | {"allowed_tokens": "language" if options["shortlist"] else None}


def _results(options: dict[str, Any], what: str, total: int) -> "ResultLines":
    """Where results go. Lines of other settings are not mixed with ours."""
    from babelcap.cli.result_lines import ResultLines
    from babelcap.storage import MANIFEST, file_sha256

    without = {"language", "batch_size", "processes", "device", "features", "output", "json_output"}
    settings = {name: value for name, value in options.items() if name not in without}
    for name in ("quantise", "guidance_scale"):
        if settings[name] is None:
            del settings[name]  # what was written before there was such a choice is not of other settings
    manifest = Path(options["model"]) / MANIFEST
    if manifest.is_file():  # a model that was trained again in the same place is another one
        settings["manifest"] = file_sha256(manifest)
    return ResultLines(what, options["output"], settings, json_output=options["json_output"], total=total)


def _run(
    requests: Iterator["GenerationRequest"],
    results: "ResultLines",
    options: dict[str, Any],
    identity: Callable[["GenerationRequest"], dict[str, Any]],
) -> None:
    from contextlib import nullcontext
    from itertools import chain, islice

    from babelcap.errors import UserError
    from babelcap.jobs.progress import progress
    from babelcap.jobs.signals import INTERRUPT_EXIT_CODE

    first = next(requests, None)
    if first is None:
        return  # all is there already: no model is loaded for nothing
    bad: dict[str, None] = {}

    def report(request: "GenerationRequest", error: UserError) -> None:
        if request.key not in bad:
            typer.echo(f"babelcap: {error}; left out", err=True)
        bad[request.key] = None

    shows_itself = sys.stdout.isatty() and options["output"] is None  # then the results are the progress
    bar = nullcontext(lambda number: None) if shows_itself else progress("Generating", results.total)
    try:
        pipeline = _load(options)
        found = pipeline.generate(
            chain([first], requests),
            batch_size=options["batch_size"],
            num_processes=options["processes"],
            on_bad_image=report,
            on_note=lambda line: typer.echo(f"babelcap: {line}", err=True),
        )
        early = list(islice(found, 1))  # processes are forked before the bar has its thread
        with bar as advance:
            for result in chain(early, found):
                results.add(identity(result.request), result)
                advance(1)
    except KeyboardInterrupt:
        rest = f"; they are in {options['output']}, and the same command goes on" if options["output"] else ""
        typer.echo(f"babelcap: stopped after {results.num_added} {results.what}s{rest}", err=True)
        raise typer.Exit(INTERRUPT_EXIT_CODE) from None
    for line in results.remarks(pipeline.coverage.languages):
        typer.echo(f"babelcap: {line}", err=True)
    if bad:
        typer.echo(f"babelcap: {len(bad)} image{'s' if len(bad) > 1 else ''} could not be used", err=True)
        raise typer.Exit(1)


def _load(options: dict[str, Any]) -> "CaptionPipeline":
    from babelcap.models import load

    names = ("device", "dtype", "quantise", "image_size_px", "encoder_tokenizer", "decoder_tokenizer")
    with starting():
        pipeline = load(options["model"], **{name: options[name] for name in names})
    if options["features"] is not None:
        pipeline.keep_features(options["features"])
    return pipeline


def _checked_codes(options: dict[str, Any], task: str) -> list[str]:
    """The languages, each once. What can be told from the words alone is told before torch is imported, which takes
    longer than all else; of a model that is not in a folder, when it is loaded."""
    from pydantic import ValidationError

    from babelcap.coverage import Coverage
    from babelcap.errors import UserError
    from babelcap.storage import read_json_object

    if not options["model"]:
        raise UserError(
            "no model given; name its folder or hub id with --model, or in BABELCAP_MODEL; micro comes with babelcap"
        )
    codes = list(dict.fromkeys(code.strip() for code in options["language"].split(",") if code.strip()))
    if not codes:
        raise UserError("no language given")
    config = Path(options["model"]) / "config.json"
    if config.is_file():
        with suppress(ValidationError):  # what is wrong with a model is told by its reader
            coverage = Coverage.model_validate(read_json_object(config).get("coverage") or {})
            for code in codes:
                coverage.possible_pair(task, code)
    return codes
