"""`babelcap data self-caption`: a captioner's own captions, chosen by what people wrote, as texts to train on."""

from pathlib import Path

import typer

from babelcap.cli.imports import OUTPUT, report
from babelcap.measures import TRAIN


def self_caption(
    corpus: Path = typer.Argument(..., help="A corpus with captions by people, in other languages."),
    output: Path = OUTPUT,
    model: str = typer.Option(..., "--model", "-m", help="Folder, hub id or name of the captioner."),
    language: str = typer.Option(..., "--language", "-l", help="Languages without captions, such as fr,es,ru,zh."),
    split: str = typer.Option(TRAIN, help="Whose images are captioned; the others keep their texts."),
    candidates: int = typer.Option(
        4, min=1, max=64, help="Texts of an image and language that are judged: beams of the search."
    ),
    max_new_tokens: int = typer.Option(32, min=1, max=4096, help="Tokens of a caption at most."),
    max_place: float = typer.Option(
        0.02, min=1e-6, max=1.0, help="Keep a caption that at most this share of the other images fit as well."
    ),
    guidance_scale: float = typer.Option(None, min=0.01, max=100.0, help="By default the captioner's own; 1 is none."),
    quantise: str = typer.Option(None, help="int8: decode with whole numbers, faster on a CPU."),
    batch_size: int = typer.Option(16, min=1, max=4096, help="Captions generated at once."),
    tars: int = typer.Option(
        None, "--tars", min=1, max=10**6, help="Caption images of at most so many tars; more can follow."
    ),
    workers: int = typer.Option(1, "--workers", min=1, max=1024, help="Processes; each holds the captioner."),
) -> None:
    """Let a captioner caption in languages that nobody captioned in, and keep what agrees with what people wrote.

    Each caption is compared with people's captions of all images, in a multilingual space of sentences; it is kept
    where it fits its own image better than nearly all others. The new corpus lies on the same tars and has these
    captions beside the others: train on it as on any. Stopped, the same command goes on with the tars that are left.
    The encoder of sentences and the test of languages are extras: sentences, language.

    Example: babelcap data self-caption corpora/photos --model photos -l fr,es,ru,zh -o corpora/photos-self
    """
    from babelcap.generate.self_captions import SelfCaptionSettings, add_self_captions

    settings = SelfCaptionSettings(
        languages=tuple(dict.fromkeys(code.strip() for code in language.split(","))),
        split=split,
        num_candidates=candidates,
        max_new_tokens=max_new_tokens,
        max_place=max_place,
        guidance_scale=guidance_scale,
        quantise=quantise,
        batch_size=batch_size,
    )
    report(add_self_captions(corpus, model, output, settings, num_tars=tars, num_workers=workers))
