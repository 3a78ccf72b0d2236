"""`babelcap eval`: what a model is worth on a corpus; on benchmarks, see benchmarks.py."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from babelcap.cli import benchmarks, photographs

if TYPE_CHECKING:
    from babelcap.data.store.index import CorpusIndex
    from babelcap.records import EvalResult

group = typer.Typer(
    no_args_is_help=True,
    help="Measure a model: its losses, how true its captions are, and what it and others score on benchmarks.",
)
for _command in (benchmarks.predict, benchmarks.score, benchmarks.run, benchmarks.table, benchmarks.show):
    group.command()(_command)
group.command()(photographs.photos)
group.command("setup-comet")(benchmarks.setup_comet)


@group.command()
def loss(
    model: str = typer.Argument(help="Folder or hub id of a captioner.", show_default=False),
    corpus: Path = typer.Argument(help="Folder of a corpus.", show_default=False),
    split: str = typer.Option(None, help="Split of the corpus; by default the one that is there of eval, val, test."),
    pairs: list[str] = typer.Option(None, "--pair", help="A pair such as caption-es; by default those of UC, ST, SC."),
    image_size_px: int = typer.Option(None, min=32, help="Side of the square image; by default the model's own."),
    batch_size: int = typer.Option(32, min=1, help="Samples of one forward pass."),
    limit: int = typer.Option(None, min=1, help="At most so many samples of each pair."),
    workers: int = typer.Option(0, min=0, help="Processes that read ahead."),
    shuffled: bool = typer.Option(True, help="Also with another image's picture: what the gap says is what it sees."),
    calibrated: bool = typer.Option(False, "--calibrated", help="Also after the best temperature, fitted apart."),
    json_output: bool = typer.Option(False, "--json", help="Print the results as JSON."),
) -> None:
    """Cross-entropy per pair and for UC, ST and SC.

    Raw (the paper's); prefix_given, what follows the language's prefix, of the targets that begin with it; conditioned,
    without as many first tokens as the prefix has; and the parts that raw is the sum of: the choice of language, in a
    world the content, and the wording. As the mean of per-sample means (the paper's) and per token; with the own
    picture and with another's.

    \b
    babelcap eval loss runs/pretrain-0.4B/budget-010000/model corpora/cc12m --json
    """
    from babelcap.data.store.index import CorpusIndex

    index = CorpusIndex.open(corpus)
    chosen = _choose_split(index, split)
    from babelcap.data.feed.batches import BatchConfig
    from babelcap.evaluation.loss import LossEvaluation, evaluate_loss, measured_pairs
    from babelcap.models import load_model, load_processor
    from babelcap.world.corpus import TRUTH
    from babelcap.world.parser import content_spans

    captioner, processor = load_model(model, dtype="float32"), load_processor(model)
    coverage = captioner.config.get_coverage()
    wanted = tuple(coverage.pair(pair) for pair in pairs or [])
    if not wanted:
        wanted = measured_pairs(index, coverage, chosen)
        missing = [str(pair) for pair in coverage.evaluated_pairs if pair not in wanted]
        if missing:
            typer.echo(f"babelcap: split '{chosen}' has no {', '.join(missing)}; evaluated without", err=True)
    options = LossEvaluation(
        BatchConfig(image_size_px=image_size_px or captioner.config.image_size_px),
        split=chosen,
        pairs=wanted,
        batch_size=batch_size,
        limit=limit,
        num_workers=workers,
        shuffled=shuffled,
        content_spans=content_spans if (corpus / TRUTH).is_file() else None,
        calibrated=calibrated,
    )
    results = evaluate_loss(captioner, processor, index, coverage, options)
    if json_output:
        typer.echo(f"[{', '.join(result.model_dump_json() for result in results)}]")
    else:
        _print_table(results)


@group.command()
def captions(
    model: str = typer.Argument(help="Folder or hub id of a captioner.", show_default=False),
    corpus: Path = typer.Argument(help="Folder of a world (babelcap world make), which knows what is in a picture."),
    split: str = typer.Option(None, help="Split of the corpus: eval, or holdout for unseen combinations."),
    variants: list[str] = typer.Option(None, "--variant", help="plain, prefix, shortlist, prefix+shortlist; all."),
    num: int = typer.Option(None, min=1, help="At most so many pictures; each is captioned in every language."),
    style: str = typer.Option("short", help="short, detailed or more_detailed."),
    num_beams: int = typer.Option(1, min=1, help="Beams of the search; 1 is greedy."),
    max_new_tokens: int = typer.Option(64, min=1, help="Tokens of a caption at most."),
    batch_size: int = typer.Option(64, min=1, help="Captions generated at once."),
    texts: bool = typer.Option(False, "--texts", help="With --json: the captions too."),
    json_output: bool = typer.Option(False, "--json", help="Print the results as JSON."),
) -> None:
    """How many captions are in the right language, and how much of what they say is true; against chance.

    \b
    babelcap eval captions studies/micro/runs/RUN/budget-001000/model studies/micro/world/WORLD --num 50
    """
    import json

    from babelcap.coverage import check_style
    from babelcap.data.store.index import CorpusIndex
    from babelcap.measures import VARIANTS, check_variant

    look, wanted = check_style(style), tuple(check_variant(variant) for variant in variants or VARIANTS)
    index = CorpusIndex.open(corpus)
    from babelcap.evaluation.captions import CaptionEvaluation, evaluate_captions
    from babelcap.models import load_model, load_processor

    options = CaptionEvaluation(
        split=_choose_split(index, split),
        variants=wanted,
        num_pictures=num,
        style=look,
        num_beams=num_beams,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
    )
    captioner, processor = load_model(model, dtype="float32"), load_processor(model)
    results, generated = evaluate_captions(captioner, processor, index, captioner.config.get_coverage(), options)
    if not json_output:
        _print_table(results)
        return
    values = {"results": [json.loads(result.model_dump_json()) for result in results]}
    if texts:
        values["captions"] = [caption.values() for caption in generated]
    typer.echo(json.dumps(values, ensure_ascii=False))


def _choose_split(index: "CorpusIndex", wanted: str | None) -> str:
    """Says which it is where that is not plain."""
    from babelcap.evaluation.splits import choose_split
    from babelcap.measures import EVAL

    chosen = choose_split(index.corpus, wanted)
    if wanted is None and chosen != EVAL:
        typer.echo(f"babelcap: no split '{EVAL}' in {index.corpus.folder}; evaluated on '{chosen}'", err=True)
    return chosen


def _print_table(results: "list[EvalResult]") -> None:
    import math

    from rich.console import Console
    from rich.table import Table

    def shown(value: float | None) -> str:
        return "" if value is None else "nothing named" if math.isnan(value) else f"{value:.3f}"

    rows = [*results[0].per_split, *results[0].per_pair]
    table = Table("measure", *rows)
    for result in results:
        values = result.per_split | result.per_pair
        table.add_row(result.measure, *(shown(values.get(name)) for name in rows))
    table.add_row("samples", *(str(results[0].num_samples.get(name, "")) for name in rows))
    Console(width=max(100, 40 + 16 * len(rows))).print(table)
