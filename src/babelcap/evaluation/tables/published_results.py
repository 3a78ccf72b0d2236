"""The result tables of the paper's first version as data, and its averaging rules: table 4 from tables 8 to 13.

Multi30K BLEU is the mean of test_2016, test_2017 and test_2017_mscoco, without 2018; "X" of CoMMuTE is the mean of all
four languages, German too; "unseen" of XM3600 is the mean of fr, es, ru and zh. `-`: nothing was printed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# Names end in "ft" after fine-tuning; "100K" and "30K" are numbers of pretraining steps. Zero-shot rows have no "ft".
TRANSLATION_SETS = ("test_2016_flickr", "test_2017_flickr", "test_2018_flickr", "test_2017_mscoco")
AVERAGED_SETS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
COMMUTE_LANGUAGES = ("de", "fr", "ru", "zh")
XM3600_LANGUAGES = ("en", "de", "fr", "es", "ru", "zh")
UNSEEN_LANGUAGES = ("fr", "es", "ru", "zh")

# Table 8: BLEU/COMET-22 of each test set, into French, then into German.
TABLE_8 = """
VGAMT            | 65.0/88.7 58.9/88.2 - 51.2/84.8         | 41.9/85.8 36.7/84.7 - 33.5/81.1
Baseline-6B      | 54.8/87.6 53.8/87.6 45.7/84.8 54.4/85.6 | 39.8/86.2 38.3/85.5 35.6/84.3 33.9/82.1
F-0.4B ft        | 57.5/85.9 53.5/85.9 39.6/82.3 50.0/82.4 | 42.8/84.5 37.8/84.0 34.6/82.4 32.4/79.6
F-0.4B 100K ft   | 60.4/87.7 57.5/87.9 43.0/84.0 53.8/84.7 | 44.0/86.3 40.9/86.1 36.5/84.1 34.8/82.1
F-1.0B ft        | 59.9/87.5 56.9/87.3 42.4/83.5 52.9/84.2 | 43.2/85.9 38.7/85.3 35.7/83.7 33.3/80.8
F-3.5B ft        | 59.9/88.5 57.5/88.4 42.2/84.2 53.5/85.2 | 43.1/86.6 39.8/85.9 36.8/84.4 34.7/82.0
F-11.2B ft       | 63.2/89.2 60.3/89.1 43.9/84.9 53.9/85.8 | 44.7/87.3 41.6/87.0 37.7/85.4 35.7/83.6
F-11.2B 30K ft   | 64.4/89.5 60.5/89.0 44.6/85.1 53.8/86.1 | 44.9/87.6 41.6/87.0 38.8/85.6 38.5/83.9
NLLB-600M        | 48.3/85.0 48.5/85.9 40.5/83.0 50.0/84.1 | 37.2/83.5 33.0/83.0 32.2/81.9 28.3/78.6
NLLB-1.3B        | 51.8/86.6 50.9/86.9 43.0/84.1 52.8/85.0 | 38.1/85.0 36.7/84.3 32.8/83.2 31.5/80.4
NLLB-3.3B        | 54.2/87.6 52.8/87.5 45.4/84.8 54.1/85.6 | 39.7/86.1 37.9/85.2 35.8/84.2 34.5/82.0
MOF              | 36.0/83.6 35.1/83.7 - 34.1/80.7         | 28.9/82.3 23.9/80.9 - 21.9/76.6
ZeroMMT-600M     | 48.6/84.9 48.1/85.7 - 50.3/83.8         | 36.2/83.0 33.2/82.5 - 29.0/77.7
ZeroMMT-1.3B     | 51.5/86.4 51.1/87.0 - 53.6/85.0         | 37.6/84.0 36.2/84.6 - 31.7/80.7
ZeroMMT-3.3B     | 52.9/87.2 53.3/87.5 - 53.9/85.4         | 39.6/85.9 37.9/85.5 - 33.7/81.9
F-0.4B           | 42.1/81.6 43.4/82.1 36.2/79.6 47.6/80.4 | 37.2/83.1 35.9/83.6 32.9/81.9 29.3/78.4
F-0.4B 100K      | 49.0/85.0 50.1/85.9 42.2/83.1 53.9/83.7 | 39.5/85.0 37.1/84.7 34.7/83.1 31.8/80.5
F-1.0B           | 45.3/83.6 46.3/84.4 39.1/82.0 50.7/82.0 | 38.8/84.3 36.3/84.3 34.6/83.0 30.6/79.1
F-3.5B           | 46.5/85.1 48.0/85.8 40.3/83.1 50.5/83.1 | 38.2/84.7 37.2/84.6 34.5/83.4 31.8/80.8
F-11.2B          | 50.6/86.0 50.2/86.7 42.2/83.6 52.0/84.4 | 39.3/85.7 37.7/85.4 34.6/83.9 32.7/81.1
F-11.2B 30K      | 51.3/86.1 51.4/87.0 43.4/83.8 54.3/84.9 | 39.5/85.8 38.3/85.4 36.0/84.1 35.0/81.6
"""
# Tables 9 and 10: CoMMuTE, BLEU/COMET-22 into de, fr, ru, zh, then accuracy in the same.
TABLES_9_10 = """
NLLB-600M        | 36.4/80.6 38.9/80.2 19.8/80.1 20.8/75.5 | - - - -
NLLB-1.3B        | 40.5/81.3 39.2/80.4 23.7/81.9 20.3/75.6 | - - - -
NLLB-3.3B        | 40.8/81.3 41.4/81.4 22.7/82.4 22.8/77.0 | - - - -
MOF              | - - - -                                 | 63.7 68.5 67.4 66.5
Baseline-6B      | 41.5/81.6 42.1/81.5 23.5/82.9 23.0/77.2 | 61.7 62.0 58.6 62.0
F-0.4B ft        | 26.5/71.6 27.8/72.9 9.9/69.2 19.1/73.1  | 59.0 55.8 53.4 58.3
F-0.4B 100K ft   | 32.8/78.3 37.6/78.6 13.6/77.5 22.5/75.0 | 59.7 62.3 55.6 61.4
F-1.0B ft        | 29.0/74.3 30.5/75.4 12.0/72.7 19.5/74.3 | 59.7 60.7 55.2 59.6
F-3.5B ft        | 32.0/79.3 35.5/78.6 15.0/77.9 21.5/75.2 | 61.3 65.3 62.0 61.7
F-11.2B ft       | 36.8/81.5 40.7/81.3 18.1/80.9 22.7/75.4 | 62.3 67.9 63.6 61.7
F-11.2B 30K ft   | 38.5/82.4 42.6/81.9 19.6/81.3 23.9/76.6 | 62.0 67.5 62.3 61.7
F-0.4B           | 34.1/77.5 31.0/76.4 12.5/71.1 26.2/76.6 | 54.0 53.9 51.5 54.9
F-0.4B 100K      | 37.2/80.4 37.4/78.5 16.4/77.7 27.1/77.8 | 54.0 56.5 51.2 54.9
F-1.0B           | 35.4/78.8 32.4/77.0 14.2/75.5 26.2/77.1 | 54.7 54.5 51.9 55.2
F-3.5B           | 36.7/80.0 36.8/78.1 14.6/79.1 26.9/77.7 | 53.0 54.9 54.0 55.2
F-11.2B          | 39.5/80.7 37.5/79.1 16.1/79.2 26.3/76.6 | 52.7 52.9 54.0 54.3
F-11.2B 30K      | 39.4/80.5 35.8/78.8 17.6/78.8 28.6/77.4 | 52.0 54.5 52.8 53.4
"""
# Tables 11 to 13: COCO BLEU-4/CIDEr/CLIPScore; Multi30K captions the same in en and de (multilingual CLIPScore);
# XM3600 CIDEr in en de fr es ru zh. Table 13 prints "F-11.2B ft" twice, so that "30K ft" is not known from it.
TABLES_11_13 = """
PaliGemma-3B     | 41.6/141.7/77.1 | 33.2/88.9/77.2 17.3/57.6/79.3 | 79.1 37.7 64.7 67.1 35.1 27.1
Florence-2-base  | 37.6/132.9/77.2 | - -                           | - - - - - -
Florence-2-large | 38.3/135.9/77.6 | - -                           | - - - - - -
Florence-2-base ft  | -/140.0/-    | - -                           | - - - - - -
Florence-2-large ft | -/143.3/-    | - -                           | - - - - - -
Baseline-6B      | 42.8/145.2/76.9 | 31.2/84.0/76.2 15.8/50.4/80.2 | 82.0 38.2 65.0 63.9 29.5 21.8
F-0.4B ft        | 40.6/138.2/76.2 | 28.6/76.6/75.6 28.2/77.4/80.9 | 76.9 38.6 55.4 54.9 26.0 23.7
F-0.4B 100K ft   | 41.3/140.3/76.6 | 30.0/79.5/76.1 28.8/79.2/81.6 | 78.3 39.3 59.3 57.4 27.3 24.0
F-1.0B ft        | 41.2/142.8/77.4 | 30.2/85.1/77.1 28.6/82.6/82.5 | 78.0 41.2 64.6 59.6 30.3 24.2
F-3.5B ft        | 41.8/141.6/76.6 | 29.9/81.8/76.0 30.9/84.5/80.9 | 77.7 38.2 61.0 59.8 30.0 24.0
F-11.2B ft       | 41.7/141.3/76.6 | 30.0/83.1/76.2 33.2/90.7/80.8 | 79.3 39.4 64.1 61.6 34.3 25.3
F-11.2B 30K ft   | 41.6/140.8/76.6 | 30.4/83.4/75.9 32.7/89.4/81.5 | - - - - - -
F-0.4B           | 13.2/28.2/77.7  | - -                           | - - - - - -
F-0.4B 100K      | 12.7/27.3/77.9  | - -                           | - - - - - -
F-1.0B           | 12.6/21.3/79.9  | - -                           | - - - - - -
F-3.5B           | 13.3/28.7/78.5  | - -                           | - - - - - -
F-11.2B          | 13.7/30.5/78.9  | - -                           | - - - - - -
F-11.2B 30K      | 15.1/24.9/79.2  | - -                           | - - - - - -
"""
TABLE_4_COLUMNS = (
    "multi30k de BLEU", "multi30k fr BLEU", "commute de BLEU", "commute X BLEU", "commute de accuracy",
    "commute X accuracy", "coco CIDEr", "multi30k-captions en CIDEr", "multi30k-captions de CIDEr",
    "xm3600 en CIDEr", "xm3600 de CIDEr", "xm3600 unseen CIDEr",
)  # fmt: skip
# Table 4 as printed; zero-shot rows print CLIPScore in place of CIDEr, left out here, but for the last column.
TABLE_4 = """
VGAMT            | 37.4 58.4 - - 57.1 - - - - - - -
Florence-2-large ft | - - - - - - 143.3 - - - - -
PaliGemma-3B     | - - - - - - 141.7 88.9 57.6 79.1 37.7 48.5
Baseline-6B      | 37.3 54.3 41.5 32.5 61.7 61.1 145.2 84.0 50.4 82.0 38.2 45.1
F-0.4B ft        | 37.7 53.7 26.5 20.8 59.0 56.6 138.2 76.6 77.4 76.9 38.6 40.0
F-0.4B 100K ft   | 39.9 57.2 32.8 26.6 59.7 59.8 140.3 79.5 79.2 78.3 39.3 42.0
F-1.0B ft        | 38.4 56.6 29.0 22.8 59.7 58.8 142.8 85.1 82.6 78.0 41.2 44.7
F-3.5B ft        | 39.2 56.9 32.0 26.0 61.3 62.6 141.6 81.8 84.5 77.7 38.2 43.7
F-11.2B ft       | 40.7 59.1 36.8 29.6 62.3 63.9 141.3 83.1 90.7 79.3 39.4 46.3
F-11.2B 30K ft   | 41.7 59.6 38.5 31.2 62.0 63.4 140.8 83.4 89.4 78.1 41.8 46.9
MOF              | 24.9 35.1 - - 63.7 66.5 - - - - - -
ZeroMMT-3.3B     | 37.1 53.3 - - 60.8 62.2 - - - - - -
NLLB-3.3B        | 37.4 53.7 40.8 31.9 50.0 50.0 - - - - - -
F-0.4B           | 34.1 44.3 34.1 25.9 54.0 53.6 - - - - - 1.7
F-0.4B 100K      | 36.1 51.0 37.2 29.5 54.0 54.2 - - - - - 1.8
F-1.0B           | 35.3 47.4 35.4 27.1 54.7 54.1 - - - - - 5.6
F-3.5B           | 35.8 48.3 36.7 28.7 53.0 54.3 - - - - - 24.1
F-11.2B          | 36.6 50.9 39.5 29.8 52.7 53.5 - - - - - 26.6
F-11.2B 30K      | 37.6 52.3 39.4 30.4 52.0 53.2 - - - - - 17.7
"""


@dataclass(frozen=True, order=True)
class Key:
    """What a published number is of."""

    system: str
    benchmark: str
    language: str
    metric: str


def published_results() -> dict[Key, float]:
    """Every number of tables 8 to 13."""
    found: dict[Key, float] = {}

    def add(system: str, benchmark: str, language: str, metrics: tuple[str, ...], cell: str) -> None:
        for metric, value in zip(metrics, cell.split("/"), strict=False):
            if value != "-":
                found[Key(system, benchmark, language, metric)] = float(value)

    for system, parts in _rows(TABLE_8):
        for language, cells in zip(("fr", "de"), parts, strict=True):
            for name, cell in zip(TRANSLATION_SETS, cells, strict=True):
                add(system, f"multi30k-{name}", language, ("BLEU", "COMET-22"), cell)
    for system, (translations, accuracies) in _rows(TABLES_9_10):
        for language, cell, accuracy in zip(COMMUTE_LANGUAGES, translations, accuracies, strict=True):
            add(system, "commute", language, ("BLEU", "COMET-22"), cell)
            add(system, "commute", language, ("accuracy",), accuracy)
    for system, (coco, captions, others) in _rows(TABLES_11_13):
        add(system, "coco", "en", ("Bleu_4", "CIDEr", "CLIPScore"), coco[0])
        for language, cell in zip(("en", "de"), captions, strict=True):
            clip = "CLIPScore" if language == "en" else "multilingual CLIPScore"
            add(system, "multi30k-captions", language, ("Bleu_4", "CIDEr", clip), cell)
        for language, cell in zip(XM3600_LANGUAGES, others, strict=True):
            add(system, "xm3600", language, ("CIDEr",), cell)
    return found


def printed_table4() -> dict[str, dict[str, float]]:
    """system -> column -> value, as the paper prints it."""
    return {
        system: {column: float(cell) for column, cell in zip(TABLE_4_COLUMNS, cells, strict=True) if cell != "-"}
        for system, (cells,) in _rows(TABLE_4)
    }


def table4_means(results: Mapping[Key, float]) -> dict[str, dict[str, float]]:
    """system -> column -> mean by the paper's rules, where all that it averages is there. Ours are averaged alike."""
    means: dict[str, dict[str, float]] = {}
    for system in dict.fromkeys(key.system for key in results):
        columns = {column: [results.get(Key(system, *part)) for part in parts] for column, parts in AVERAGED.items()}
        means[system] = {
            column: sum(value for value in values if value is not None) / len(values)
            for column, values in columns.items()
            if None not in values
        }
    return means


# column -> (benchmark, language, metric) of all that it is the mean of
AVERAGED = dict(
    zip(
        TABLE_4_COLUMNS,
        [
            *([(f"multi30k-{name}", language, "BLEU") for name in AVERAGED_SETS] for language in ("de", "fr")),
            *([("commute", code, metric) for code in codes]
              for metric in ("BLEU", "accuracy") for codes in (("de",), COMMUTE_LANGUAGES)),
            [("coco", "en", "CIDEr")],
            *([("multi30k-captions", language, "CIDEr")] for language in ("en", "de")),
            *([("xm3600", code, "CIDEr") for code in codes] for codes in (("en",), ("de",), UNSEEN_LANGUAGES)),
        ],
        strict=True,
    )
)  # fmt: skip


def _rows(table: str) -> list[tuple[str, list[list[str]]]]:
    """(system, the cells of each part) of each line."""
    lines = [line.split("|") for line in table.strip().splitlines()]
    return [(parts[0].strip(), [part.split() for part in parts[1:]]) for parts in lines]
