"""What the task files ask for: the items of our benchmarks as JSON lines, how they are asked, and how they are scored.

lmms-eval calls these functions for any of its models. `write_items` writes `babelcap_items/BENCHMARK.jsonl`, which the
task files name, below the folder that lmms-eval is started in. A value is the mean over the languages that were asked.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from babelcap.evaluation.benchmarks import BENCHMARKS, Item, read_benchmark, require_images
from babelcap.evaluation.metrics import chrf, coco_scores, sacre_bleu
from babelcap.evaluation.systems.settings import SystemOptions, read_settings
from babelcap.storage import atomic_file

FOLDER = "babelcap_items"
TASK_FILES = Path(__file__).parent / "task_files"
Result = Mapping[str, Any]


def write_items(
    name: str, root: str | Path, output: str | Path = ".", languages: Sequence[str] | None = None
) -> tuple[Path, int]:
    """A benchmark's items where the task files look for them, and their number; pictures that are missing are named."""
    items = read_benchmark(name, root, languages)
    require_images(items, BENCHMARKS[name].images_origin)
    path = Path(output) / FOLDER / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as partial, partial.open("w", encoding="utf-8") as file:
        for item in items:
            values = asdict(item) | {"image": str(item.image.resolve())}
            file.write(json.dumps(values, ensure_ascii=False) + "\n")
    return path, len(items)


def picture(document: Result) -> list[Any]:
    from babelcap.data.feed.images import decode_image

    return [decode_image(Path(document["image"]))]


def question(document: Result, lmms_eval_specific_kwargs: Result | None = None) -> str:
    """As chat models are asked."""
    item = Item(**{name: document[name] for name in ("id", "image", "language", "task", "style", "source")})
    return read_settings("chat", SystemOptions()).prompt("lmms-eval", item)


def reference(document: Result) -> str:
    return str(document["references"][0])


def choices(document: Result) -> list[str]:
    """The right answer first."""
    return [reference(document), str(document["contrast"])]


def captioned(document: Result, results: Sequence[str]) -> dict[str, Result]:
    return {name: _kept(document) | {"text": results[0]} for name in ("CIDEr", "Bleu_4", "ROUGE_L")}


def translated(document: Result, results: Sequence[str]) -> dict[str, Result]:
    return {name: _kept(document) | {"text": results[0]} for name in ("BLEU", "chrF")}


def decided(document: Result, results: Sequence[tuple[float, bool] | str]) -> dict[str, Result]:
    """Of two mean losses, the right answer's first; a tie is no decision."""
    right, wrong = map(_loss, results)
    return {"accuracy": _kept(document) | {"is_right": float(right < wrong)}}


def _loss(result: tuple[float, bool] | str) -> float:
    """Of (loss, is it greedy), which lmms-eval 0.7 hands on as its text."""
    return float(result.strip("()").partition(",")[0]) if isinstance(result, str) else float(result[0])


def _kept(document: Result) -> dict[str, Any]:
    return {name: document[name] for name in ("id", "language", "references")}


def _coco(name: str) -> Callable[[Sequence[Result]], float]:
    def score(references: Mapping[str, Sequence[str]], texts: Mapping[str, str], language: str) -> float:
        return 100 * coco_scores(references, texts)[name].value

    return lambda results: _mean_of_languages(results, score)


cider, bleu_4, rouge_l = _coco("CIDEr"), _coco("Bleu_4"), _coco("ROUGE_L")


def bleu(results: Sequence[Result]) -> float:
    return _mean_of_languages(results, lambda wanted, texts, language: sacre_bleu(wanted, texts, language).value)


def chr_f(results: Sequence[Result]) -> float:
    return _mean_of_languages(results, lambda wanted, texts, language: chrf(wanted, texts).value)


def accuracy(results: Sequence[Result]) -> float:
    groups: dict[str, list[float]] = defaultdict(list)
    for result in results:
        groups[result["language"]].append(result["is_right"])
    return 100 * fmean(map(fmean, groups.values()))


def _mean_of_languages(
    results: Sequence[Result], score: Callable[[Mapping[str, Sequence[str]], Mapping[str, str], str], float]
) -> float:
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[result["language"]].append(result)
    return fmean(
        score({row["id"]: row["references"] for row in rows}, {row["id"]: row["text"] for row in rows}, language)
        for language, rows in groups.items()
    )
