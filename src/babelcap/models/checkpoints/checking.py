"""A full check of a captioner's folder: every file against the manifest, every weight read, the tokenizers loaded."""

from pathlib import Path
from typing import NamedTuple

from babelcap.errors import UserError
from babelcap.models.checkpoints.files import (
    CAPTIONER_FILES,
    GUIDANCE_FILES,
    MODEL_FILES,
    PROCESSOR_FILES,
    SHORTLIST_FILES,
)
from babelcap.models.checkpoints.loading import build_model
from babelcap.models.checkpoints.processor import load_processor
from babelcap.models.checkpoints.tokenizers import check_tokenizers, missing_tokenizers
from babelcap.models.checkpoints.weights import Checkpoint
from babelcap.storage import MANIFEST, check_manifest, has_manifest, update_manifest


class CaptionerCheck(NamedTuple):
    problems: list[str]
    notes: list[str]  # what is no fault, but should be known
    num_files: int
    num_weights: int


def check_captioner(folder: str | Path, *, write: bool = False) -> CaptionerCheck:
    """With `write` a folder without a manifest, such as a published one, gets one if nothing is wrong with it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    problems: list[str] = []
    notes: list[str] = []
    num_weights = 0
    if has_manifest(folder):
        problems = check_manifest(folder, full=True)
        for files in (MODEL_FILES, PROCESSOR_FILES, SHORTLIST_FILES, GUIDANCE_FILES):
            problems += [problem for problem in check_manifest(folder, only=files) if problem not in problems]
    if not problems:
        try:
            num_weights = _read_all(folder, notes)
        except UserError as error:
            problems.append(str(error))
    if not has_manifest(folder) and write and not problems:
        update_manifest(folder, CAPTIONER_FILES)
        notes.append(f"{folder / MANIFEST} was written of the files as they are")
    elif not has_manifest(folder):
        notes.append(f"{folder} has no {MANIFEST}: damage that leaves it readable is not found; --write makes one")
    num_files = len({path for pattern in CAPTIONER_FILES for path in folder.glob(pattern)})
    return CaptionerCheck(problems, notes, num_files, num_weights)


def _read_all(folder: Path, notes: list[str]) -> int:
    model = build_model(Checkpoint(folder))
    missing = missing_tokenizers(folder, None, None)
    if missing:
        notes.append(f"{folder} has no {' and no '.join(missing)}; name the tokenizers where the model is used")
    else:
        processor = load_processor(folder)
        check_tokenizers(model.config, processor.encoder_tokenizer, processor.decoder_tokenizer)
    return len(model.state_dict())
