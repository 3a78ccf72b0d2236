"""What is written down about a run: hashes of what it was made from, versions, and the RunRecord of each budget."""

import hashlib
import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from babelcap.errors import UserError
from babelcap.models.checkpoints.files import MODEL_FILES, PROCESSOR_FILES
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.flops import forward_macs, meta_captioner
from babelcap.records import (
    EvalResult,
    RunRecord,
    compute_macs,
    first_problem,
    initial_losses,
    record_values,
    validate_sealed,
)
from babelcap.storage import MANIFEST, file_sha256, read_json, sealed, unsealed, write_json
from babelcap.training.config import TrainConfig
from babelcap.training.loop import LegRun

RECORD, RESULTS, INITIAL = "record.json", "eval.json", "initial.json"
MAKE_AGAIN = "remove it to have it made again"
_COUNTED: dict[tuple[str, int], float] = {}


def make_record(
    leg_run: LegRun, numbers: dict[str, Any], initial: list[EvalResult], results: list[EvalResult]
) -> RunRecord:
    config, progress = leg_run.config, leg_run.progress
    num_samples = progress.step * config.batch_size
    counts = progress.dump()  # sorted: a run that was resumed met its pairs in another order
    return RunRecord(
        run=f"{config.name}/{leg_run.leg.name}",
        seed=config.seed,
        base=config.model,
        num_steps=progress.step,
        batch_size=config.batch_size,
        S=num_samples,
        C=compute_macs(num_samples, numbers["F"], numbers["P"], numbers["Pt"]),
        T=initial_losses(initial),
        initial=initial,
        results=results,
        num_target_tokens=progress.num_target_tokens,
        seconds=progress.seconds,
        versions=versions(),
        extra={name: counts[name] for name in ("samples_by_pair", "bad_samples")},
        **numbers,
        **leg_run.hashes,
    )


def read_record(folder: Path) -> RunRecord:
    return validate_sealed(RunRecord, read_json(folder / RECORD), folder / RECORD, MAKE_AGAIN)


def write_record(folder: Path, record: RunRecord) -> None:
    write_json(folder / RECORD, sealed(record_values(record)))


def read_results(path: Path) -> list[EvalResult]:
    found = unsealed(read_json(path), path, advice=MAKE_AGAIN).get("results")
    try:
        return TypeAdapter(list[EvalResult]).validate_python(found)
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}; {MAKE_AGAIN}") from None


def write_results(path: Path, results: list[EvalResult]) -> None:
    write_json(path, sealed({"results": [record_values(result) for result in results]}))


def model_numbers(model: Captioner, config: TrainConfig) -> dict[str, Any]:
    """P, Pt and F of a model whose policy is applied, and what it is called by them."""
    total = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return {
        "family": "florence" if model.config.decoder_config.kind == "bart" else "gemma",
        "size": f"{total / 1e6:.1f}M" if total < 1e8 else f"{total / 1e9:.1f}B",
        "P": total,
        "Pt": trained,
        "F": _forward_macs(model, config.data.image_size_px),
    }


def _forward_macs(model: Captioner, image_size_px: int) -> float:
    """Counted once a process for each kind of model: a study trains hundreds of the same."""
    key = (model.config.to_json_string(), image_size_px)
    if key not in _COUNTED:
        _COUNTED[key] = forward_macs(meta_captioner(model.config), image_size_px)["total"]
    return _COUNTED[key]


def folder_hash(folder: Path) -> str:
    """Sixteen hex digits over a model folder's configuration, weights and tokenizers.

    Not over what is told about them beside: where they came from and how long that took differ between equal models.
    """
    digest = hashlib.sha256()
    found = {path for pattern in (*MODEL_FILES, *PROCESSOR_FILES) for path in folder.glob(pattern) if path.is_file()}
    for path in sorted(found):
        if path.name != MANIFEST:  # of a tokenizer's folder: it is about the others
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(bytes.fromhex(file_sha256(path)))
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    names = ("babelcap", "torch", "transformers", "tokenizers", "numpy", "pillow", "pyarrow")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}
