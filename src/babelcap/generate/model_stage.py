"""A stage that holds a model: hashed by the model's contents, and handed its place."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from babelcap.config import affecting_values, resource_values
from babelcap.generate.models import LIBRARIES, model_mark
from babelcap.jobs.receipts import Receipt
from babelcap.jobs.stages import CHECKSUMS, Stage
from babelcap.storage import RememberedChecksums

WORLD = "world"  # the backends that read the world's truth
ROLES = {"caption": "captioner", "describe": "captioner", "translate": "translator", "embed": "embedder"}


def model_stage(
    work: Path, name: str, entry: str, block: BaseModel, *before: Stage, gpus_per_worker: float = 0.0, **more: Any
) -> Stage:
    """`block` has a backend, a model and a device; `more` are settings that matter beside those of the block."""
    values = block.model_dump(mode="json")
    mark = _mark(work, values["backend"], values["model"])
    resources = resource_values(block) | {"model": values["model"]}
    if "converted" in resources:  # other weights are converted anew: the place is named by which they are
        place = Path(resources["converted"] or work / "converted") / mark.strip("/").replace("/", "--")
        resources["converted"] = str(place)
    on_gpu = values["device"] != "cpu" and values["backend"] != "server"
    return Stage(
        name,
        entry,
        affecting_values(block) | more | {"model": mark},
        before=before,
        resources=resources,
        models={ROLES[name.partition("_")[0]]: mark},
        libraries=LIBRARIES.get(values["backend"], ()),
        holds_model=True,
        gpus_per_worker=gpus_per_worker if on_gpu else 0.0,
    )


def teacher_name(stage: str, block: BaseModel, receipts: Iterable[Receipt]) -> str:
    """What annotations call who made them: model and version, as the stage's receipts tell them."""
    values, role = block.model_dump(mode="json"), ROLES[stage]
    if values["backend"] == WORLD:
        return f"{WORLD}-{role}"
    told = {receipt.models[role] for receipt in receipts}
    name, _, version = (told.pop() if len(told) == 1 else str(values["model"])).rpartition("@")
    return f"{name}@{version[:8]}" if name else version


def _mark(work: Path, backend: str, model: str) -> str:
    """A server's model is where the server is; given texts and the world's translator need none."""
    if backend == "server":
        return model
    if backend == "given" or (backend == WORLD and not Path(model).is_dir()):
        return backend
    checksums = RememberedChecksums(work / CHECKSUMS)
    found = model_mark(model, checksums)
    checksums.save()
    return found
