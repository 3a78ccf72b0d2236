"""`babelcap laws`: fit, compare, predict and plan with scaling laws."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from babelcap.cli.points import POINTS, POINTS_OR_LAW, Wanted, fit_table, with_points
from babelcap.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from babelcap.laws import Fit

group = typer.Typer(
    no_args_is_help=True,
    help="Fit scaling laws to finished runs, test them, and plan with them. Forms: compute, ps, pst, chinchilla, "
    "power:COLUMN,COLUMN,...; add '+eps' for a floor, as in 'pst+eps'.",
)

FORM = typer.Option("ps", "--form", help="The law: compute, ps, pst, chinchilla or power:P,S,...; '+eps' adds a floor.")
AT = typer.Option(None, "--at", help="Where: P=11.2e9,S=10.24e6 (and T=..., or C=...).")
JSON = typer.Option(False, "--json", help="Print JSON for a script to read.")


def _values(text: str | None) -> dict[str, float]:
    from babelcap.laws import parse_map

    found = {}
    for name, value in parse_map(text, "at", "P=11.2e9,S=10.24e6").items():
        try:
            found[name] = float(value)
        except ValueError:
            raise UserError(f"at: {name}={value}; give a number, as in P=11.2e9") from None
    return found


def _pair(name: str, text: str) -> tuple[float, float]:
    try:
        first, second = map(float, text.split(","))
    except ValueError:
        raise UserError(f"{name}: found {text!r}; give two numbers with a comma, as 6,4") from None
    return first, second


def _finite(value: Any) -> Any:
    """JSON knows no infinity: what has no bound becomes null."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(_finite(value), ensure_ascii=False, indent=2, allow_nan=False))


def _significant(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "no bound"


def _between(ends: tuple[float, float] | None, start: str) -> str:
    return f"{start}{_significant(ends[0])} to {_significant(ends[1])} (95 %)" if ends else ""


@group.command("fit")
@with_points
def fit_command(
    wanted: Wanted,
    points: Path = POINTS,
    form: str = FORM,
    interval: str = typer.Option("auto", "--interval", help="auto, t, profile, percentile or bca."),
    bootstrap: int = typer.Option(1000, "--bootstrap", min=20, max=1_000_000, help="Bootstrap replicates."),
    seed: int = typer.Option(0, "--seed", min=0, help="Seed of the bootstrap."),
    frontier: bool = typer.Option(False, "--frontier", help="Only runs on the compute frontier; of seeds, their mean."),
    figures: Path = typer.Option(None, "--figures", help="Folder for the figures, PNG and SVG."),
    as_json: bool = JSON,
) -> None:
    """Fit a law and say how sure it is. Several targets, as UC,ST,SC, are fitted one by one.

    Of a study's runs a law takes the main runs of one family, and says which it left out.

    Examples: babelcap laws fit runs.jsonl --form pst --target UC,ST,SC --figures figures
    babelcap laws fit table.csv --form chinchilla --map P=params,S=tokens,y=loss
    """
    source = wanted.read(points)
    tables = {name: wanted.table(source, name, form) for name in source.targets(wanted.target)}
    settings = {"interval": interval, "num_bootstrap": bootstrap, "seed": seed, "frontier_only": frontier}
    fits = {name: fit_table(table, form, **settings) for name, table in tables.items()}
    if as_json:
        records = [fits[name].to_record().model_dump(mode="json") for name in fits]
        for record, table in zip(records, tables.values(), strict=True):
            record["extra"]["points"] = table.taken
        _print_json(records[0] if len(records) == 1 else records)
    else:
        for name, fitted in fits.items():
            _show_fit(fitted, tables[name].taken)
    if figures is not None:
        from babelcap.report.figures import law_figures

        paths = law_figures(fits, figures, {name: table.columns | {"y": table.y} for name, table in tables.items()})
        typer.echo(f"{len(paths)} figures in {figures}", err=True)


def _show_fit(fitted: "Fit", taken: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"[bold]{fitted.form.formula}[/bold]   {fitted.target}, {len(fitted.points)} points", highlight=False)
    console.print(taken, highlight=False, markup=False)
    level = f"{100 * fitted.confidence:g} % interval ({fitted.interval_method})"
    table = Table("coefficient", "estimate", level, "standard error", *(["p"] if fitted.p_values else []))
    for name in fitted.form.coefficients:
        low, high = fitted.intervals[name]
        identified = name not in fitted.not_identified
        row = [
            name,
            _significant(fitted.coefficients[name]) if identified else "not identified",
            f"{_significant(low)} to {_significant(high)}",
            _significant(fitted.standard_errors[name]) if identified else "",
        ]
        table.add_row(*row, *([f"{fitted.p_values[name]:.2g}"] if fitted.p_values else []))
    console.print(table)
    console.print(
        f"R² {fitted.r2:.4f} (log {fitted.r2_log:.4f}), noise {100 * fitted.noise:.2g} %, AICc {fitted.aicc:.1f}"
    )
    _show_held_out(console, fitted)
    for line in fitted.warnings:
        console.print(f"[yellow]note[/yellow] {line}", highlight=False)


def _show_held_out(console: "Console", fitted: "Fit") -> None:
    from babelcap.laws import leave_largest_budget_out, leave_one_model_out

    for name, check in (("largest budget", leave_largest_budget_out), ("one model at a time", leave_one_model_out)):
        try:
            error = check(fitted)
        except UserError:
            continue
        console.print(
            f"left out, {name} ({error.what}): off by {100 * error.relative:.1f} % on average, "
            f"{100 * error.worst:.1f} % at worst",
            highlight=False,
        )


@group.command()
@with_points
def compare(
    wanted: Wanted,
    points: Path = POINTS,
    forms: str = typer.Option(
        "ps,ps+eps,pst,pst+eps,chinchilla", "--forms", help="Forms; power: forms with ';' between."
    ),
    as_json: bool = JSON,
) -> None:
    """Which form describes the runs best, by AICc and by its error on runs it has not seen.

    Example: babelcap laws compare runs.jsonl --target UC --forms ps,pst,chinchilla
    """
    from rich.console import Console
    from rich.table import Table

    from babelcap.laws import compare as compare_forms
    from babelcap.laws import parse_forms

    source = wanted.read(points)
    table = wanted.table(source, source.targets(wanted.target)[0], "pst")
    rows, refused = compare_forms(parse_forms(forms), table.columns, table.y, groups=table.groups, target=table.name)
    if as_json:
        _print_json({"points": table.taken, "forms": [asdict(row) for row in rows], "refused": refused})
        return
    console = Console()
    console.print(table.taken, highlight=False, markup=False)
    shown = Table("form", "coefficients", "AICc", "weight", "R² log", "largest budget left out", "models left out")
    for row in rows:
        held = [
            f"{100 * part.relative:.1f} %" if part else "too few points" for part in (row.largest_budget, row.one_model)
        ]
        shown.add_row(
            row.form, str(row.num_coefficients), f"{row.aicc:.1f}", f"{row.aicc_weight:.2f}", f"{row.r2_log:.4f}", *held
        )
    console.print(shown)
    for name, line in [*((row.form, line) for row in rows for line in row.warnings), *refused.items()]:
        console.print(f"[yellow]{name}[/yellow] {line}", highlight=False)


@group.command()
@with_points
def predict(wanted: Wanted, points: Path = POINTS_OR_LAW, at: str = AT, form: str = FORM, as_json: bool = JSON) -> None:
    """The loss that a law predicts, with the interval in which a new run will lie; of every test split unless named.

    Example: babelcap laws predict paper-v1 --at P=11.2218e9,S=10.24e6
    """
    from babelcap.laws import Fit

    where = _values(at)
    if not where:
        raise UserError("at: say where, as in --at P=11.2e9,S=10.24e6")
    results: list[dict[str, Any]] = []
    for name, law in wanted.laws(points, form, every=True).items():
        interval = None
        if isinstance(law, Fit):
            interval = tuple(float(end) for end in law.prediction_interval(where))
        notes = [*law.extrapolations(where), *law.warnings]
        results.append({"target": name, "prediction": float(law.predict(where)), "interval": interval, "notes": notes})
    if as_json:
        _print_json(results)
        return
    for result in results:
        typer.echo(f"{result['target']}  {result['prediction']:.4g}{_between(result['interval'], '  a new run: ')}")
    for line in dict.fromkeys(line for result in results for line in result["notes"]):
        typer.echo(f"note: {line}")


@group.command()
@with_points
def plan(
    wanted: Wanted,
    points: Path = POINTS_OR_LAW,
    budget: float = typer.Option(
        None, "--budget", min=0, help="Compute in multiply-accumulates: the best P and S for it."
    ),
    loss: float = typer.Option(None, "--loss", min=0, help="A loss to reach: the cheapest P and S for it."),
    lower_T: str = typer.Option(None, "--lower-t", help="T from and to, as 6,4: what that is worth in P and in S."),
    form: str = FORM,
    at: str = typer.Option(None, "--at", help="The law's other columns, as T=4."),
    limits: str = typer.Option(None, "--limits", help="Sizes allowed, as 1e8,1e11."),
    as_json: bool = JSON,
) -> None:
    """What to train next: for a compute budget, for a loss, or what a more multilingual base model is worth.

    Example: babelcap laws plan runs.jsonl --form chinchilla --target UC --budget 1e19
    """
    from babelcap.laws import Cost, plan_for_budget, plan_for_loss, worth_of

    if budget is None and loss is None and lower_T is None:
        raise UserError("plan: say for what, with --budget, --loss or --lower-t")
    others, sizes = _values(at), _pair("limits", limits) if limits else None
    before_after = _pair("lower-t", lower_T) if lower_T else None
    target, law = next(iter(wanted.laws(points, form, every=False).items()))
    cost, result = Cost.from_points(law), {}
    if budget is not None:
        result["budget"] = asdict(plan_for_budget(law, budget, cost=cost, at=others, limits=sizes))
    if loss is not None:
        result["loss"] = asdict(plan_for_loss(law, loss, cost=cost, at=others, limits=sizes))
    if before_after is not None:
        result["worth"] = {column: asdict(worth_of(law, *before_after, column)) for column in ("P", "S")}
    if as_json:
        _print_json({"form": law.form.name, "target": target, "cost": asdict(cost), "notes": law.warnings, **result})
        return
    typer.echo(f"{law.form.formula}; a sample costs {cost.factor:.3g} P^{cost.exponent:.3g} ({cost.source})")
    for found in (result[name] for name in ("budget", "loss") if name in result):
        for quantity in ("P", "S", "C", "loss"):
            typer.echo(f"  {quantity:5} {found[quantity]:.4g}{_between(found['intervals'].get(quantity), '   ')}")
        for line in found["notes"]:
            typer.echo(f"  note: {line}")
    for column, worth in result.get("worth", {}).items():
        ends = _between(worth["interval"], "   ")
        typer.echo(f"  the change of T is worth {worth['factor']:.3g} times as large {column}{ends}")
    for line in law.warnings:
        typer.echo(f"note: {line}")


@group.command("published")
def published_command(as_json: bool = JSON) -> None:
    """List the published laws and their coefficients."""
    from rich.console import Console
    from rich.table import Table

    from babelcap.laws import PUBLISHED, published

    laws = [
        (name, published(name, split, form))
        for name, forms in PUBLISHED.items()
        for form in forms
        for split in forms[form]
    ]
    if as_json:
        _print_json(
            [
                {"name": name, "form": law.form.name, "target": law.target, "coefficients": law.coefficients,
                 "intervals": law.intervals, "units": law.units, "source": law.source}
                for name, law in laws
            ]
        )  # fmt: skip
        return
    table = Table("law", "form", "target", "coefficients", "units")
    for name, law in laws:
        values = ", ".join(f"{key} {value:.4g}" for key, value in law.coefficients.items())
        table.add_row(name, law.form.formula, law.target, values, law.units)
    Console().print(table)
