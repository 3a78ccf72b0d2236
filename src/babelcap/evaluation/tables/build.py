"""Tables of scored predictions, a benchmark each: languages and systems down, metrics across, published numbers beside.

Below each system stands what it scores with the pictures of others, or how to find that out.
"""

from collections.abc import Mapping, Sequence

from babelcap.evaluation.predictions.folder import OWN, SHUFFLED, Prediction
from babelcap.evaluation.predictions.score import is_scored
from babelcap.evaluation.tables.published import published_rows, table_4
from babelcap.evaluation.tables.rows import (
    SAME_SHUFFLED,
    First,
    Row,
    Table,
    is_shuffled_there,
    label_of,
    order_columns,
    score_rows,
    shuffle_command,
    system_labels,
)


def build_tables(predictions: Sequence[Prediction], *, with_published: bool) -> list[Table]:
    labels = system_labels(predictions)
    predictions = [one for one in predictions if is_scored(one)] or predictions  # where none is, reading says so
    groups: dict[tuple[str, str], list[Prediction]] = {}
    for prediction in predictions:
        groups.setdefault((prediction.description.benchmark, prediction.description.part), []).append(prediction)
    tables = [_table(group, labels, with_published) for group in groups.values()]
    means = table_4(tables) if with_published else None
    return tables if means is None else [means, *tables]


def _table(predictions: Sequence[Prediction], labels: Mapping[str, str], with_published: bool) -> Table:
    description = predictions[0].description
    rows: list[Row] = []
    notes: list[str] = []
    ordered = sorted(predictions, key=lambda one: (label_of(one, labels), one.description.pictures == SHUFFLED))
    first: First = {}
    for prediction in ordered:
        rows += score_rows(prediction, labels, first)
        if prediction.description.pictures == OWN and not is_shuffled_there(prediction, predictions):
            missing = f'no row "{SAME_SHUFFLED}" for {label_of(prediction, labels)}'
            notes.append(f"{missing}; make it: {shuffle_command(prediction)}")
    languages = list(dict.fromkeys(row.language for row in rows))
    columns = order_columns({name for row in rows for name in row.cells}, description.part)
    if with_published:
        rows += published_rows(description.benchmark, languages, columns, rows)
    rows.sort(key=lambda row: languages.index(row.language))
    title = f"{description.benchmark}, {description.part}"
    return Table(title, columns, rows, notes, description.benchmark)
