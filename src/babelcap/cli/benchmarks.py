"""`babelcap eval predict | score | run | table | show | setup-comet`: systems on benchmarks."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from babelcap.cli.shared_options import with_options

if TYPE_CHECKING:
    from babelcap.evaluation.predictions.folder import Prediction
    from babelcap.evaluation.predictions.score import ScoreOptions

DEVICE = typer.Option(None, help="Such as cpu; cuda:0,cuda:1 for two workers. [default: a graphics card or cpu]")
AS_JSON = typer.Option(False, "--json", help="Print JSON for a script to read.")
FOLDERS = typer.Argument(help="Folders of predictions.", show_default=False)
SYSTEM_OPTIONS = (
    "prefix", "num_beams", "max_new_tokens", "dtype", "device", "batch_size", "image_size_px", "encoder_tokenizer",
    "decoder_tokenizer",
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A system, what it is asked, and how: the options of `predict` and of `run`."""

    system: str = typer.Argument(
        help="A captioner's folder or hub id, or NAME:MODEL of another system.", show_default=False
    )
    benchmarks: list[str] = typer.Argument(
        help="Benchmarks, task sets (full, captioning, translation, ambiguity, english), or files of items (.jsonl).",
        show_default=False,
    )
    output: Path = typer.Option(
        ..., "--output", "-o", help="Folder of predictions; each gets a folder of its own in it."
    )
    data: Path = typer.Option(Path("benchmarks"), help="Folder of all benchmarks, laid out as docs/benchmarks.md says.")
    languages: str | None = typer.Option(None, "--language", help="Only these languages, such as de,fr.")
    limit: int | None = typer.Option(None, min=1, help="At most so many items of each language, for a trial.")
    shuffle_images: bool = typer.Option(
        False, "--shuffle-images", help="Show each item another one's picture: what it is worth."
    )
    skip_missing: bool = typer.Option(
        False, "--skip-missing", help="Go on without benchmarks whose files are not there."
    )
    prefix: Literal["auto", "always", "none"] | None = typer.Option(
        None, help="Of captions of a captioner of this package. [default: auto]"
    )
    num_beams: int | None = typer.Option(None, min=1, max=64, help="1 is greedy. [default: the system's own]")
    max_new_tokens: int | None = typer.Option(
        None, min=1, max=4096, help="Of an answer at most. [default: the system's own]"
    )
    dtype: Literal["float32", "bfloat16", "float16"] | None = typer.Option(
        None, help="Of the weights. [default: the system's own]"
    )
    device: str | None = DEVICE
    batch_size: int | None = typer.Option(
        None, min=1, max=4096, help="Items asked at once. [default: the system's own]"
    )
    shortlist: bool = typer.Option(
        False, "--shortlist", help="Only tokens of the asked language, of a captioner that has a list."
    )
    image_size_px: int | None = typer.Option(
        None, min=16, max=4096, help="Side of the square picture. [default: the model's own]"
    )
    encoder_tokenizer: str | None = typer.Option(None, help="Folder or hub id, where it does not lie beside the model.")
    decoder_tokenizer: str | None = typer.Option(None, help="The same of the decoder.")
    workers: int = typer.Option(1, min=1, help="Processes that predict shards, each with a model of its own.")
    engine: Literal["local", "ray"] = typer.Option("local", help="Processes of this machine, or Ray.")
    address: str | None = typer.Option(None, help="Of a Ray cluster. [default: Ray on this machine]")


@dataclass(frozen=True)
class Judges:
    """What scores need beside the answers: the options of `score` and of `run`."""

    comet: Path | None = typer.Option(None, help="Environment of `eval setup-comet`. [default: BABELCAP_COMET]")
    meteor_jar: Path | None = typer.Option(None, help="meteor-1.5.jar. [default: BABELCAP_METEOR_JAR]")
    clip: Path | None = typer.Option(None, help="Folder of a CLIP saved by transformers, for CLIPScore.")
    clip_text: Path | None = typer.Option(None, help="Folder of M-CLIP, for CLIPScore of languages other than English.")


@with_options(asked=Asked)
def predict(asked: Asked, as_json: bool = AS_JSON) -> None:
    """Ask a system the items of benchmarks and keep its answers, for `eval score`.

    A prediction is a folder named by the hash of all that decides it: system, weights, settings, items, pictures. Other
    settings make another folder; the same command goes on where it was, also when it was killed. Exit code 1 where a
    benchmark is not of the system's kind, and the others are done.

    \b
    babelcap eval predict runs/finetuned/model captioning --data /data/benchmarks -o predictions
    babelcap eval predict runs/finetuned/model commute --shuffle-images -o predictions
    """
    found, is_all = _predict(asked)
    _tell([{"folder": str(one.folder), "num_items": one.description.num_items} for one in found], as_json)
    if not is_all:
        raise typer.Exit(1)


@with_options(asked=Asked, judges=Judges)
def run(asked: Asked, judges: Judges, as_json: bool = AS_JSON) -> None:
    """`eval predict` and `eval score` in one.

    \b
    babelcap eval run runs/finetuned/model full --data /data/benchmarks -o predictions --skip-missing
    """
    found, is_all = _predict(asked)
    _score(found, _score_options(judges, asked.device), as_json)
    if not is_all:
        raise typer.Exit(1)


@with_options(judges=Judges)
def score(judges: Judges, folders: list[Path] = FOLDERS, device: str | None = DEVICE, as_json: bool = AS_JSON) -> None:
    """Score complete predictions; scores.json lies beside the answers then.

    By language, with signature, 95 % interval, number of items and of empty answers. Captions: CIDEr, BLEU-1 to 4,
    ROUGE-L, chrF, language fidelity, CIDEr and chrF gated by language; translations: sacreBLEU, chrF, fidelity, COMET;
    ambiguity: accuracy by item and by pair. What needs something that is not here is skipped in one line.

    \b
    babelcap eval score predictions --json
    """
    from babelcap.evaluation.predictions.folder import find_predictions

    _score(find_predictions(folders), _score_options(judges, device), as_json)


def setup_comet(
    folder: Path = typer.Argument(help="Where the environment is made.", show_default=False),
) -> None:
    """Make the environment that COMET-22 needs, with its weights, once: its pins conflict with this package's.

    \b
    babelcap eval setup-comet environments/comet
    export BABELCAP_COMET=environments/comet
    """
    from babelcap.evaluation.metrics import comet as metric

    metric.setup_comet(folder)
    typer.echo(f"{folder}: ready; export {metric.VARIABLE}={folder}, or --comet {folder}")


def table(
    folders: list[Path] = typer.Argument(None, help="Folders of scored predictions."),
    style: Literal["markdown", "latex", "csv", "html"] = typer.Option("markdown", "--format", help="Of the tables."),
    published: Literal["v1", "none"] = typer.Option("v1", help="The paper's numbers, of its first version, or none."),
    output: Path = typer.Option(None, "--output", "-o", help="A file. [default: standard output]"),
) -> None:
    """Tables of all scores, beside the published numbers; what cannot be compared says why.

    Without folders: the paper's table 4, averaged from its tables 8 to 13 by its rules, beside what it prints.

    \b
    babelcap eval table predictions --format latex -o tables.tex
    babelcap eval table --published v1
    """
    from babelcap.evaluation.predictions.folder import find_predictions
    from babelcap.evaluation.predictions.score import is_scored
    from babelcap.evaluation.tables.build import build_tables
    from babelcap.evaluation.tables.formats import format_tables
    from babelcap.storage import write_text

    predictions = find_predictions(folders) if folders else []
    for prediction in predictions:
        if not is_scored(prediction):
            typer.echo(f"babelcap: left out: {prediction.folder} is not scored; run `babelcap eval score`", err=True)
    tables = build_tables(predictions, with_published=published == "v1")
    text = format_tables(tables, style)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_text(output, text)
        typer.echo(str(output))


def show(
    folders: list[Path] = FOLDERS,
    output: Path = typer.Option(Path("predictions.html"), "--output", "-o", help="The page, one HTML file."),
    limit: int = typer.Option(300, min=1, max=5000, help="Items at most, the worst ones."),
    image_size_px: int = typer.Option(256, min=32, max=1024, help="Longest side of a picture."),
) -> None:
    """A page to look at: pictures, references and the answers of several systems side by side, worst first.

    \b
    babelcap eval show predictions -o page.html
    """
    from babelcap.evaluation.predictions.folder import find_predictions
    from babelcap.evaluation.predictions.show import write_page

    typer.echo(str(write_page(find_predictions(folders), output, limit=limit, image_size_px=image_size_px)))


def _predict(asked: Asked) -> "tuple[list[Prediction], bool]":
    """The predictions, and whether they are of all that was asked for."""
    from babelcap.errors import UserError
    from babelcap.evaluation.predictions.predict import PredictOptions, SystemSource, predict
    from babelcap.evaluation.predictions.tasks import Selection, read_tasks

    languages = tuple(asked.languages.split(",")) if asked.languages else None
    missing: list[str] = []
    tasks = read_tasks(asked.benchmarks, Selection(asked.data, languages, asked.limit), missing.append)
    for line in missing:
        typer.echo(f"babelcap: {line}", err=True)
    if not tasks or (missing and not asked.skip_missing):
        more = "" if not tasks else "; --skip-missing goes on without"
        raise UserError(f"--data {asked.data}: {len(missing)} of the benchmarks cannot be read{more}")
    options = {name: value for name in SYSTEM_OPTIONS if (value := getattr(asked, name)) is not None}
    if asked.shortlist:
        options["shortlist"] = True
    how = PredictOptions(asked.output, asked.shuffle_images, asked.workers, asked.engine, asked.address)
    failures: list[str] = []
    found = predict(tasks, SystemSource(asked.system, options), how, failures.append)
    if not found:
        raise UserError(failures[0])
    for line in failures:
        typer.echo(f"babelcap: {line}", err=True)
    return found, not failures


def _score_options(judges: Judges, device: str | None) -> "ScoreOptions":
    from babelcap.evaluation.predictions.score import ScoreOptions

    return ScoreOptions(**vars(judges), device=(device or "cpu").split(",")[0])


def _score(predictions: "list[Prediction]", options: "ScoreOptions", as_json: bool) -> None:
    from babelcap.errors import UserError
    from babelcap.evaluation.predictions.score import score_predictions

    incomplete: list[str] = []
    found = score_predictions(predictions, options, incomplete.append)
    if not found:
        raise UserError(incomplete[0])
    skipped = dict.fromkeys(line for _, scored in found for line in scored.skipped)
    for line in (*incomplete, *(f"skipped: {line}" for line in skipped)):
        typer.echo(f"babelcap: {line}", err=True)
    if as_json:
        rows = [
            {"folder": str(prediction.folder), "scores": scored.records, "skipped": scored.skipped}
            for prediction, scored in found
        ]
        typer.echo(json.dumps(rows, ensure_ascii=False))
    else:
        for prediction, scored in found:
            typer.echo(str(prediction.folder))
            for record in scored.records:
                interval = f"[{record['low']:.4f}, {record['high']:.4f}]"
                counts = f"items {record['num_items']}, empty {record['num_empty']}"
                typer.echo(f"  {record['language']:4} {record['name']:28} {record['value']:9.4f} {interval}  {counts}")
    if incomplete:
        raise typer.Exit(1)


def _tell(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
    else:
        for row in rows:
            typer.echo(f"{row['folder']}: {row['num_items']} answers")
