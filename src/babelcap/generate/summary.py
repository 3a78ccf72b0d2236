"""What the stages of a build made and dropped, with which models and versions, from their receipts."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from babelcap.generate.pipeline import Build


def stage_rows(build: Build) -> list[dict[str, Any]]:
    """What each stage made and dropped, for people and scripts."""
    return [
        {
            "stage": stage,
            "num_shards": len(receipts),
            "num_made": build.num_made[stage],
            "num_in": sum(receipt.num_in for receipt in receipts.values()),
            "num_out": sum(receipt.num_out for receipt in receipts.values()),
            "drops": dict(sum((Counter(receipt.drops) for receipt in receipts.values()), Counter()).most_common()),
            "models": _told(receipt.models for receipt in receipts.values()),
            "versions": _told(receipt.versions for receipt in receipts.values()),
            "devices": sorted({receipt.device for receipt in receipts.values()}),
        }
        for stage, receipts in build.receipts.items()
    ]


def _told(parts: Iterable[dict[str, str]]) -> dict[str, list[str]]:
    """All values of each name: shards may have been made at different times."""
    found: dict[str, set[str]] = {}
    for part in parts:
        for name, value in part.items():
            found.setdefault(name, set()).add(value)
    return {name: sorted(values) for name, values in found.items()}
