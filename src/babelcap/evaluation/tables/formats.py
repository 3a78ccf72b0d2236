"""Tables as Markdown, LaTeX, CSV and HTML. CSV has a number a line, with its signature, for programs to read."""

import csv
import io
from collections.abc import Iterator, Sequence

from babelcap.errors import one_line
from babelcap.evaluation.tables.rows import Cell, Row, Table
from babelcap.pages import render

LATEX_SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip
NAMES = {"Bleu_4": "BLEU-4", "ROUGE_L": "ROUGE-L"}
CSV_COLUMNS = (
    "table", "language", "system", "pictures", "metric", "value", "low", "high", "num_items", "num_empty", "signature",
    "note",
)  # fmt: skip


def format_tables(tables: Sequence[Table], style: str) -> str:
    if style == "csv":
        return _csv(tables)
    grids = [Grid(table) for table in tables]
    if style == "html":
        return render("evaluation/tables/table.html.jinja", grids=grids)
    write = _latex if style == "latex" else _markdown
    return "\n".join(write(grid) for grid in grids)


class Grid:
    """A table as texts: header, rows of cells, and notes by number."""

    def __init__(self, table: Table) -> None:
        self.title = table.title
        with_counts = any(row.num_items is not None for row in table.rows)
        with_languages = any(row.language for row in table.rows)
        self.notes: dict[str, int] = {}
        self.remarks = list(table.notes)
        self.header = [
            *(["language"] if with_languages else []),
            "system",
            *(NAMES.get(column, column) for column in table.columns),
            *(["items", "empty"] if with_counts else []),
        ]
        self.rows = [
            [
                *([row.language] if with_languages else []),
                table.name_of(row),
                *(self._text(row, column) for column in table.columns),
                *(["", ""] if row.num_items is None else [f"{row.num_items:,}", str(row.num_empty)])[: 2 * with_counts],
            ]
            for row in table.rows
        ]
        self.num_names = 1 + with_languages
        self.is_published = [row.is_published for row in table.rows]

    def _text(self, row: Row, column: str) -> str:
        cell = row.cells.get(column)
        if cell is None:
            return ""
        text = f"{cell.value:.1f}"
        if cell.low is not None and cell.high is not None:
            text += f" [{cell.low:.1f}, {cell.high:.1f}]"
        return text if cell.note is None else f"{text} ({self.notes.setdefault(cell.note, len(self.notes) + 1)})"

    @property
    def numbered_notes(self) -> list[str]:
        return [f"({number}) {note}" for note, number in self.notes.items()]

    @property
    def all_notes(self) -> list[str]:
        return [*self.numbered_notes, *self.remarks]


def _markdown(grid: Grid) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(one_line(cell).replace('|', chr(92) + '|') for cell in cells)} |"

    marks = ["---" if place < grid.num_names else "---:" for place in range(len(grid.header))]
    body = [line(grid.header), f"| {' | '.join(marks)} |", *map(line, grid.rows)]
    notes = ["", *(f"- {one_line(note)}" for note in grid.all_notes)] if grid.all_notes else []
    return "\n".join([f"## {one_line(grid.title)}", "", *body, *notes, ""])


def _latex(grid: Grid) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"{' & '.join(map(latex_text, cells))} \\\\"

    places = "l" * grid.num_names + "r" * (len(grid.header) - grid.num_names)
    caption = " ".join(f"{latex_text(text)}." for text in (grid.title, *grid.numbered_notes))
    return "\n".join(
        [
            *(f"% {one_line(remark)}" for remark in grid.remarks),
            r"\begin{table}",
            r"\centering\small",
            rf"\begin{{tabular}}{{{places}}}",
            r"\toprule",
            line(grid.header),
            r"\midrule",
            *map(line, grid.rows),
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{caption}}}",
            r"\end{table}",
            "",
        ]
    )


def latex_text(text: str) -> str:
    return "".join(LATEX_SIGNS.get(letter, letter) for letter in text)


def _csv(tables: Sequence[Table]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for table in tables:
        for row in table.rows:
            for metric, cell in row.cells.items():
                writer.writerow([table.title, row.language, row.system, row.pictures, metric, *_values(cell, row)])
    return stream.getvalue()


def _values(cell: Cell, row: Row) -> Iterator[str]:
    for value in (cell.value, cell.low, cell.high):
        yield "" if value is None else f"{value:.6g}"
    yield from ("" if number is None else str(number) for number in (row.num_items, row.num_empty))
    yield cell.signature
    yield cell.note or ""
