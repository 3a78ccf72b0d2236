"""babelcap world: make a small world of pictures and sentences with known truth, look at it, read sentences back."""

from pathlib import Path
from typing import Literal

import typer

group = typer.Typer(
    no_args_is_help=True,
    help="A small world of pictures and sentences in six languages, whose truth is known.\n\n"
    "Example: babelcap world make -o w --images 5000, then babelcap data show w.",
)


@group.command()
def make(
    output: Path = typer.Option(..., "-o", "--output", help="The folder to write; it must not exist yet."),
    images: int | None = typer.Option(None, min=0, help="Pictures of the training split. [default: 5000]"),
    eval_images: int | None = typer.Option(None, min=0, help="Pictures of the eval split. [default: 500]"),
    holdout_images: int | None = typer.Option(
        None, min=0, help="Pictures of nouns in colours that training never shows together. [default: 200]"
    ),
    size_px: int | None = typer.Option(None, min=16, max=1024, help="Side of a picture. [default: 64]"),
    image_format: str | None = typer.Option(None, "--format", help="png or jpg. [default: png]"),
    seed: int | None = typer.Option(None, min=0, help="The same seed gives the same bytes. [default: 0]"),
    match_probability: float | None = typer.Option(
        None,
        min=0,
        max=1,
        help="With which probability an attribute of a translation is the picture's; 0 = unrelated. [default: .9]",
    ),
    translations_per_image: int | None = typer.Option(None, min=0, help="For each language; 0 = none. [default: 2]"),
    coverage: Literal["incomplete", "full"] = typer.Option(
        "incomplete", help="incomplete: captions in the seen languages only; full: in all six, for fine-tuning."
    ),
    text_lines: int | None = typer.Option(
        None, min=0, help="Lines of text without pictures, of each kind and language. [default: 5000]"
    ),
    workers: int | None = typer.Option(None, min=1, help="Processes. [default: 2]"),
    config: Path | None = typer.Option(None, help="A TOML file of the same settings, and of the coverage."),
    overrides: list[str] | None = typer.Argument(None, help="Settings as key=value, e.g. num_decoder_tokens=3000."),
) -> None:
    """Write a corpus with its truth, text without pictures, and tokenizers.

    Example: babelcap world make -o w --images 5000 --size-px 64 --seed 1
    """
    from babelcap.config import load_config
    from babelcap.world.corpus import WorldConfig, make_world

    given = {
        "num_images": images,
        "num_eval_images": eval_images,
        "num_holdout_images": holdout_images,
        "size_px": size_px,
        "image_format": image_format,
        "seed": seed,
        "match_probability": match_probability,
        "translations_per_image": translations_per_image,
        "num_text_lines": text_lines,
        "num_workers": workers,
    }
    options = [f"{name}={value}" for name, value in given.items() if value is not None]
    settings = load_config(WorldConfig, config, [*options, *(overrides or [])])
    if coverage == "full":
        settings = settings.model_copy(update={"coverage": settings.coverage.full()})
    make_world(output, settings)
    typer.echo(f"{output}: {settings.num_images} training pictures; next: babelcap data show {output}")


@group.command()
def benchmarks(
    output: Path = typer.Option(..., "-o", "--output", help="Folder of benchmarks; gets a folder `world`."),
    world: Path | None = typer.Option(None, help="Take the settings of this world, made by `babelcap world make`."),
    config: Path | None = typer.Option(None, help="Or a TOML file of such settings. [default: those of `make`]"),
    captioned: int = typer.Option(100, min=2, help="Pictures of the eval split with five captions in every language."),
    translated: int = typer.Option(100, min=1, help="Pictures of the eval split with a sentence to translate."),
    pairs: int = typer.Option(100, min=1, help="Pairs of pictures of the ambiguity test."),
    overrides: list[str] | None = typer.Argument(None, help="Settings of the world as key=value, e.g. seed=3."),
) -> None:
    """Write the world's twins of the benchmarks: world-captioning, world-translation and world-ambiguity.

    Captions and translations are of the world's eval split. In the ambiguity test a word of the source is hidden, and
    only the picture says which of two translations is right.

    Example: babelcap world benchmarks -o benchmarks --world w
    """
    from babelcap.config import load_config
    from babelcap.errors import UserError
    from babelcap.world.benchmarks import TwinSizes, make_benchmarks, world_settings
    from babelcap.world.corpus import WorldConfig

    if world is not None and (config is not None or overrides):
        raise UserError("--world: its settings are those of the world; give no --config and no key=value beside it")
    settings = world_settings(world) if world is not None else load_config(WorldConfig, config, overrides or [])
    sizes = TwinSizes(num_captioned=captioned, num_translated=translated, num_pairs=pairs)
    make_benchmarks(output, settings, sizes)
    typer.echo(f"{output / 'world'}: world-captioning, world-translation, world-ambiguity")


@group.command()
def tokenizers(
    corpus: Path = typer.Argument(..., help="A folder made by `babelcap world make`."),
    output: Path = typer.Option(..., "-o", "--output", help="Gets encoder/ and decoder/; it must not exist yet."),
    encoder_tokens: int = typer.Option(1000, min=300, help="At most so many tokens of English."),
    decoder_tokens: int = typer.Option(4000, min=700, help="At most so many tokens of all languages."),
) -> None:
    """Train tokenizers of other sizes than those that `make` put into CORPUS/tokenizers.

    Example: babelcap world tokenizers w -o small --decoder-tokens 2500
    """
    from babelcap.data.store.store import Corpus
    from babelcap.storage import atomic_folder
    from babelcap.world.corpus import TRAIN, read_free_text, tokenizer_text
    from babelcap.world.tokenizers import save_tokenizers, train_decoder_tokenizer, train_encoder_tokenizer

    opened = Corpus.open(corpus)
    training = [annotation for row in opened.rows(TRAIN) for annotation in row.annotations]
    english, every = tokenizer_text(training, read_free_text(corpus, opened.coverage), opened.coverage)
    with atomic_folder(output) as partial:
        encoder = train_encoder_tokenizer(english, opened.coverage, encoder_tokens)
        decoder = train_decoder_tokenizer(every, opened.coverage, decoder_tokens)
        save_tokenizers(partial, encoder, decoder)
    typer.echo(f"{output}: encoder {encoder.get_vocab_size()} tokens, decoder {decoder.get_vocab_size()} tokens")


@group.command()
def base(
    output: Path = typer.Option(..., "-o", "--output", help="Gets a folder for each base; those there are kept."),
    size: list[str] | None = typer.Option(
        None, help="micro-florence-s, micro-gemma-l, ...; several times for several. [default: all micro sizes]"
    ),
    variant: list[str] | None = typer.Option(
        None, help="english, european or balanced: the shares of the languages. [default: all]"
    ),
    seed: int | None = typer.Option(None, min=0, help="Of scenes, texts and first weights. [default: 1000]"),
    shipped: bool = typer.Option(True, help="Take what the package brings where the recipe is the same."),
    ship: Path | None = typer.Option(None, help="Also write them as the package brings them, into this folder."),
    as_json: bool = typer.Option(False, "--json", help="Print the folders as JSON."),
    overrides: list[str] | None = typer.Argument(None, help="Settings as key=value, e.g. caption_steps=200."),
) -> None:
    """Build base models in small: a vision tower, English captioners (Florence-like), language models (Gemma-like).

    Those of the package were made by: babelcap world base -o bases --no-shipped --ship src/babelcap/bases/shipped

    Example: babelcap world base -o bases --size micro-gemma-s --variant balanced
    """
    import json

    from babelcap.bases.config import BaseConfig
    from babelcap.bases.recipe import build_parts, ship_bases, wanted_bases
    from babelcap.config import load_config
    from babelcap.models.sizing.sizes import SIZES

    options = [f"use_shipped={str(shipped).lower()}"] + ([] if seed is None else [f"seed={seed}"])
    settings = load_config(BaseConfig, None, [*options, *(overrides or [])])
    sizes = size or [name for name in SIZES if name.startswith("micro")]
    variants = variant or list(settings.variants)
    folders = build_parts(output, settings, sizes, variants)
    if ship is not None:
        ship_bases(output, ship, wanted_bases(settings, sizes, variants))
    typer.echo(json.dumps(list(map(str, folders)), indent=2) if as_json else "\n".join(map(str, folders)))


@group.command()
def sample(
    language: str = typer.Option("en", help="en, de, fr, es, ru or zh."),
    num: int = typer.Option(10, min=1, help="How many texts."),
    kind: Literal["captions", "web"] = typer.Option("captions", help="Captions, or sentences as found on the web."),
    seed: int = typer.Option(0, min=0, help="Another seed gives others."),
) -> None:
    """Print texts of the world, to proofread them.

    Example: babelcap world sample --language de --num 10
    """
    from babelcap.world.annotate import draw_free_text
    from babelcap.world.realise import grammar_of, realise
    from babelcap.world.scenes import generator

    code = grammar_of(language).code
    for index in range(num):
        typer.echo(realise(draw_free_text(generator(seed, "sample", index), kind), code))


@group.command()
def show(
    num: int = typer.Option(3, min=0, help="How many scenes to describe."),
    seed: int = typer.Option(0, min=0, help="Another seed gives others."),
    output: Path | None = typer.Option(None, "-o", "--output", help="Also draw every noun in every colour (PNG)."),
    size_px: int = typer.Option(64, min=16, max=512, help="Side of a drawing."),
) -> None:
    """Print scenes with their captions in six languages, and draw a sheet of everything that there is.

    Example: babelcap world show --num 2 -o sheet.png
    """
    from babelcap.coverage import Style
    from babelcap.world.message import plan_caption
    from babelcap.world.realise import LANGUAGE_CODES, realise
    from babelcap.world.scenes import draw_scene, generator

    for index in range(num):
        rng = generator(seed, "show", index)
        scene = draw_scene(rng)
        typer.echo(scene.model_dump_json(exclude_none=True))
        plan = plan_caption(scene, list(Style)[index % len(Style)], rng)
        for code in LANGUAGE_CODES:
            typer.echo(f"  {code}  {realise(plan, code)}")
    if output is not None:
        from babelcap.world.render import encode, sheet

        output.write_bytes(encode(sheet(size_px, seed)))


@group.command()
def parse(
    text: str = typer.Argument(..., help="A text in any of the six languages."),
    language: str | None = typer.Option(None, help="Its language; guessed where it is not given."),
) -> None:
    """Read a text back: what it claims, its language, and whether the grammar would say it so. Prints JSON.

    Example: babelcap world parse "Das Bild zeigt einen roten Ball links von zwei blauen Häusern."
    """
    import json

    from babelcap.errors import UserError
    from babelcap.world.inverse import parse_strict
    from babelcap.world.parser import guess_language, parse_text
    from babelcap.world.realise import grammar_of

    guessed = guess_language(text)
    code = language or guessed
    if code is None:
        raise UserError("language: could not be guessed from the text; give it with --language")
    claims = parse_text(text, grammar_of(code).code)
    value = {
        "language": guessed,
        "well_formed": parse_strict(text, code) is not None,
        "things": [vars(claim) for claim in sorted(claims.things, key=str)],
        "places": sorted(claims.places),
        "relations": sorted(claims.relations),
        "grounds": sorted(claims.grounds),
    }
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
