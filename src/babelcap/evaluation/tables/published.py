"""The paper's numbers beside ours: rows of its tables 8 to 13, and its table 4 by its averaging rules.

What it states of how they were computed is compared with our signatures; what it does not state is not held against it.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from babelcap.data.distributed import coco
from babelcap.evaluation.benchmarks import commute, multi30k, xm3600
from babelcap.evaluation.metrics import ptb
from babelcap.evaluation.metrics.comet import MODEL as COMET_MODEL
from babelcap.evaluation.metrics.score import COMPARABLE, compare
from babelcap.evaluation.tables.published_results import (
    AVERAGED,
    TABLE_4_COLUMNS,
    Key,
    printed_table4,
    published_results,
    table4_means,
)
from babelcap.evaluation.tables.rows import Cell, Row, Table

TITLE_4 = "Table 4 of the paper, means of its tables 8 to 13"
AGREES = 0.1
# Stated of each metric, in the words of our signatures. The COCO tools' tokens are ours: tests compare them.
STATED = {
    "BLEU": {"nrefs": "1"},
    "COMET-22": {"model": COMET_MODEL},
    "CIDEr": {"tok": ptb.SIGNATURE},
    "Bleu_4": {"tok": ptb.SIGNATURE},
    "CLIPScore": {"prefix": "none", "weight": "2.5"},
    "multilingual CLIPScore": {"prefix": "none", "weight": "2.5"},
    "accuracy": {"ties": "wrong"},
}
XM3600_CIDER = {"convention": "stanza", "references": xm3600.RAW}


def published_rows(benchmark: str, languages: Sequence[str], columns: Sequence[str], own: Sequence[Row]) -> list[Row]:
    """The systems that have a number in one of the columns, language by language."""
    results = published_results()
    ours = {(row.language, column): row for row in reversed(own) for column in row.cells}  # the first of each
    rows = []
    for system in dict.fromkeys(key.system for key in results):
        for language in languages:
            cells = {}
            for column in columns:
                value = results.get(Key(system, benchmark, language, column.partition(" (")[0]))
                if value is not None and (language, column) in ours:
                    cells[column] = Cell(value, note=_note(benchmark, column, ours[language, column]))
            if cells:
                rows.append(Row(f"{system} (published)", language, cells, is_published=True))
    return rows


def _note(benchmark: str, column: str, row: Row) -> str | None:
    """Why the published number of a cell of ours cannot be compared with it."""
    metric = column.partition(" (")[0]
    verdict = compare_with_stated(row.cells[column].signature, benchmark, row.language, metric)
    size = full_size(benchmark, row.language)
    if verdict == COMPARABLE and row.num_items != size:
        verdict = f"not comparable: items {size} against {row.num_items}"
    return None if verdict == COMPARABLE else verdict


def compare_with_stated(signature: str, benchmark: str, language: str, metric: str) -> str:
    """Published against ours, in the choices that are stated of the published."""
    stated = dict(XM3600_CIDER if benchmark == "xm3600" and metric == "CIDEr" else STATED.get(metric, {}))
    if metric == "BLEU":
        stated["tok"] = "zh" if language == "zh" else "13a"
    parts = dict(part.partition(":")[::2] for part in signature.split("|") if ":" in part)
    return compare(_joined(stated), _joined({name: parts.get(name, "unstated") for name in stated}))


def _joined(choices: Mapping[str, str]) -> str:
    return "|".join(f"{name}:{value}" for name, value in choices.items())


def full_size(benchmark: str, language: str) -> int | None:
    """How many items the published numbers are of; an image of XM3600 without a caption in a language has none."""
    sizes = {
        **{f"multi30k-{name}": number for name, number in multi30k.TEST_SETS.items()},
        "multi30k-captions": multi30k.NUM_CAPTION_IMAGES,
        "coco": coco.NUM_IMAGES["test"],
        "commute": commute.NUM_ITEMS.get(language),
        "xm3600": xm3600.NUM_IMAGES,
    }
    return sizes.get(benchmark)


def table_4(tables: Sequence[Table]) -> Table | None:
    """Means by the paper's rules: of our systems where all that is averaged is there, and of the published ones.

    With tables of ours, only the columns that they have something for; None where that is none.
    """
    own = _own_means(tables)
    if tables and not own:
        return None
    columns = [name for name in TABLE_4_COLUMNS if not own or any(name in row.cells for row in own)]
    rows = [row for row in (*own, *_published_means()) if not row.cells.keys().isdisjoint(columns)]
    compared = {
        (system, column): abs(mean - printed[column])
        for system, printed in printed_table4().items()
        for column, mean in table4_means(published_results()).get(system, {}).items()
        if column in printed
    }
    num_agreeing = sum(difference <= AGREES + 1e-9 for difference in compared.values())
    worst = max(compared, key=lambda place: compared[place])
    notes = [
        f"{num_agreeing} of {len(compared)} means agree with the printed table 4 to {AGREES}; the largest difference "
        f"is {compared[worst]:.2f} ({worst[0]}, {worst[1]})",
        "BLEU of Multi30K is the mean of test_2016, test_2017 and test_2017_mscoco; X is de, fr, ru and zh; unseen is "
        "fr, es, ru and zh",
    ]
    return Table(TITLE_4, columns, rows, notes)


def _published_means() -> list[Row]:
    means, printed = table4_means(published_results()), printed_table4()
    rows = []
    for system in dict.fromkeys(chain(printed, means)):
        cells = {column: Cell(value) for column, value in means.get(system, {}).items()}
        for column, value in printed.get(system, {}).items():
            cells.setdefault(column, Cell(value, note="printed in table 4; its tables 8 to 13 do not have it"))
        if cells:
            rows.append(Row(f"{system} (published)", "", cells, is_published=True))
    return rows


def _own_means(tables: Sequence[Table]) -> list[Row]:
    results: dict[Key, float] = {}
    notes: dict[Key, str] = {}
    rows = {_key(row): row for table in tables for row in table.rows if not row.is_published}
    for table in tables:
        for row in (row for row in table.rows if not row.is_published):
            for column, cell in row.cells.items():
                key = Key(_key(row), table.benchmark, row.language, column.partition(" (")[0])
                if (
                    key not in results
                ):  # XM3600 has a CIDEr by each convention; the paper's is the first where it is there
                    results[key], note = cell.value, _note(table.benchmark, column, row)
                    if note is not None:
                        notes[key] = note
    found = []
    for name, means in table4_means(results).items():
        cells = {}
        for column, value in means.items():
            told = [notes[key] for part in AVERAGED[column] if (key := Key(name, *part)) in notes]
            cells[column] = Cell(value, note=told[0] if told else None)
        if cells:
            found.append(Row(rows[name].system, "", cells, rows[name].pictures))
    return found


def _key(row: Row) -> str:
    return f"{row.system}|{row.pictures}"
