"""`babelcap eval`: what a model is worth on a corpus."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from babelcap.records import EvalResult

group = typer.Typer(no_args_is_help=True, help="Measure a model: its losses, and how true its captions are.")


@group.command()
def loss(
    model: str = typer.Argument(help="Folder or hub id of a captioner.", show_default=False),
    corpus: Path = typer.Argument(help="Folder of a corpus.", show_default=False),
    split: str = typer.Option("eval", help="Split of the corpus."),
    pairs: list[str] = typer.Option(None, "--pair", help="A pair such as caption-es; by default those of UC, ST, SC."),
    image_size_px: int = typer.Option(None, help="Side of the square image; by default the model's own."),
    batch_size: int = typer.Option(32, help="Samples of one forward pass."),
    limit: int = typer.Option(None, help="At most so many samples of each pair."),
    workers: int = typer.Option(0, help="Processes that read ahead."),
    shuffled: bool = typer.Option(True, help="Also with another image's picture: what the gap says is what it sees."),
    json_output: bool = typer.Option(False, "--json", help="Print the results as JSON."),
) -> None:
    """Cross-entropy per pair and for UC, ST and SC.

    Raw, and conditioned on the language prefix (the first tokens carry the choice of language, the rest the content);
    as the mean of per-sample means (the paper's) and per token; with the own picture and with another's.

    \b
    babelcap eval loss runs/pretrain-0.4B/budget-010000/model corpora/cc12m --json
    """
    import json

    from babelcap.data.feed.batches import BatchConfig
    from babelcap.data.store.index import CorpusIndex
    from babelcap.evaluation.loss import evaluate_loss
    from babelcap.models import load_model, load_processor

    captioner, processor = load_model(model, dtype="float32"), load_processor(model)
    coverage = captioner.config.get_coverage()
    results = evaluate_loss(
        captioner,
        processor,
        CorpusIndex.open(corpus),
        coverage,
        BatchConfig(image_size_px=image_size_px or captioner.config.image_size_px),
        split,
        [coverage.pair(pair) for pair in pairs or []] or None,
        batch_size,
        limit,
        workers,
        shuffled,
    )
    if json_output:
        typer.echo(json.dumps([result.model_dump(mode="json") for result in results], ensure_ascii=False))
    else:
        _print_table(results)


@group.command()
def captions(
    model: str = typer.Argument(help="Folder or hub id of a captioner.", show_default=False),
    corpus: Path = typer.Argument(help="Folder of a world (babelcap world make), which knows what is in a picture."),
    split: str = typer.Option("eval", help="Split of the corpus: eval, or holdout for unseen combinations."),
    variants: list[str] = typer.Option(None, "--variant", help="plain, prefix, shortlist, prefix+shortlist; all."),
    num: int = typer.Option(None, help="At most so many pictures; each is captioned in every language."),
    style: str = typer.Option("short", help="short, detailed or more_detailed."),
    beams: int = typer.Option(1, help="Beams of the search; 1 is greedy."),
    max_new_tokens: int = typer.Option(64, help="Tokens of a caption at most."),
    batch_size: int = typer.Option(64, help="Captions generated at once."),
    texts: bool = typer.Option(False, "--texts", help="With --json: the captions too."),
    json_output: bool = typer.Option(False, "--json", help="Print the results as JSON."),
) -> None:
    """How many captions are in the right language, and how much of what they say is true; against chance.

    \b
    babelcap eval captions studies/micro/runs/RUN/budget-001000/model studies/micro/world/WORLD --num 50
    """
    import json

    from babelcap.coverage import Style
    from babelcap.data.store.index import CorpusIndex
    from babelcap.errors import UserError
    from babelcap.evaluation.captions import VARIANTS, check_variant, evaluate_captions
    from babelcap.models import load_model, load_processor

    if style not in set(Style):
        raise UserError(f"--style: '{style}' is unknown; known: {', '.join(Style)}")
    captioner, processor = load_model(model, dtype="float32"), load_processor(model)
    wanted = [check_variant(variant) for variant in variants or VARIANTS]
    results, generated = evaluate_captions(
        captioner,
        processor,
        CorpusIndex.open(corpus),
        captioner.config.get_coverage(),
        split,
        wanted,
        num,
        Style(style),
        beams,
        max_new_tokens,
        batch_size,
    )
    if not json_output:
        _print_table(results)
        return
    values = {"results": [result.model_dump(mode="json") for result in results]}
    if texts:
        values["captions"] = [caption._asdict() | {"score": caption.score.model_dump()} for caption in generated]
    typer.echo(json.dumps(values, ensure_ascii=False))


def _print_table(results: "list[EvalResult]") -> None:
    from rich.console import Console
    from rich.table import Table

    rows = [*results[0].per_split, *results[0].per_pair]
    table = Table("measure", *rows)
    for result in results:
        values = result.per_split | result.per_pair
        table.add_row(result.measure, *(f"{values[name]:.3f}" if name in values else "" for name in rows))
    table.add_row("samples", *(str(results[0].num_samples.get(name, "")) for name in rows))
    Console(width=max(100, 40 + 16 * len(rows))).print(table)
