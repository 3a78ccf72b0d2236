"""What crosses rooms: plain values with types, read from and written to files as JSON."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from babelcap.coverage import Pair, Style, TaskName
from babelcap.errors import UserError
from babelcap.measures import EVAL, HOLDOUT, LOSS, TRAIN
from babelcap.storage import parse_json, read_text, sealed, unsealed, write_text

# A whole number that is a float too: what laws and figures make of it cannot overflow.
Whole = Annotated[int, Field(ge=0, lt=2**63)]


CHANGED = "if that was meant, take its sha256 out"
Kind = TypeVar("Kind", bound="Record")


class Record(BaseModel):
    # JSON has no NaN; written as text it comes back as it was, where null would not.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Annotation(Record):
    """One text of one image. A caption has a style; `source` is the text that a task reads, in the source language."""

    task: TaskName
    language: str
    target: str
    style: Style | None = None
    source: str | None = None
    origin: str = ""  # who made it: a dataset, a model, a person
    score: float | None = None  # how well it fits the image, where that was measured

    @property
    def pair(self) -> Pair:
        return Pair(self.task, self.language)


class Sample(Record):
    """An annotation together with its image, still encoded. `index` is its place in the global training order."""

    index: int
    key: str
    annotation: Annotation
    image: bytes = Field(repr=False)


class EvalResult(Record):
    """A measure of one model on one corpus: per pair, and per test split."""

    measure: str  # what was measured and how, named in `measures.py`
    split: str  # the corpus split
    per_pair: dict[str, float]
    per_split: dict[str, float]
    num_samples: dict[str, int]
    sampling_errors: dict[str, float] = {}  # test split -> standard error of its mean over samples, where it is known
    signature: dict[str, str] = {}

    def at(self, name: str) -> float | None:
        """At a test split, `unseen` or a pair; None where it was not measured."""
        return self.per_split.get(name, self.per_pair.get(name))


class RunRecord(Record):
    """One training run: all that a law, a figure or a table may ask of it."""

    run: str  # name of the run, unique in its study
    study: str = ""
    kind: str = "main"  # main, a control (no-translation, unfit-translation), finetuned or trial
    trial: str = ""  # what was changed in a trial, as match=0.5
    started_from: str = ""  # the run of this study that fine-tuning went on from
    family: str  # decoder family: florence | gemma
    size: str
    base: str = ""  # which base model it started from
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    num_steps: Whole
    batch_size: Whole
    P: Whole  # all parameters
    Pt: Whole  # trained parameters
    F: float  # multiply-accumulates of one forward pass of one sample
    S: Whole  # samples seen
    C: float  # compute, S F (1 + Pt / P)
    T: dict[str, float] = {}  # test split -> the paper's T: `initial_losses(initial)`, for whoever reads the file
    initial: list[EvalResult] = []  # every measure before this training: the T of a law is that of the law's measure
    results: list[EvalResult] = []
    num_target_tokens: Whole = 0
    seconds: float = 0.0
    config_hash: str = ""
    model_hash: str = ""
    corpus_hash: str = ""
    versions: dict[str, str] = {}
    extra: dict[str, Any] = {}


class LawFit(Record):
    """A fitted law with its uncertainty, as `babelcap laws fit --json` prints it and a report reads it."""

    form: str
    formula: str = ""
    target: str
    coefficients: dict[str, float]
    intervals: dict[str, tuple[float | None, float | None]]  # None: the points set no bound on that side
    confidence: float = 0.95
    interval_method: str
    standard_errors: dict[str, float | None] = {}
    p_values: dict[str, float | None] = {}
    not_identified: dict[str, str] = {}  # coefficient -> why its number means nothing
    r2: float
    r2_log: float
    aicc: float | None = None
    num_points: int
    num_groups: int | None = None
    ranges: dict[str, tuple[float, float]] = {}  # column -> smallest and largest value among the points
    warnings: list[str] = []
    extra: dict[str, Any] = {}


def find_result(results: Sequence[EvalResult], measure: str, split: str = EVAL) -> EvalResult | None:
    """Of a split of the corpus; `eval` also finds what stands for it where a corpus has another name for it."""
    of_measure = [result for result in results if result.measure == measure]
    found = next((result for result in of_measure if result.split == split), None)
    if found is None and split == EVAL:
        found = next((result for result in of_measure if result.split not in (TRAIN, HOLDOUT)), None)
    return found


def initial_losses(initial: Sequence[EvalResult]) -> dict[str, float]:
    """The paper's T, by test split: the raw loss of the model before this training."""
    return next((result.per_split for result in initial if result.measure == LOSS), {})


def compute_macs(S: float, F: float, P: float, Pt: float) -> float:
    """C = S F (1 + Pt / P): the backward pass costs as much as the share of the model that is trained."""
    return S * F * (1 + Pt / P)


def write_run_records(path: str | Path, records: list[RunRecord]) -> None:
    """A line each, with its own checksum: a number that changes on the way is not taken for one that was measured."""
    rows = (sealed(record_values(record)) for record in records)
    write_text(path, "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows))


def record_values(record: Record) -> dict[str, Any]:
    """As JSON has them, NaN as text."""
    values: dict[str, Any] = json.loads(record.model_dump_json())
    return values


def read_run_records(path: str | Path) -> list[RunRecord]:
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; a study writes its records to runs.jsonl")
    records = []
    lines = read_text(path).split("\n")  # not splitlines, which also cuts at marks within a text
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        records.append(validate_sealed(RunRecord, parse_json(line, f"{path}:{number}"), f"{path}:{number}"))
    return records


def validate_sealed(kind: type[Kind], values: Any, where: str | Path, advice: str = CHANGED) -> Kind:
    """A record of what a file or a line says; its checksum is compared where it has one."""
    try:
        return kind.model_validate(unsealed(values, where, advice=advice, required=False))
    except ValidationError as error:
        raise UserError(f"{where}: {first_problem(error)}") from None


def first_problem(error: ValidationError) -> str:
    """The field and what is wrong with it, in one line of bounded length whatever the file has for a name."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(" ".join(str(part).split())[:60] for part in first["loc"]) or "the line"
    return f"{where}: {' '.join(first['msg'].split())[:300]}"
