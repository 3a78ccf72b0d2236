import json
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from babelcap.coverage import CAPTION, Pair, Style
from babelcap.errors import UserError
from babelcap.records import (
    Annotation,
    EvalResult,
    RunRecord,
    Sample,
    compute_macs,
    read_run_records,
    write_run_records,
)


def make(run: str = "a", **values: object) -> RunRecord:
    fields = {"family": "florence", "size": "s", "seed": 0, "num_steps": 10, "batch_size": 4, "P": 100, "Pt": 50}
    return RunRecord(run=run, **(fields | {"F": 2.0, "S": 40, "C": 120.0} | values))


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    result = EvalResult(
        measure="cross_entropy",
        split="eval",
        per_pair={"caption-es": 1.5, "caption-zh": math.inf},
        per_split={"UC": 2.0},
        num_samples={"caption-es": 7},
    )
    records = [make("a", results=[result], T={"UC": 3.0}), make("b", extra={"note": "line\u2028mark\u0085 图为"})]
    write_run_records(tmp_path / "runs.jsonl", records)
    assert read_run_records(tmp_path / "runs.jsonl") == records


def test_a_loss_that_is_not_a_number_survives(tmp_path: Path) -> None:
    write_run_records(tmp_path / "runs.jsonl", [make(T={"UC": math.nan, "SC": -math.inf})])
    (record,) = read_run_records(tmp_path / "runs.jsonl")
    assert math.isnan(record.T["UC"])
    assert record.T["SC"] == -math.inf
    # And the file is JSON that other programs read.
    json.loads((tmp_path / "runs.jsonl").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_empty_lines_and_files_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    write_run_records(path, [])
    assert read_run_records(path) == []
    path.write_text(f"\n{make().model_dump_json()}\r\n\n")
    assert read_run_records(path) == [make()]


def test_a_damaged_file_names_the_line_and_the_field(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    good = make().model_dump_json()
    path.write_text(f"{good}\n{good[:40]}")
    with pytest.raises(UserError, match=r"runs\.jsonl:2 is not valid JSON"):
        read_run_records(path)
    path.write_text(good.replace('"seed":0', '"seed":"x"'))
    with pytest.raises(UserError, match=r"runs\.jsonl:1: seed: Input should be a valid integer"):
        read_run_records(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        read_run_records(path)
    with pytest.raises(UserError, match="no such file"):
        read_run_records(tmp_path / "absent.jsonl")


def test_compute() -> None:
    assert compute_macs(S=40, F=2.0, P=100, Pt=50) == 120.0


def test_annotations() -> None:
    caption = Annotation(task=CAPTION, language="de", target="ein Hund", style=Style.SHORT)
    assert caption.pair == Pair.parse("caption-de")
    assert Annotation.model_validate_json(caption.model_dump_json()) == caption
    with pytest.raises(ValidationError):
        Annotation(task="a poem", language="de", target="ein Hund")  # which tasks there are, a coverage says
    assert "jpeg" not in repr(Sample(index=0, key="a", annotation=caption, image=b"jpeg"))
