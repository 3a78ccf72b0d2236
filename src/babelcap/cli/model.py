"""`babelcap model`: what a model is and costs, and how one is made of others."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from babelcap.cli import bridge

if TYPE_CHECKING:
    from torch import Tensor

IMAGES_AT_ONCE = 16

group = typer.Typer(no_args_is_help=True, help="Get, size up, prepare, import, check, narrow and publish models.")
for _command in (bridge.get, bridge.bridge, bridge.start_bridge, bridge.pack):
    group.command()(_command)


@group.command()
def info(
    model: str = typer.Argument(..., help="A size (0.4B, 1.0B, 3.5B, 11.2B, micro-...), a model's folder or name."),
    policy: str = typer.Option(
        "pretraining", help="Freezing policy: pretraining, finetuning, text, bridge, all, cross-attention."
    ),
    image_size_px: int | None = typer.Option(None, min=1, max=4096, help="Pixels a side; the model's own by default."),
    as_json: bool = typer.Option(False, "--json", help="Print plain data for a script."),
) -> None:
    """Parameters, what trains, multiply-accumulates and memory of a model, counted in seconds without its weights.

    Example: babelcap model info 3.5B --policy finetuning
    """
    from babelcap.cli.counted import kept_info

    found = kept_info(model, policy) if image_size_px is None else None
    if found is None:
        from babelcap.models.checkpoints.named import named_folder
        from babelcap.models.sizing.info import model_info, read_size_or_folder

        found = model_info(read_size_or_folder(str(named_folder(model) or model)), image_size_px, policy)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _print_info(model, found)


def _print_info(name: str, found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    trained = ", ".join(f"{policy} {number / 1e6:,.1f} M" for policy, number in found["Pt"].items())
    console.print(f"{name}: encoder {found['encoder']}, decoder {found['decoder']}")
    console.print(f"P {found['P'] / 1e6:,.1f} M; Pt: {trained}")

    console.print(f"what trains, policy {found['policy']}")
    table = Table("module", "parameters", "trained")
    for row in found["table"]:
        table.add_row(row["module"], f"{row['num_parameters']:,}", f"{row['num_trained']:,}")
    console.print(table)

    sequence = f"{found['num_encoder_tokens']} prompt and {found['num_decoder_tokens']} target tokens"
    title = f"one forward: {sequence}, {found['image_size_px']} px"
    console.print(title)
    table = Table("module", "GMACs")
    for part, count in found["macs"].items():
        table.add_row(part, f"{count / 1e9:,.3f}")
    console.print(table)

    table = Table("memory, GiB", *found["memory_bytes"])
    for use in ("inference", "training"):
        for part in found["memory_bytes"]["fp32"][use]:
            sizes = [f"{memory[use][part] / 2**30:,.3f}" for memory in found["memory_bytes"].values()]
            table.add_row(f"{use}: {part}", *sizes)
    console.print(table)


@group.command()
def prepare(
    size: str = typer.Argument(
        ..., help="0.4B, 1.0B, 3.5B, 11.2B, or auto-florence, auto-gemma to follow the sources."
    ),
    florence: str = typer.Option(..., help="Florence-2: a folder or hub id (florence-community/Florence-2-base)."),
    gemma: str = typer.Option(..., help="Gemma-2: a folder or hub id. A Florence size reads its tokenizer only."),
    output: str = typer.Option(..., "--output", "-o", help="The new model's folder."),
    cross_attention_every: int = typer.Option(1, min=1, help="Gemma sizes: cross-attention in every x-th layer."),
    dtype: str = typer.Option("float32", help="float32, bfloat16 or float16. float32 keeps every bit of the sources."),
    seed: int = typer.Option(0, min=0, help="Of the weights that are drawn anew."),
    as_json: bool = typer.Option(False, "--json", help="Print the account of keys for a script."),
) -> None:
    """Make a captioner of Florence-2 and Gemma-2; every weight is loaded, dropped or initialised by name, or it stops.

    Example: babelcap model prepare 3.5B --florence florence-community/Florence-2-large --gemma google/gemma-2-2b -o m
    """
    from babelcap.models.surgery.prepare import prepare as perform

    report = perform(size, florence, gemma, output, dtype=dtype, cross_attention_every=cross_attention_every, seed=seed)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    counts = ", ".join(f"{report[f'num_{kind}']} {kind}" for kind in ("loaded", "initialised", "dropped"))
    typer.echo(f"{output}: {counts}; the account of every weight is in surgery.json")


@group.command("import")
def import_command(
    source: str = typer.Argument(..., help="A folder, a pickled file beside its config.json, or a hub id."),
    output: str = typer.Option(..., "--output", "-o", help="The new model's folder."),
    encoder_tokenizer: str | None = typer.Option(None, help="Folder or hub id, where none lies beside the checkpoint."),
    decoder_tokenizer: str | None = typer.Option(None, help="Folder or hub id, where none lies beside the checkpoint."),
    without_tokenizers: bool = typer.Option(False, help="Import the model alone; its user names the tokenizers."),
    dtype: str | None = typer.Option(None, help="float32, bfloat16 or float16; as stored by default."),
    full_coverage: bool = typer.Option(
        False, "--full-coverage", help="It was fine-tuned on all pairs: no language needs its prefix."
    ),
) -> None:
    """Write a published or pickled checkpoint anew in our format: safetensors, every parameter accounted for.

    Example: babelcap model import downloads/published -o models/published
    """
    from babelcap.models import import_checkpoint

    model = import_checkpoint(
        source,
        output,
        encoder_tokenizer=encoder_tokenizer,
        decoder_tokenizer=decoder_tokenizer,
        with_tokenizers=not without_tokenizers,
        dtype=dtype,
        full_coverage=full_coverage,
    )
    if not without_tokenizers:
        from babelcap.models.checkpoints.tokenizers import load_tokenizers, tokenizer_doubts

        for line in tokenizer_doubts(model.config, *load_tokenizers(Path(output))):
            typer.echo(f"babelcap: {line}", err=True)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    typer.echo(f"{output}: {num_parameters / 1e6:,.1f} M parameters")


@group.command()
def check(
    folder: str = typer.Argument(..., help="A captioner's folder."),
    write: bool = typer.Option(False, help="Write a manifest of the files as they are now, where there is none."),
    as_json: bool = typer.Option(False, "--json", help="Print plain data for a script."),
) -> None:
    """Compare every file of a captioner with its manifest and read every weight; one line a problem, exit code 1.

    Example: babelcap model check models/0.4B
    """
    from babelcap.models.checkpoints.checking import check_captioner

    found = check_captioner(folder, write=write)
    if as_json:
        typer.echo(json.dumps(found._asdict(), indent=2))
    else:
        for line in [*found.problems, *found.notes]:
            typer.echo(line)
        if not found.problems:
            typer.echo(f"{folder}: {found.num_files} files and {found.num_weights} weights are well")
    if found.problems:
        raise typer.Exit(1)


@group.command()
def quantise(
    folder: str = typer.Argument(..., help="A captioner's folder."),
    output: str = typer.Option(..., "--output", "-o", help="The new model's folder."),
    kind: str = typer.Option("int8", help="int8: whole numbers from -127 to 127, a scale for each row."),
    as_json: bool = typer.Option(False, "--json", help="Print the counts for a script."),
) -> None:
    """Round the weights that decoding reads, head included: smaller on disk and several times as fast on a CPU.

    Example: babelcap model quantise models/0.4B -o models/0.4B-int8
    """
    from babelcap.models.checkpoints.quantising import quantise_folder

    found = quantise_folder(folder, output, kind)
    if as_json:
        typer.echo(json.dumps(found._asdict(), indent=2))
        return
    share = found.num_rounded / found.num_weights
    sizes = f"{found.bytes_before / 2**20:,.1f} to {found.bytes_after / 2**20:,.1f} MiB"
    typer.echo(f"{output}: {share:.0%} of {found.num_weights / 1e6:,.1f} M weights rounded; {sizes}")


@group.command()
def average(
    folders: list[str] = typer.Argument(..., help="Captioners that were trained from the same start."),
    output: str = typer.Option(..., "--output", "-o", help="The new model's folder."),
    share: list[float] = typer.Option(
        None, min=0, max=1, help="Of each, in their order; equal by default. May be given repeatedly."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the counts for a script."),
) -> None:
    """Take the mean of the weights of captioners that were trained from the same start, such as two stages of one.

    Example: babelcap model average runs/a/budget-001200/model runs/b/budget-001200/model -o models/mean
    """
    from babelcap.models.surgery.average import average_folders

    found = average_folders(folders, output, share or ())
    if as_json:
        typer.echo(json.dumps(found._asdict(), indent=2))
        return
    moved = f"{found.num_different / 1e6:,.1f} of {found.num_weights / 1e6:,.1f} M weights are not those of the first"
    typer.echo(f"{output}: the mean of {found.num_models} captioners; {moved}")


@group.command()
def push(
    folder: str = typer.Argument(..., help="A captioner's folder."),
    repository: str = typer.Argument(..., help="Its name on the hub, owner/model."),
    private: bool = typer.Option(False, help="Make the repository a private one where it is new."),
    dry_run: bool = typer.Option(False, help="Write the model card (README.md) only."),
) -> None:
    """Check a captioner, write its model card and upload it to the hub.

    Example: babelcap model push models/0.4B owner/captioner --dry-run
    """
    from babelcap.models.checkpoints.hub import push_captioner

    typer.echo(push_captioner(folder, repository, private=private, dry_run=dry_run))


@group.command()
def shortlist(
    corpus: str = typer.Argument(..., help="A corpus folder, as `babelcap data` writes it."),
    language: list[str] = typer.Option(..., "--language", "-l", help="Language code; may be given several times."),
    model: str = typer.Option(
        ..., help="The model's folder: its tokenizer is used, and the shortlist is written there."
    ),
    split: str | None = typer.Option(None, help="Only this split's texts."),
    as_json: bool = typer.Option(False, "--json", help="Print the counts for a script."),
) -> None:
    """Note which tokens a language uses, so that generation multiplies and allows no others.

    Example: babelcap model shortlist corpora/cc12m --language zh --model models/0.4B
    """
    from babelcap.data.store.store import Corpus
    from babelcap.models.checkpoints.processor import load_processor
    from babelcap.models.generation.shortlist import build_shortlist, write_shortlist
    from babelcap.models.sizing.info import read_size_or_folder

    opened = Corpus.open(corpus)
    processor = load_processor(model)
    vocab_size = read_size_or_folder(model).vocab_size
    counts = {}
    for code in language:
        ids = build_shortlist(opened, code, processor.decoder_tokenizer, split=split)
        path = write_shortlist(model, code, ids, vocab_size, origin=corpus)
        counts[code] = len(ids)
        if not as_json:
            typer.echo(f"{path}: {len(ids):,} of {vocab_size:,} tokens")
    if as_json:
        typer.echo(json.dumps({"vocab_size": vocab_size, "num_tokens": counts}))


@group.command("mean-image")
def mean_image(
    corpus: str = typer.Argument(..., help="A corpus folder, as `babelcap data` writes it."),
    model: str = typer.Option(..., help="The model's folder; the mean image is written there."),
    split: str = typer.Option("train", help="The split whose images are taken."),
    num: int = typer.Option(1000, min=1, help="At most so many, evenly spread over the split."),
) -> None:
    """Take the mean of many images' features, which guidance compares a picture with.

    Example: babelcap model mean-image corpora/photos --model models/mine
    Then: babelcap caption my.jpg -l fr -m models/mine --guidance-scale 2
    """
    from babelcap.data.store.index import CorpusIndex
    from babelcap.jobs.progress import progress
    from babelcap.models.generation.guidance import mean_of, write_mean_image
    from babelcap.models.inference import load

    index = CorpusIndex.open(corpus)
    known, core = index.images(split), load(model)
    numbers = known[:: -(-len(known) // num)]

    def encoded(advance: Callable[[int], None]) -> Iterator["Tensor"]:
        for start in range(0, len(numbers), IMAGES_AT_ONCE):
            some = numbers[start : start + IMAGES_AT_ONCE]
            yield core.encode_pixels(core.processor.encode_images(map(index.read_image, some)))
            advance(len(some))

    with progress("Images", len(numbers)) as advance:
        tokens = mean_of(encoded(advance))
    typer.echo(f"{write_mean_image(model, tokens)}: the mean of {len(numbers):,} images of '{split}'")


@group.command()
def freezing(
    as_json: bool = typer.Option(False, "--json", help="Print plain data for a script."),
) -> None:
    """List the freezing policies. `babelcap model info MODEL --policy NAME` shows what trains under one.

    Example: babelcap model freezing
    """
    from babelcap.models.sizing.freezing import POLICIES

    meanings = {name: policy.meaning for name, policy in POLICIES.items()}
    if as_json:
        typer.echo(json.dumps(meanings, indent=2))
        return
    for name, meaning in meanings.items():
        typer.echo(f"{name:16} {meaning}")
