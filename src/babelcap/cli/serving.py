"""`babelcap app` and `babelcap serve`: a captioner for people in a browser, and for programs over HTTP."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from babelcap.app.limits import Limits

MODEL = typer.Option(
    None,
    "--model",
    "-m",
    envvar="BABELCAP_MODEL",
    help="Folder or hub id of a captioner; where not given that of photographs where it is installed, else 'micro', "
    "which comes with babelcap and knows drawn scenes.",
)
HOST = typer.Option("127.0.0.1", help="Where to listen; 0.0.0.0 opens it to everybody who can reach this machine.")
ALLOW_HOST = typer.Option([], "--allow-host", help="A name that requests may call this server by; may be repeated.")
DEVICE = typer.Option(None, help="cpu, cuda, cuda:1, ...; by default a graphics card where there is one.")
UPLOAD = typer.Option(20.0, "--max-upload-mib", min=0.001, help="Largest picture, as encoded.")
PIXELS = typer.Option(40.0, "--max-megapixels", min=0.001, help="Largest picture, in megapixels.")
TIMEOUT = typer.Option(60.0, "--timeout", min=0.001, help="Seconds from a request to its answer.")
WAITING = typer.Option(256, "--max-waiting", min=1, help="Texts that may wait for the model; more are refused.")


def app(
    model: str = MODEL,
    study: Path = typer.Option(None, help="A study's folder; where not given studies/micro where there is one."),
    corpus: Path = typer.Option(None, help="A corpus to browse; may be one that a study made."),
    host: str = HOST,
    port: int = typer.Option(7860, min=0, max=65535, help="0: any that is free."),
    allow_host: list[str] = ALLOW_HOST,
    device: str = DEVICE,
    max_upload_mib: float = UPLOAD,
    max_megapixels: float = PIXELS,
    timeout: float = TIMEOUT,
) -> None:
    """Open a web app: captions side by side, translations, laws to play with, studies and corpora to look at.

    \b
    babelcap app
    babelcap app --model runs/micro-gemma-l/budget-000500/model --study studies/micro --corpus corpora/world

    It listens on this machine alone. Nothing is loaded from elsewhere; no file outside the given folders can be read.
    """
    _require("gradio", "app")
    from babelcap.app.running import address_of, known_hosts, open_socket, run_server

    limits = _limits(max_upload_mib, max_megapixels, timeout)
    bound = open_socket(host, port)
    from babelcap.app.build import AppOptions, make_app
    from babelcap.app.engine import Engine
    from babelcap.app.model_choice import choose_model

    chosen = choose_model(model, device)
    engine = Engine(chosen.pipeline, limits)
    page = make_app(engine, AppOptions(chosen, study, corpus))
    typer.echo(f"babelcap app: {address_of(bound, host)}  (model {chosen.name}; Ctrl-C ends it)")
    run_server(page, bound, limits, known_hosts(host, allow_host), engine.close)


def serve(
    model: str = MODEL,
    host: str = HOST,
    port: int = typer.Option(8000, min=0, max=65535, help="0: any that is free."),
    allow_host: list[str] = ALLOW_HOST,
    allow_urls: bool = typer.Option(
        False, "--allow-urls", help="Fetch pictures from http addresses that clients name, inside your network too."
    ),
    device: str = DEVICE,
    max_upload_mib: float = UPLOAD,
    max_megapixels: float = PIXELS,
    max_waiting: int = WAITING,
    timeout: float = TIMEOUT,
) -> None:
    """Serve a captioner over HTTP: /caption, /translate, /health, and /v1/chat/completions as OpenAI's clients speak.

    \b
    babelcap serve --model models/0.4B
    curl -F image=@photo.jpg -F language=es,zh http://127.0.0.1:8000/caption/upload

    The page http://127.0.0.1:8000/docs explains it. Requests that arrive together run together.
    """
    _require("fastapi", "serve")
    from babelcap.app.running import address_of, known_hosts, open_socket, run_server

    limits = _limits(max_upload_mib, max_megapixels, timeout, max_waiting)
    bound = open_socket(host, port)
    from babelcap.app.engine import Engine
    from babelcap.app.model_choice import choose_model
    from babelcap.app.serve.api import ServeOptions, make_api

    chosen = choose_model(model, device)
    engine = Engine(chosen.pipeline, limits)
    api = make_api(engine, ServeOptions(chosen.name, allow_urls))
    typer.echo(f"babelcap serve: {address_of(bound, host)}/docs  (model {chosen.name}; Ctrl-C ends it)")
    run_server(api, bound, limits, known_hosts(host, allow_host), engine.close)


def _limits(max_upload_mib: float, max_megapixels: float, timeout: float, max_waiting: int = 256) -> "Limits":
    from babelcap.app.limits import MIB, Limits

    return Limits(
        max_upload_bytes=int(max_upload_mib * MIB),
        max_pixels=int(max_megapixels * 1e6),
        timeout_seconds=timeout,
        max_waiting=max_waiting,
    )


def _require(package: str, extra: str) -> None:
    from importlib.util import find_spec

    from babelcap.errors import UserError

    if find_spec(package) is None:
        raise UserError(f"{package} is not installed; pip install 'babelcap[{extra}]'")
