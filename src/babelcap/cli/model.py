"""`babelcap model`: what a model is and costs, and how one is made of others."""

import json
from typing import Any

import typer

group = typer.Typer(no_args_is_help=True, help="Size up, prepare, import and narrow models.")


@group.command()
def info(
    model: str = typer.Argument(..., help="A size (0.4B, 1.0B, 3.5B, 11.2B, micro-...) or a model's folder."),
    policy: str = typer.Option("pretraining", help="Freezing policy: pretraining, finetuning, all, cross-attention."),
    image_size_px: int | None = typer.Option(None, "--image-size", help="Pixels a side; the model's own by default."),
    as_json: bool = typer.Option(False, "--json", help="Print plain data for a script."),
) -> None:
    """Parameters, what trains, multiply-accumulates and memory of a model, counted in seconds without its weights.

    Example: babelcap model info 3.5B --policy finetuning
    """
    from babelcap.models.info import model_info, read_size_or_folder

    found = model_info(read_size_or_folder(model), image_size_px, policy)
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
