"""`babelcap laws`: fit, compare, predict and plan with scaling laws."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from babelcap.errors import UserError

if TYPE_CHECKING:
    from babelcap.laws import Fit, Law, Table

group = typer.Typer(
    no_args_is_help=True,
    help="Fit scaling laws to finished runs, test them, and plan with them. Forms: compute, ps, pst, chinchilla, "
    "power:COLUMN,COLUMN,...; add '+eps' for a floor, as in 'pst+eps'.",
)

POINTS = typer.Argument(..., help="A study's runs.jsonl, a CSV or a Parquet file; or a published law: paper-v1.")
FORM = typer.Option("ps", "--form", help="The law: compute, ps, pst, chinchilla or power:P,S,...; '+eps' adds a floor.")
TARGET = typer.Option("UC", "--target", help="The test split, UC, ST or SC; in a table, the column with the loss.")
MEASURE = typer.Option(None, "--measure", help="Which loss of runs.jsonl: cross_entropy/sample_mean/raw, ...")
SPLIT = typer.Option(None, "--split", help="The corpus split the loss was measured on, where there are several.")
MAP = typer.Option(None, "--map", help="Names of foreign columns: P=params,S=samples,y=loss")
GROUP = typer.Option(None, "--group", help="Column whose equal values mark seeds of one run, which belong together.")
INTERVAL = typer.Option("auto", "--interval", help="auto, t, profile, percentile or bca.")
BOOTSTRAP = typer.Option(1000, "--bootstrap", min=20, help="Bootstrap replicates.")
SEED = typer.Option(0, "--seed", min=0, help="Seed of the bootstrap.")
FRONTIER = typer.Option(False, "--frontier", help="Use only the runs on the compute frontier.")
AT = typer.Option(None, "--at", help="Where: P=11.2e9,S=10.24e6 (and T=..., or C=...).")
JSON = typer.Option(False, "--json", help="Print JSON for a script to read.")


def _read(
    points: Path, target: str, measure: str | None, split: str | None, names: str | None, by: str | None
) -> "Table":
    from babelcap.laws import parse_map, read_table

    return read_table(points, target, measure=measure, split=split, names=parse_map(names), group=by)


def _fit(table: "Table", form: str, target: str, **settings: Any) -> "Fit":
    from babelcap.laws import fit

    fitted = fit(form, table.columns, table.y, groups=table.groups, target=target, **settings)
    fitted.warnings[:0] = table.notes
    return fitted


def _values(text: str | None) -> dict[str, float]:
    from babelcap.laws import parse_map

    found = {}
    for name, value in parse_map(text).items():
        try:
            found[name] = float(value)
        except ValueError:
            raise UserError(f"at: {name}={value}; give a number, as in P=11.2e9") from None
    return found


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


def _show_fit(fitted: "Fit") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"[bold]{fitted.form.formula}[/bold]   {fitted.target}, {len(fitted.points)} points", highlight=False)
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


def _show_held_out(console: Any, fitted: "Fit") -> None:
    from babelcap.laws import leave_largest_budget_out, leave_one_model_out

    for name, check in (("largest budget", leave_largest_budget_out), ("one model at a time", leave_one_model_out)):
        try:
            error = check(fitted)
        except UserError:
            continue
        console.print(
            f"left out, {name} ({error.what}): off by {100 * error.relative:.2g} % on average, "
            f"{100 * error.worst:.2g} % at worst",
            highlight=False,
        )


@group.command("fit")
def fit_command(
    points: Path = POINTS,
    form: str = FORM,
    target: str = TARGET,
    measure: str = MEASURE,
    split: str = SPLIT,
    map: str = MAP,
    group: str = GROUP,
    interval: str = INTERVAL,
    bootstrap: int = BOOTSTRAP,
    seed: int = SEED,
    frontier: bool = FRONTIER,
    figures: Path = typer.Option(None, "--figures", help="Folder for the figures, PNG and SVG."),
    as_json: bool = JSON,
) -> None:
    """Fit a law and say how sure it is. Several targets, as UC,ST,SC, are fitted one by one.

    Examples: babelcap laws fit runs.jsonl --form pst --target UC,ST,SC --figures figures
    babelcap laws fit table.csv --form chinchilla --map P=params,S=tokens,y=loss
    """
    fits: dict[str, Fit] = {}
    runs = {}
    for name in filter(None, (part.strip() for part in target.split(","))):
        table = _read(points, name, measure, split, map, group)
        fits[name] = _fit(
            table, form, name, interval=interval, num_bootstrap=bootstrap, seed=seed, frontier_only=frontier
        )
        runs[name] = table
    if not fits:
        raise UserError("target: found none; name at least one, as UC")
    if as_json:
        records = [fitted.to_record().model_dump(mode="json") for fitted in fits.values()]
        _print_json(records[0] if len(records) == 1 else records)
    else:
        for fitted in fits.values():
            _show_fit(fitted)
    if figures is not None:
        _draw(fits, runs, figures)


def _draw(fits: dict[str, "Fit"], tables: dict[str, "Table"], folder: Path) -> None:
    import numpy as np

    from babelcap.laws.points import with_compute
    from babelcap.report.figures import law_figures

    runs = {}
    for name, table in tables.items():
        columns = with_compute(dict(table.columns))
        if {"C", "P"} <= set(columns):
            runs[name] = {"C": np.asarray(columns["C"], float), "P": np.asarray(columns["P"], float)}
            runs[name]["y"] = np.asarray(table.y, float)
    paths = law_figures(fits, folder, runs if len(runs) == len(fits) else None)
    typer.echo(f"{len(paths)} figures in {folder}", err=True)


@group.command()
def compare(
    points: Path = POINTS,
    forms: str = typer.Option(
        "ps,ps+eps,pst,pst+eps,chinchilla", "--forms", help="Forms; power: forms with ';' between."
    ),
    target: str = TARGET,
    measure: str = MEASURE,
    split: str = SPLIT,
    map: str = MAP,
    group: str = GROUP,
    as_json: bool = JSON,
) -> None:
    """Which form describes the runs best, by AICc and by its error on runs it has not seen.

    Example: babelcap laws compare runs.jsonl --target UC --forms ps,pst,chinchilla
    """
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from babelcap.laws import compare as compare_forms

    table = _read(points, target, measure, split, map, group)
    names = [name.strip() for name in forms.split(";" if ";" in forms or "power:" in forms else ",") if name.strip()]
    rows, refused = compare_forms(names, table.columns, table.y, groups=table.groups, target=target)
    if as_json:
        _print_json({"forms": [asdict(row) for row in rows], "refused": refused})
        return
    console = Console()
    shown = Table("form", "coefficients", "AICc", "weight", "R² log", "largest budget left out", "models left out")
    for row in rows:
        held = [
            f"{100 * part.relative:.2g} %" if part else "too few points" for part in (row.largest_budget, row.one_model)
        ]
        shown.add_row(
            row.form, str(row.num_coefficients), f"{row.aicc:.1f}", f"{row.aicc_weight:.2f}", f"{row.r2_log:.4f}", *held
        )
    console.print(shown)
    for row in rows:
        for line in row.warnings:
            console.print(f"[yellow]{row.form}[/yellow] {line}", highlight=False)
    for name, reason in refused.items():
        console.print(f"[yellow]{name}[/yellow] {reason}", highlight=False)


def _laws(points: Path, form: str, target: str, *where: str | None) -> dict[str, "Law"]:
    """The laws asked for: published ones by name, or fitted to the points."""
    from babelcap.laws import PUBLISHED, published

    measure, split, names, by = where
    wanted = [part.strip() for part in target.split(",") if part.strip()]
    if str(points) in PUBLISHED:
        return {name: published(str(points), name, form) for name in wanted}
    return {name: _fit(_read(points, name, measure, split, names, by), form, name) for name in wanted}


@group.command()
def predict(
    points: Path = POINTS,
    at: str = AT,
    form: str = FORM,
    target: str = typer.Option("UC,ST,SC", "--target", help="The test splits, as UC,ST,SC."),
    measure: str = MEASURE,
    split: str = SPLIT,
    map: str = MAP,
    group: str = GROUP,
    as_json: bool = JSON,
) -> None:
    """The loss that a law predicts, with the interval in which a new run will lie.

    Example: babelcap laws predict paper-v1 --at P=11.2218e9,S=10.24e6
    """
    from babelcap.laws import Fit

    where = _values(at)
    if not where:
        raise UserError("at: say where, as in --at P=11.2e9,S=10.24e6")
    results = []
    for name, law in _laws(points, form, target, measure, split, map, group).items():
        result: dict[str, Any] = {"target": name, "prediction": float(law.predict(where)), "interval": None}
        if isinstance(law, Fit):
            low, high = law.prediction_interval(where)
            result["interval"] = [float(low), float(high)]
        result["notes"] = [*law.extrapolations(where), *law.warnings]
        results.append(result)
    if as_json:
        _print_json(results)
        return
    for result in results:
        interval = result["interval"]
        between = f"  a new run: {interval[0]:.4g} to {interval[1]:.4g} (95 %)" if interval else ""
        typer.echo(f"{result['target']}  {result['prediction']:.4g}{between}")
    for line in dict.fromkeys(line for result in results for line in result["notes"]):
        typer.echo(f"note: {line}")


@group.command()
def plan(
    points: Path = POINTS,
    budget: float = typer.Option(
        None, "--budget", min=0, help="Compute in multiply-accumulates: the best P and S for it."
    ),
    loss: float = typer.Option(None, "--loss", min=0, help="A loss to reach: the cheapest P and S for it."),
    lower_T: str = typer.Option(None, "--lower-t", help="T from and to, as 6,4: what that is worth in P and in S."),
    form: str = FORM,
    target: str = TARGET,
    at: str = typer.Option(None, "--at", help="The law's other columns, as T=4."),
    limits: str = typer.Option(None, "--limits", help="Sizes allowed, as 1e8,1e11."),
    measure: str = MEASURE,
    split: str = SPLIT,
    map: str = MAP,
    group: str = GROUP,
    as_json: bool = JSON,
) -> None:
    """What to train next: for a compute budget, for a loss, or what a more multilingual base model is worth.

    Example: babelcap laws plan runs.jsonl --form chinchilla --target UC --budget 1e19
    """
    from dataclasses import asdict

    from babelcap.laws import Cost, plan_for_budget, plan_for_loss, worth_of

    if budget is None and loss is None and lower_T is None:
        raise UserError("plan: say for what, with --budget, --loss or --lower-t")
    law = _laws(points, form, target, measure, split, map, group)[target]
    cost, result = Cost.from_points(law), {}
    sizes = _pair("limits", limits) if limits else None
    if budget is not None:
        result["budget"] = asdict(plan_for_budget(law, budget, cost=cost, at=_values(at), limits=sizes))
    if loss is not None:
        result["loss"] = asdict(plan_for_loss(law, loss, cost=cost, at=_values(at), limits=sizes))
    if lower_T is not None:
        before, after = _pair("lower-t", lower_T)
        result["worth"] = {column: asdict(worth_of(law, before, after, column)) for column in ("P", "S")}
    if as_json:
        _print_json({"form": law.form.name, "target": target, "cost": asdict(cost), "notes": law.warnings, **result})
        return
    _show_plan(law, cost, result)


def _pair(name: str, text: str) -> tuple[float, float]:
    try:
        first, second = map(float, text.split(","))
    except ValueError:
        raise UserError(f"{name}: found {text!r}; give two numbers with a comma, as 6,4") from None
    return first, second


def _show_plan(law: "Law", cost: Any, result: dict[str, Any]) -> None:
    typer.echo(f"{law.form.formula}; a sample costs {cost.factor:.3g} P^{cost.exponent:.3g} ({cost.source})")
    for name in ("budget", "loss"):
        if name not in result:
            continue
        found = result[name]
        for quantity in ("P", "S", "C", "loss"):
            ends = found["intervals"].get(quantity)
            between = f"   {ends[0]:.3g} to {ends[1]:.3g} (95 %)" if ends else ""
            typer.echo(f"  {quantity:5} {found[quantity]:.4g}{between}")
        for line in found["notes"]:
            typer.echo(f"  note: {line}")
    for column, worth in result.get("worth", {}).items():
        ends = worth["interval"]
        between = f" ({_significant(ends[0])} to {_significant(ends[1])}, 95 %)" if ends else ""
        typer.echo(f"  the change of T is worth {worth['factor']:.3g} times as large {column}{between}")
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
