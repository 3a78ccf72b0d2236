"""`babelcap data import`: foreign data into a corpus."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from babelcap.measures import TRAIN

if TYPE_CHECKING:
    from babelcap.data.store.store import Corpus

WORKERS = typer.Option(min(8, os.cpu_count() or 1), "--workers", min=1, max=1024, help="Processes to work in.")
OUTPUT = typer.Option(..., "--output", "-o", help="The folder to write to.")
CHECKSUM = typer.Option(False, "--checksum", help="Record the SHA-256 of each tar, which reads all of it.")
importers = typer.Typer(no_args_is_help=True, help="Make a corpus out of a published dataset or of your own files.")


@importers.command()
def cc12m(
    output: Path = OUTPUT,
    images: str = typer.Option(None, help="Folder or pattern of the pixparse/cc12m-wds tars."),
    annotations: str = typer.Option(None, help="Folder or pattern of the published Parquet files, one per tar."),
    eval_file: Path = typer.Option(
        None, "--eval", help="The published eval Parquet; its keys become the split 'eval'."
    ),
    download: bool = typer.Option(False, "--download", help="Fetch both from the Hugging Face hub first; goes on."),
    shards: str = typer.Option(None, help="Only these tars, by number: '0-9,2175'."),
    seed: int = typer.Option(
        0, min=0, max=2**63 - 1, help="Seed of the paragraphs that are made of several sentences."
    ),
    checksum: bool = CHECKSUM,
    workers: int = WORKERS,
) -> None:
    """Conceptual 12M with captions and translations, prepared as published. A stopped import goes on where it was.

    Example: babelcap data import cc12m --images cc12m-wds --annotations texts --eval texts/eval.parquet -o cc12m

    Or: babelcap data import cc12m --download --shards 0-9 -o cc12m
    """
    from babelcap.data.importers.cc12m import Cc12mSource, import_cc12m

    source = Cc12mSource(images, annotations, eval_file, download, shards, seed)
    report(import_cc12m(output, source, with_checksum=checksum, num_workers=workers))


@importers.command()
def multi30k(
    images: str = typer.Option(..., help="Folder or pattern of tars with the Flickr30k photos."),
    texts: Path = typer.Option(..., help="Multi30K's data folder, with task1 and task2."),
    output: Path = OUTPUT,
    pairs: Path = typer.Option(
        None, help="A corpus of sentence pairs aligned to these photos, which are trained on in place of task 1's."
    ),
    french: bool = typer.Option(False, "--french", help="Captions alone, French ones among them: to fine-tune on."),
    dev_share: float = typer.Option(
        0.0,
        min=0.0,
        max=0.99,
        help="Share of the training photos to keep out of it as split dev, to decide on: such as 0.05.",
    ),
    workers: int = WORKERS,
) -> None:
    """Multi30K: translations of task 1 (De, Fr) and captions of task 2 (En, De) for the photos you have.

    Example: babelcap data import multi30k --images photos --texts multi30k/data -o corpus

    With --pairs (`babelcap data build configs/data/photos.toml`) French is never seen beside a photo in training.
    """
    from babelcap.data.importers.multi30k import Multi30kMaker, import_multi30k

    maker = Multi30kMaker(texts, pairs, french, dev_share)
    report(import_multi30k(output, maker, images=images, num_workers=workers))


@importers.command()
def coco(
    images: Path = typer.Option(..., help="Folder of photos."),
    captions: Path = typer.Option(..., help="COCO's annotation file, or a list of {file, captions}."),
    output: Path = OUTPUT,
    split: str = typer.Option("test", help="The split of all photos."),
) -> None:
    """COCO captions: single photos are put into tars, since a corpus reads tars.

    Example: babelcap data import coco --images val2017 --captions captions_val2017.json -o coco
    """
    from babelcap.data.importers.coco import import_coco

    report(import_coco(output, images=images, captions=captions, split=split))


@importers.command()
def folder(
    images: Path = typer.Argument(..., help="Folder of images."),
    output: Path = OUTPUT,
    texts: Path = typer.Option(None, help="CSV or JSON lines; else metadata.csv or metadata.jsonl in the folder."),
    language: str = typer.Option("en", help="Language of texts whose line names none."),
    task: str = typer.Option("caption", help="Task of texts whose line names none."),
    split: str = typer.Option(TRAIN, help="Split of images whose line names none."),
) -> None:
    """Single images in a folder, with a CSV or JSON lines: columns image, text, and if you like language, task, style,
    source, split, origin, score. One line for each text; an image may have many.

    Example: babelcap data import folder photos --texts captions.csv -o corpus
    """
    from babelcap.data.importers.folder import FolderDefaults, import_folder

    report(import_folder(output, images, texts, FolderDefaults(language, task, split)))


@importers.command()
def datasets(
    source: str = typer.Argument(..., help="Folder of `save_to_disk` or of Parquet files, or OWNER/NAME on the hub."),
    output: Path = OUTPUT,
    image: str = typer.Option("image", help="Column of images."),
    text: list[str] = typer.Option(["text"], help="Column of captions, or LANGUAGE=COLUMN; may be given often."),
    language: str = typer.Option("en", help="Language of columns that are given without one."),
    split: str = typer.Option(None, help="Split of all rows, in place of the files' own."),
) -> None:
    """Datasets in the form of Hugging Face `datasets`: saved to disk, as Parquet, or fetched from the hub.

    Example: babelcap data import datasets OWNER/NAME --text en=caption --text de=caption_de -o corpus
    """
    from babelcap.data.importers.datasets import DatasetColumns, import_datasets

    report(import_datasets(output, source, DatasetColumns.parse(image, text, language, split)))


def report(corpus: "Corpus") -> None:
    manifest = corpus.manifest
    typer.echo(f"{corpus.folder}: {manifest.num_images:,} images, {manifest.num_annotations:,} annotations")
    for split, counts in manifest.splits.items():
        pairs = ", ".join(f"{pair} {number:,}" for pair, number in counts.pairs.items())
        typer.echo(f"  {split}: {counts.num_images:,} images{'; ' if pairs else ''}{pairs}")
    skipped: dict[str, int] = {}
    for shard in manifest.shards:
        for reason, number in shard.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + number
    for reason, number in sorted(skipped.items()):
        if number:
            typer.echo(f"  left out: {reason}: {number:,}")
