"""The points of a law as the command line asks for them: options that all commands of `babelcap laws` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from babelcap.cli.shared_options import with_options
from babelcap.errors import UserError

if TYPE_CHECKING:
    from babelcap.laws import Choice, Fit, Law, Source, Table

FILE = "A study's runs.jsonl, a CSV, TSV or Parquet file"
POINTS = typer.Argument(..., help=f"{FILE}.")
POINTS_OR_LAW = typer.Argument(..., help=f"{FILE}; or a published law: paper-v1.")


@dataclass(frozen=True)
class Wanted:
    """Which points are asked for: the options that every command has."""

    target: str | None = typer.Option(
        None, "--target", help="Test splits, as UC,ST,SC; in a table, the column with the loss (else y or loss)."
    )
    measure: str | None = typer.Option(None, "--measure", help="Which loss of runs.jsonl; the raw one where not given.")
    split: str | None = typer.Option(
        None, "--split", help="The corpus split of the loss; eval where there are several."
    )
    kind: str = typer.Option("main", "--kind", help="Kind of run: main, no-translation, ..., finetuned, or all.")
    family: str | None = typer.Option(
        None,
        "--family",
        help="Family of models, or all; where not given the one with most points in which P, S, T vary.",
    )
    where: list[str] = typer.Option(
        [],
        "--where",
        help="Only runs whose field has a value, as size=micro-gemma-l, or has not, as size!=micro-gemma-l.",
    )
    map: str | None = typer.Option(None, "--map", help="Names of a table's columns: P=params,S=samples,y=loss")
    group: str | None = typer.Option(None, "--group", help="Column whose equal values mark seeds of one run.")

    def read(self, points: Path) -> "Source":
        from babelcap.laws import PUBLISHED, parse_map, read_source

        if str(points) in PUBLISHED:
            raise UserError(
                f"{points} is a published law, with coefficients and no points to fit; see 'babelcap laws published', "
                "or give it to 'laws predict' and 'laws plan'"
            )
        return read_source(points, parse_map(self.map))

    def choice(self) -> "Choice":
        from babelcap.laws import Choice, parse_map
        from babelcap.measures import LOSS

        where = parse_map(",".join(self.where), "where", "size=micro-gemma-l")
        return Choice(self.measure or LOSS, self.split, self.kind, self.family, where)

    def table(self, source: "Source", target: str, form: str) -> "Table":
        from babelcap.laws import form_of

        return source.table(target, self.choice(), group=self.group, with_T="T" in form_of(form).columns)

    def laws(self, points: Path, form: str, every: bool) -> "dict[str, Law]":
        """The laws asked for: published ones by name, or fitted to the points."""
        from babelcap.laws import PUBLISHED, published
        from babelcap.measures import TARGETS

        if str(points) in PUBLISHED:
            wanted = [name.strip() for name in (self.target or "").split(",") if name.strip()]
            return {name: published(str(points), name, form) for name in wanted or TARGETS[: None if every else 1]}
        source = self.read(points)
        return {
            name: fit_table(self.table(source, name, form), form) for name in source.targets(self.target, every=every)
        }


with_points = with_options(wanted=Wanted)  # a command with `wanted` gets its options


def fit_table(table: "Table", form: str, **settings: Any) -> "Fit":
    from babelcap.laws import fit

    return fit(form, table.columns, table.y, groups=table.groups, target=table.name, **settings)
