"""`babelcap data leakage`: whether pictures of a corpus are also in a test set."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from babelcap.cli.imports import WORKERS
from babelcap.errors import UserError
from babelcap.measures import TRAIN

if TYPE_CHECKING:
    from babelcap.data.inspect.leakage import Pictures
    from babelcap.data.store.store import Corpus

MAX_LINES = 50  # of pairs that are printed; --json has them all


def leakage(
    corpus: Path = typer.Argument(..., help="The corpus folder."),
    against: list[str] = typer.Option(
        ..., help="A folder of pictures, a corpus, or a benchmark (coco, xm3600, ..., or 'all'); may be repeated."
    ),
    root: Path = typer.Option(None, help="The folder that holds the benchmarks, as docs/benchmarks.md lays it out."),
    split: str = typer.Option(TRAIN, help="The split of the corpus that must be free of them."),
    ids: list[Path] = typer.Option(
        [], help="Files that tell one dataset's ids in another's: Visual Genome's image_data.json, COCO's annotations."
    ),
    max_distance: int = typer.Option(20, min=0, max=23, help="Of 128 bits, in which two prints of a picture differ."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON for a script to read."),
    workers: int = WORKERS,
) -> None:
    """Find pictures of a corpus that are in a test set too: by name, and by what they look like.

    Exit code 1 if there are any. Says which pictures of a test set were not there to be looked at. A corpus against
    itself compares the split with its other splits.

    Example: babelcap data leakage corpus --against coco --against my-test-photos --root downloads
    """
    from babelcap.data.inspect.image_names import read_aliases
    from babelcap.data.inspect.leakage import find_leaks, gather, pictures_of_corpus
    from babelcap.data.store.store import Corpus

    opened = Corpus.open(corpus)
    opened.num_images(split)  # names the splits that there are, where it is none of them
    others = gather(part for name in against for part in _sets(name, opened, split, root, workers))
    own = pictures_of_corpus(opened, [split], workers)
    leaks = find_leaks(own, others, max_distance, read_aliases(ids))
    unreadable = own.unreadable + others.unreadable
    if as_json:
        values = {
            "num_images": len(own.names),
            "num_against": len(others.names),
            "num_leaked": len({leak.key for leak in leaks}),
            "leaks": [leak._asdict() for leak in leaks],
            "known_by_name_alone": own.num_not_compared + others.num_not_compared,
            "not_readable": dict(unreadable),
        }
        typer.echo(json.dumps(values, ensure_ascii=False, indent=2))
    else:
        for leak in leaks[:MAX_LINES]:
            bits = "" if leak.distance is None else f", {leak.distance} bits apart"
            typer.echo(f"{leak.key} is {leak.name} of {leak.set} (by {leak.how}{bits})")
        if len(leaks) > MAX_LINES:
            typer.echo(f"... and {len(leaks) - MAX_LINES:,} more (--json lists all)")
        num_leaked = len({leak.key for leak in leaks})
        typer.echo(f"{corpus}: {num_leaked:,} of {len(own.names):,} images are among {len(others.names):,} test images")
        for reason, number in unreadable.items():
            typer.echo(f"compared by name alone: {number:,} pictures: {reason}")
    if leaks:
        raise typer.Exit(1)


def _sets(name: str, corpus: "Corpus", split: str, root: Path | None, workers: int) -> Iterator["Pictures"]:
    """What an --against means: a corpus, a folder, or benchmarks."""
    from babelcap.data.inspect.leakage import pictures_of_corpus, pictures_of_files, pictures_of_folder
    from babelcap.data.store.manifest import MANIFEST
    from babelcap.data.store.store import Corpus

    if (Path(name) / MANIFEST).is_file():
        other = Corpus.open(name)
        same = other.content_hash == corpus.content_hash
        splits = [one for one in other.splits if not (same and one == split)]
        if not splits:
            raise UserError(f"--against {name}: it is the corpus itself, and has no split but '{split}'")
        yield pictures_of_corpus(other, splits, workers)
    elif Path(name).is_dir():
        yield pictures_of_folder(Path(name), workers)
    else:
        for benchmark, paths in benchmark_images([name], root).items():
            yield pictures_of_files(paths, benchmark, workers)


def benchmark_images(names: Sequence[str], root: Path | None) -> dict[str, list[Path]]:
    """Benchmark -> its pictures, as the distributed files name them; 'all' stands for every one."""
    from babelcap.evaluation.benchmarks import BENCHMARKS, read_benchmark

    known = list(BENCHMARKS)
    chosen = [one for name in names for one in (known if name == "all" else [name])]
    for name in chosen:
        if name not in known:
            raise UserError(f"'{name}' is no folder, no corpus and no benchmark (known: all, {', '.join(known)})")
    if chosen and root is None:
        raise UserError(f"{chosen[0]} is a benchmark; say which folder holds the benchmarks with --root")
    return {name: sorted({item.image for item in read_benchmark(name, root or ".")}) for name in dict.fromkeys(chosen)}
