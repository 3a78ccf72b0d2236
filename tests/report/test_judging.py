"""Captions that were judged by two rules are not reported side by side."""

from pathlib import Path

import pytest

from babelcap.errors import UserError
from babelcap.measures import THINGS_ONE_TO_ONE
from babelcap.records import RunRecord
from babelcap.report.judging import check_judging


def judged_now(record: RunRecord) -> RunRecord:
    results = [result.model_copy(update={"signature": THINGS_ONE_TO_ONE}) for result in record.results]
    return record.model_copy(update={"results": results})


def test_captions_of_two_rules_are_refused(records: list[RunRecord]) -> None:
    path = Path("study/runs.jsonl")
    with_captions = [r for r in records if any(result.measure.startswith("captions/") for result in r.results)][:4]
    check_judging(with_captions, path)
    check_judging(map(judged_now, with_captions), path)
    first, *others = with_captions
    with pytest.raises(UserError, match=rf"runs.jsonl: captions of 1 runs, as {first.run}, .* those of 3 others"):
        check_judging([first, *map(judged_now, others)], path)


def test_runs_without_captions_fit_any_rule(records: list[RunRecord]) -> None:
    bare = records[0].model_copy(update={"results": []})
    check_judging([bare, judged_now(records[1])], Path("runs.jsonl"))
