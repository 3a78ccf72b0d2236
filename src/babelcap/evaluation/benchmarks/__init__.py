"""Benchmarks as distributed, one file each, under one table; sets of them by what they measure."""

from babelcap.evaluation.benchmarks.items import Item, require_images
from babelcap.evaluation.benchmarks.table import BENCHMARKS, TASK_SETS, Benchmark, read_benchmark, task_set

__all__ = ["BENCHMARKS", "TASK_SETS", "Benchmark", "Item", "read_benchmark", "require_images", "task_set"]
