"""`babelcap data`: make, check, look at and hand on a corpus."""

import json
import sys
from pathlib import Path
from typing import Any

import typer

from babelcap.cli.build import add_stages, build
from babelcap.cli.imports import CHECKSUM, OUTPUT, WORKERS, importers, report
from babelcap.cli.leakage import leakage
from babelcap.cli.self_captions import self_caption
from babelcap.errors import UserError
from babelcap.measures import TRAIN

group = typer.Typer(no_args_is_help=True, help="Make, check, look at and hand on a corpus of images and texts.")

JSON = typer.Option(False, "--json", help="Print JSON for a script to read.")


@group.command()
def index(
    tars: list[str] = typer.Argument(..., help="Webdataset tars, or folders that hold them; an export too."),
    output: Path = OUTPUT,
    annotations: Path = typer.Option(None, help="Texts as .jsonl or .parquet: key, annotations, and split if any."),
    captions: str = typer.Option(
        None, help="Members that hold captions: 'txt', or 'json:FIELD' for a field of a JSON."
    ),
    language: str = typer.Option("en", help="Language of --captions."),
    split: str = typer.Option(TRAIN, help="The split of images for which --annotations names none."),
    images_only: bool = typer.Option(False, "--images-only", help="There are no texts yet, and that is meant."),
    copy: bool = typer.Option(False, "--copy", help="Copy the tars into the corpus instead of linking to them."),
    checksum: bool = CHECKSUM,
    workers: int = WORKERS,
) -> None:
    """Make a corpus out of existing tars, without copying them: only their headers are read.

    Example: babelcap data index photos/*.tar --captions txt -o corpus
    """
    from babelcap.coverage import Coverage
    from babelcap.data.importers.assemble import Assembly, assemble_corpus
    from babelcap.data.importers.files import find_files
    from babelcap.data.importers.webdataset import WebdatasetMaker, exported_coverage

    coverage = exported_coverage(tars) or Coverage()
    coverage.language(language)
    maker = WebdatasetMaker(
        coverage=coverage, split=split, annotations=annotations, captions=captions, language=language
    )
    texts = str(annotations) if annotations else None
    parameters = {"annotations": texts, "captions": captions, "language": language, "split": split}
    provenance = {"source": "webdataset tars", "command": "babelcap data index", "parameters": parameters}
    options = Assembly(provenance, coverage, workers, copy, checksum, images_only)
    report(assemble_corpus(output, find_files(tars, ".tar"), maker, options))


group.add_typer(importers, name="import")
group.command()(build)
add_stages(group)
group.command(name="self-caption")(self_caption)


@group.command()
def check(
    corpus: Path = typer.Argument(..., help="The corpus folder."),
    full: bool = typer.Option(False, "--full", help="Also compare the SHA-256 of every tar, which reads all of it."),
    record: bool = typer.Option(False, "--record", help="With --full: add checksums that are missing, if all is well."),
    as_json: bool = JSON,
    workers: int = WORKERS,
) -> None:
    """Verify checksums and offsets, decode every image, find duplicates, missing pairs and bad texts.

    Exit code 1 if something is wrong. Says what it did not check.

    Example: babelcap data check corpus --full
    """
    from babelcap.data.inspect.check import check_corpus
    from babelcap.data.store.store import Corpus

    result = check_corpus(Corpus.open(corpus), full=full, record=record, num_workers=workers)
    if as_json:
        values = {
            "ok": not result.problems.counts,
            "num_images": result.num_images,
            "num_annotations": result.num_annotations,
            "problems": result.problems.counts,
            "places": result.problems.places,
            "notes": result.notes.counts,
            "not_checked": result.not_checked,
            "num_recorded": result.num_recorded,
        }
        typer.echo(json.dumps(values, ensure_ascii=False, indent=2))
    else:
        _print_check(corpus, result)
        if record and result.problems.counts:
            typer.echo("nothing was recorded: a checksum of what is wrong would call it right")
        elif record:
            typer.echo(f"recorded: the checksums of {result.num_recorded:,} tars")
    if result.problems.counts:
        raise typer.Exit(1)


def _print_check(corpus: Path, result: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    console = _console()
    for title, findings in (("problem", result.problems), ("note", result.notes)):
        if findings.counts:
            table = Table(title, "count", "first places")
            for reason, number in findings.counts.most_common():
                table.add_row(Text(reason), f"{number:,}", Text("\n".join(findings.places[reason])))
            console.print(table)
    verdict = f"{sum(result.problems.counts.values()):,} problems" if result.problems.counts else "all well"
    typer.echo(f"{corpus}: {result.num_images:,} images, {result.num_annotations:,} annotations: {verdict}")
    for line in result.not_checked:
        typer.echo(f"not checked: {line}")


group.command()(leakage)


@group.command()
def stats(corpus: Path = typer.Argument(..., help="The corpus folder."), as_json: bool = JSON) -> None:
    """Count images and annotations per split and pair, and measure the texts.

    Example: babelcap data stats corpus --json
    """
    from rich.table import Column, Table

    from babelcap.data.inspect.stats import corpus_stats
    from babelcap.data.store.store import Corpus

    values = corpus_stats(Corpus.open(corpus))
    if as_json:
        typer.echo(json.dumps(values, ensure_ascii=False, indent=2))
        return
    unbroken = [Column(name, no_wrap=True) for name in ("split", "pair", "annotations")]
    table = Table(*unbroken, "styles", "target characters", "source characters")
    for split, of_split in values["splits"].items():
        for pair, counts in of_split["pairs"].items():
            styles = ", ".join(f"{name} {number:,}" for name, number in counts["styles"].items())
            sides = [_lengths(counts["target_characters"]), _lengths(counts["source_characters"])]
            table.add_row(split, pair, f"{counts['num_annotations']:,}", styles, *sides)
        table.add_section()
    _console().print(table)
    for split, of_split in values["splits"].items():
        per_image = of_split["annotations_per_image"]
        typer.echo(
            f"{split}: {of_split['num_images']:,} images, {of_split['num_annotations']:,} annotations "
            f"({per_image['mean']} per image, {per_image['min']} to {per_image['max']}), "
            f"languages {', '.join(of_split['languages']) or 'none'}"
        )
    for licence, number in values["licences"].items():
        typer.echo(f"licence: {licence}: {number:,} annotations")
    for reason, number in values["skipped"].items():
        typer.echo(f"left out: {reason}: {number:,}")


def _lengths(values: dict[str, float] | None) -> str:
    return f"{values['mean']} ({values['min']}-{values['max']})" if values else ""


@group.command()
def show(
    corpus: Path = typer.Argument(..., help="The corpus folder."),
    output: Path = typer.Option(Path("sheet.html"), "--output", "-o", help="The HTML file to write."),
    num: int = typer.Option(24, "--num", min=1, max=500, help="Number of images."),
    seed: int = typer.Option(0, min=0, max=2**63 - 1, help="Which images: a seed draws the same ones again."),
    split: str = typer.Option(None, help="Only this split."),
) -> None:
    """Draw images at random and lay them out with their texts in all languages, as one HTML file.

    Example: babelcap data show corpus -o sheet.html --num 12 --split train
    """
    from babelcap.data.inspect.show import write_sheet
    from babelcap.data.store.store import Corpus

    typer.echo(str(write_sheet(Corpus.open(corpus), output, num_images=num, seed=seed, split=split)))


@group.command()
def export(
    corpus: Path = typer.Argument(..., help="The corpus folder."),
    output: Path = OUTPUT,
    kind: str = typer.Option("webdataset", "--format", help="The only format so far: webdataset."),
    split: str = typer.Option(None, help="Only this split."),
    exclude_licence: str = typer.Option(None, help="Leave out texts whose licence has this word, e.g. nc."),
    workers: int = WORKERS,
) -> None:
    """Write plain webdataset tars (KEY.jpg, KEY.json) for other trainers. A stopped export goes on where it was.

    Example: babelcap data export corpus -o plain --format webdataset
    """
    from babelcap.data.inspect.export import export_webdataset
    from babelcap.data.store.store import Corpus

    if kind != "webdataset":
        raise UserError(f"--format is '{kind}'; the only format is 'webdataset'")
    opened = Corpus.open(corpus)
    number = export_webdataset(opened, output, split=split, exclude_licence=exclude_licence, num_workers=workers)
    typer.echo(f"{output}: {number:,} images")


def _console() -> Any:
    """As wide as the terminal; wide enough for a table where the output goes to a file."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=140)
