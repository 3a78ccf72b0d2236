"""What each benchmark's JSON says, as lines of the summary: a ratio above 1 is faster or smaller than the baseline."""

from collections.abc import Callable, Mapping
from typing import Any

from measure import STATE, row, share_of

TRAINER = "transformers' Trainer"
RECALL_GOAL = 0.95  # of FAISS: the fastest setting that reaches it is the line

Found = dict[str, Any]
Rows = list[Found]


def rows_of_data(found: Found) -> Rows:
    share = round(found["bare_cpu_seconds_over_loader_cpu_seconds"], 3)
    return [row("data: loader", "bare decode, processor time", ratio=share, **share_of("bare decode", share))]


def rows_of_index(found: Found) -> Rows:
    return [
        row(
            f"index_tar: {result['size_px']} px",
            "rewriting the tar, processor time",
            ratio=round(1 / result["ratio_to_rewrite"]["index into a corpus"][1], 2),
            **share_of(
                "bare scan of the headers",
                result["seconds"]["scan headers"][1] / result["seconds"]["index into a corpus"][1],
            ),
        )
        for result in found["results"]
    ]


def rows_of_align(found: Found) -> Rows:
    share = round(found["exact_share_of_product"], 3)
    lines = found["faiss"]["by_probes"]
    good = [line for line in lines if line["recall"] >= RECALL_GOAL] or [max(lines, key=lambda line: line["recall"])]
    best = max(good, key=lambda line: line["speed_up"])
    name = f"align: faiss, {found['num_texts']:,} texts, recall {best['recall']:.3f}"
    return [
        row("align: exact", "plain product", ratio=share, **share_of("plain product", share)),
        row(
            name,
            "exact search",
            ratio=round(best["speed_up"], 2),
            **share_of("FAISS's search, not scored again", best["share_of_bare"]),
        ),
    ]


def rows_of_loss(found: Found) -> Rows:
    return [
        row(f"loss: {what}", "full logits", ratio=round(1 / found["ratios"][name], 3), **found["limits"][name])
        for what, name in (("time", "seconds"), ("memory", "whole_bytes"))
    ]


def rows_of_train(found: Found) -> Rows:
    lines = []
    for model, sides in found.items():
        base = sides["trainer"]
        for side, result in sides.items():
            if side != "trainer":
                ratio = result["samples_per_second"] / base["samples_per_second"]
                memory = round(base["peak_bytes"] / result["peak_bytes"], 3)
                of_time = share_of("plain product", result["share_of_product"])
                of_memory = share_of(STATE, result["share_of_memory"])
                lines.append(row(f"train: {model}, {side}", TRAINER, ratio=round(ratio, 3), **of_time))
                lines.append(row(f"train: {model}, {side}, memory", TRAINER, ratio=memory, **of_memory))
    return lines


def rows_of_laws(found: Found) -> Rows:
    return [
        row(
            f"laws: bootstrap, {name}",
            base,
            ratio=round(found[f"{key}_ratio"], 2),
            **share_of("evaluating the law", found[f"{key}_share_of_evaluating"]),
        )
        for name, key, base in (
            ("robust", "robust", "scipy's BFGS in a loop"),
            ("least squares", "squares", "scipy's curve_fit in a loop"),
        )
    ]


def rows_of_metrics(found: Found) -> Rows:
    ours = found["cider_seconds"]
    limit = share_of("splitting into words", found["split_seconds"] / ours)
    bases = {"CIDEr-D in dictionaries": "dictionaries_cider_seconds", "pycocoevalcap": "pycocoevalcap_cider_seconds"}
    return [
        row("metrics: CIDEr", base, ratio=round(found[name] / ours, 2), **limit)
        for base, name in bases.items()
        if name in found
    ]


def rows_of_leakage(found: Found) -> Rows:
    ours = found["near_seconds"]
    limit = share_of("sorting the prints once", found["sort_seconds"] / ours)
    return [row("leakage: near pairs", "comparing all with all", ratio=round(found["all_seconds"] / ours, 2), **limit)]


def own_rows(found: Found) -> Rows:
    return list(found["rows"])


READERS: Mapping[str, Callable[[Found], Rows]] = {
    "generate": own_rows,
    "native": own_rows,
    "linear": own_rows,
    "captions": own_rows,
    "processes": own_rows,
    "train_step": own_rows,
    "start": own_rows,
    "growth": own_rows,
    "data": rows_of_data,
    "index_tar": rows_of_index,
    "align": rows_of_align,
    "loss": rows_of_loss,
    "train": rows_of_train,
    "laws": rows_of_laws,
    "metrics": rows_of_metrics,
    "leakage": rows_of_leakage,
    "study": own_rows,
}
