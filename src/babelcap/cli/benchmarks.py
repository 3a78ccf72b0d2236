"""`babelcap eval predict | score | run | table | show | setup-comet`: systems on benchmarks."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

if TYPE_CHECKING:
    from babelcap.evaluation.predictions.folder import Prediction
    from babelcap.evaluation.predictions.score import ScoreOptions

# The options of `predict` and of `run`, and those of `score` and of `run`.
SYSTEM = typer.Argument(help="A captioner's folder or hub id, or NAME:MODEL of another system.", show_default=False)
BENCHMARKS = typer.Argument(
    help="Benchmarks, task sets (full, captioning, translation, ambiguity, english), or files of items (.jsonl).",
    show_default=False,
)
OUTPUT = typer.Option(..., "--output", "-o", help="Folder of predictions; each gets a folder of its own in it.")
DATA = typer.Option(Path("benchmarks"), help="Folder of all benchmarks, laid out as docs/benchmarks.md says.")
LANGUAGES = typer.Option(None, "--language", help="Only these languages, such as de,fr.")
LIMIT = typer.Option(None, min=1, help="At most so many items of each language, for a trial.")
SHUFFLE = typer.Option(False, "--shuffle-images", help="Show each item another one's picture: what it is worth.")
SKIP_MISSING = typer.Option(False, "--skip-missing", help="Go on without benchmarks whose files are not there.")
PREFIX = typer.Option(None, help="Of captions of a captioner of this package. [default: auto]")
NUM_BEAMS = typer.Option(None, min=1, max=64, help="1 is greedy. [default: the system's own]")
MAX_NEW_TOKENS = typer.Option(None, min=1, max=4096, help="Of an answer at most. [default: the system's own]")
DTYPE = typer.Option(None, help="Of the weights. [default: the system's own]")
DEVICE = typer.Option(None, help="Such as cpu; cuda:0,cuda:1 for two workers. [default: a graphics card or cpu]")
BATCH_SIZE = typer.Option(None, min=1, max=4096, help="Items asked at once. [default: the system's own]")
SHORTLIST = typer.Option(
    False, "--shortlist", help="Only tokens of the asked language, of a captioner that has a list."
)
IMAGE_SIZE_PX = typer.Option(None, min=16, max=4096, help="Side of the square picture. [default: the model's own]")
ENCODER_TOKENIZER = typer.Option(None, help="Folder or hub id, where it does not lie beside the model.")
DECODER_TOKENIZER = typer.Option(None, help="The same of the decoder.")
WORKERS = typer.Option(1, min=1, help="Processes that predict shards, each with a model of its own.")
ENGINE = typer.Option("local", help="Processes of this machine, or Ray.")
ADDRESS = typer.Option(None, help="Of a Ray cluster. [default: Ray on this machine]")
AS_JSON = typer.Option(False, "--json", help="Print JSON for a script to read.")
FOLDERS = typer.Argument(help="Folders of predictions.", show_default=False)
COMET = typer.Option(None, help="Environment of `eval setup-comet`. [default: BABELCAP_COMET]")
METEOR_JAR = typer.Option(None, help="meteor-1.5.jar. [default: BABELCAP_METEOR_JAR]")
CLIP = typer.Option(None, help="Folder of a CLIP saved by transformers, for CLIPScore.")
CLIP_TEXT = typer.Option(None, help="Folder of M-CLIP, for CLIPScore of languages other than English.")
SYSTEM_OPTIONS = (
    "prefix", "num_beams", "max_new_tokens", "dtype", "device", "batch_size", "image_size_px", "encoder_tokenizer",
    "decoder_tokenizer",
)  # fmt: skip


def predict(
    system: str = SYSTEM,
    benchmarks: list[str] = BENCHMARKS,
    output: Path = OUTPUT,
    data: Path = DATA,
    languages: str | None = LANGUAGES,
    limit: int | None = LIMIT,
    shuffle_images: bool = SHUFFLE,
    skip_missing: bool = SKIP_MISSING,
    prefix: Literal["auto", "always", "none"] | None = PREFIX,
    num_beams: int | None = NUM_BEAMS,
    max_new_tokens: int | None = MAX_NEW_TOKENS,
    dtype: Literal["float32", "bfloat16", "float16"] | None = DTYPE,
    device: str | None = DEVICE,
    batch_size: int | None = BATCH_SIZE,
    shortlist: bool = SHORTLIST,
    image_size_px: int | None = IMAGE_SIZE_PX,
    encoder_tokenizer: str | None = ENCODER_TOKENIZER,
    decoder_tokenizer: str | None = DECODER_TOKENIZER,
    workers: int = WORKERS,
    engine: Literal["local", "ray"] = ENGINE,
    address: str | None = ADDRESS,
    as_json: bool = AS_JSON,
) -> None:
    """Ask a system the items of benchmarks and keep its answers, for `eval score`.

    A prediction is a folder named by the hash of all that decides it: system, weights, settings, items, pictures. Other
    settings make another folder; the same command goes on where it was, also when it was killed. Exit code 1 where a
    benchmark is not of the system's kind, and the others are done.

    \b
    babelcap eval predict runs/finetuned/model captioning --data /data/benchmarks -o predictions
    babelcap eval predict runs/finetuned/model commute --shuffle-images -o predictions
    """
    found, is_all = _predict(dict(locals()))
    _tell([{"folder": str(one.folder), "num_items": one.description.num_items} for one in found], as_json)
    if not is_all:
        raise typer.Exit(1)


def run(
    system: str = SYSTEM,
    benchmarks: list[str] = BENCHMARKS,
    output: Path = OUTPUT,
    data: Path = DATA,
    languages: str | None = LANGUAGES,
    limit: int | None = LIMIT,
    shuffle_images: bool = SHUFFLE,
    skip_missing: bool = SKIP_MISSING,
    prefix: Literal["auto", "always", "none"] | None = PREFIX,
    num_beams: int | None = NUM_BEAMS,
    max_new_tokens: int | None = MAX_NEW_TOKENS,
    dtype: Literal["float32", "bfloat16", "float16"] | None = DTYPE,
    device: str | None = DEVICE,
    batch_size: int | None = BATCH_SIZE,
    shortlist: bool = SHORTLIST,
    image_size_px: int | None = IMAGE_SIZE_PX,
    encoder_tokenizer: str | None = ENCODER_TOKENIZER,
    decoder_tokenizer: str | None = DECODER_TOKENIZER,
    workers: int = WORKERS,
    engine: Literal["local", "ray"] = ENGINE,
    address: str | None = ADDRESS,
    comet: Path | None = COMET,
    meteor_jar: Path | None = METEOR_JAR,
    clip: Path | None = CLIP,
    clip_text: Path | None = CLIP_TEXT,
    as_json: bool = AS_JSON,
) -> None:
    """`eval predict` and `eval score` in one.

    \b
    babelcap eval run runs/finetuned/model full --data /data/benchmarks -o predictions --skip-missing
    """
    given = dict(locals())
    found, is_all = _predict(given)
    _score(found, _score_options(given), as_json)
    if not is_all:
        raise typer.Exit(1)


def score(
    folders: list[Path] = FOLDERS,
    comet: Path | None = COMET,
    meteor_jar: Path | None = METEOR_JAR,
    clip: Path | None = CLIP,
    clip_text: Path | None = CLIP_TEXT,
    device: str | None = DEVICE,
    as_json: bool = AS_JSON,
) -> None:
    """Score complete predictions; scores.json lies beside the answers then.

    By language, with signature, 95 % interval, number of items and of empty answers. Captions: CIDEr, BLEU-1 to 4,
    ROUGE-L, chrF, language fidelity, CIDEr and chrF gated by language; translations: sacreBLEU, chrF, fidelity, COMET;
    ambiguity: accuracy by item and by pair. What needs something that is not here is skipped in one line.

    \b
    babelcap eval score predictions --json
    """
    from babelcap.evaluation.predictions.folder import find_predictions

    _score(find_predictions(folders), _score_options(dict(locals())), as_json)


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


def _predict(given: dict[str, Any]) -> "tuple[list[Prediction], bool]":
    """The predictions, and whether they are of all that was asked for."""
    from babelcap.errors import UserError
    from babelcap.evaluation.predictions.predict import PredictOptions, SystemSource, predict
    from babelcap.evaluation.predictions.tasks import Selection, read_tasks

    languages = tuple(given["languages"].split(",")) if given["languages"] else None
    missing: list[str] = []
    tasks = read_tasks(given["benchmarks"], Selection(given["data"], languages, given["limit"]), missing.append)
    for line in missing:
        typer.echo(f"babelcap: {line}", err=True)
    if not tasks or (missing and not given["skip_missing"]):
        more = "" if not tasks else "; --skip-missing goes on without"
        raise UserError(f"--data {given['data']}: {len(missing)} of the benchmarks cannot be read{more}")
    options = {name: given[name] for name in SYSTEM_OPTIONS if given[name] is not None}
    if given["shortlist"]:
        options["shortlist"] = True
    how = PredictOptions(given["output"], given["shuffle_images"], given["workers"], given["engine"], given["address"])
    failures: list[str] = []
    found = predict(tasks, SystemSource(given["system"], options), how, failures.append)
    if not found:
        raise UserError(failures[0])
    for line in failures:
        typer.echo(f"babelcap: {line}", err=True)
    return found, not failures


def _score_options(given: dict[str, Any]) -> "ScoreOptions":
    from babelcap.evaluation.predictions.score import ScoreOptions

    names = ("comet", "meteor_jar", "clip", "clip_text")
    return ScoreOptions(**{name: given[name] for name in names}, device=(given["device"] or "cpu").split(",")[0])


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
