"""What crosses rooms: plain values with types, read from and written to files as JSON."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from babelcap.coverage import Pair, Style, TaskName
from babelcap.errors import UserError
from babelcap.storage import write_text


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

    measure: str  # what was measured and how, e.g. "cross_entropy/sample_mean/prefix_conditioned"
    split: str  # the corpus split
    per_pair: dict[str, float]
    per_split: dict[str, float]
    num_samples: dict[str, int]
    signature: dict[str, str] = {}


class RunRecord(Record):
    """One training run: all that a law, a figure or a table may ask of it."""

    run: str  # name of the run, unique in its study
    study: str = ""
    kind: str = "main"  # main, a control (no-translation, unfit-translation) or finetuned
    started_from: str = ""  # the run of this study that fine-tuning went on from
    family: str  # decoder family: florence | gemma
    size: str
    base: str = ""  # which base model it started from
    seed: int
    num_steps: int
    batch_size: int
    P: int  # all parameters
    Pt: int  # trained parameters
    F: float  # multiply-accumulates of one forward pass of one sample
    S: int  # samples seen
    C: float  # compute, S F (1 + Pt / P)
    T: dict[str, float] = {}  # test split -> cross-entropy before this training
    initial: list[EvalResult] = []  # what T is taken from: every measure before this training
    results: list[EvalResult] = []
    num_target_tokens: int = 0
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


def compute_macs(S: float, F: float, P: float, Pt: float) -> float:
    """C = S F (1 + Pt / P): the backward pass costs as much as the share of the model that is trained."""
    return S * F * (1 + Pt / P)


def write_run_records(path: str | Path, records: list[RunRecord]) -> None:
    write_text(path, "".join(record.model_dump_json() + "\n" for record in records))


def read_run_records(path: str | Path) -> list[RunRecord]:
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; a study writes its records to runs.jsonl")
    records = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines, which also cuts at marks within a text
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error}); it may be damaged or of another kind") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            records.append(RunRecord.model_validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "the line"
            raise UserError(f"{path}:{number}: {field}: {first['msg']}") from None
    return records
