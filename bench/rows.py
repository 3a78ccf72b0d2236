"""What each benchmark's JSON says, as lines of the summary: a ratio above 1 is faster or smaller than the baseline."""

from collections.abc import Callable, Mapping
from typing import Any

from measure import row

RECALL_GOAL = 0.95  # of FAISS: the fastest setting that reaches it is the line

Found = dict[str, Any]
Rows = list[Found]


def rows_of_data(found: Found) -> Rows:
    share = round(found["bare_cpu_seconds_over_loader_cpu_seconds"], 3)
    line = row("data: loader", "bare decode, processor time", ratio=share, **{"share of limit": share})
    line["limit"] = "bare decode"
    return [line]


def rows_of_index(found: Found) -> Rows:
    return [
        row(
            f"index_tar: {result['size_px']} px",
            "rewriting the tar, processor time",
            ratio=round(1 / result["ratio_to_rewrite"]["index into a corpus"][1], 2),
            **{
                "share of limit": round(
                    result["seconds"]["scan headers"][1] / result["seconds"]["index into a corpus"][1], 3
                ),
                "limit": "bare scan of the headers",
            },
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
        row("align: exact", "plain product", ratio=share, **{"share of limit": share, "limit": "plain product"}),
        row(name, "exact search", ratio=round(best["speed_up"], 2)),
    ]


def rows_of_loss(found: Found) -> Rows:
    ratios = found["ratios"]
    return [
        row("loss: time", "full logits", ratio=round(1 / ratios["seconds"], 3)),
        row("loss: memory", "full logits", ratio=round(1 / ratios["whole_bytes"], 3)),
    ]


def rows_of_train(found: Found) -> Rows:
    lines = []
    for model, sides in found.items():
        base = sides["trainer"]
        for side, result in sides.items():
            if side != "trainer":
                ratio = result["samples_per_second"] / base["samples_per_second"]
                memory = round(base["peak_bytes"] / result["peak_bytes"], 3)
                lines.append(row(f"train: {model}, {side}", "transformers' Trainer", ratio=round(ratio, 3)))
                if found_limit := result.get("share_of_product"):
                    lines[-1] |= {"share of limit": round(found_limit, 3), "limit": "plain product"}
                lines.append(row(f"train: {model}, {side}, memory", "transformers' Trainer", ratio=memory))
    return lines


def rows_of_laws(found: Found) -> Rows:
    return [
        row("laws: bootstrap, robust", "scipy's BFGS in a loop", ratio=round(found["robust_ratio"], 2)),
        row("laws: bootstrap, least squares", "scipy's curve_fit in a loop", ratio=round(found["squares_ratio"], 2)),
    ]


def rows_of_metrics(found: Found) -> Rows:
    ours, share = found["cider_seconds"], round(found["split_seconds"] / found["cider_seconds"], 3)
    limit = {"share of limit": share, "limit": "splitting into words"}
    bases = {"CIDEr-D in dictionaries": "dictionaries_cider_seconds", "pycocoevalcap": "pycocoevalcap_cider_seconds"}
    return [
        row("metrics: CIDEr", base, ratio=round(found[name] / ours, 2), **limit)
        for base, name in bases.items()
        if name in found
    ]


def rows_of_leakage(found: Found) -> Rows:
    times = {name: value for name, value in found.items() if isinstance(value, float)}
    return [row(f"leakage: {name}", "see the script", value=round(value, 4)) for name, value in times.items()]


def own_rows(found: Found) -> Rows:
    return list(found["rows"])


READERS: Mapping[str, Callable[[Found], Rows]] = {
    "generate": own_rows,
    "native": own_rows,
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
