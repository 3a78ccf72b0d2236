"""Which captioner the app and the server start with, and what it can and cannot do, in words for its users."""

from dataclasses import dataclass
from pathlib import Path

from babelcap.errors import UserError
from babelcap.models import CaptionPipeline, load
from babelcap.models.checkpoints.named import MICRO, PHOTOS
from babelcap.models.checkpoints.weights import require_model, resolve_folder

ABOUT = {
    PHOTOS: "A small captioner of photographs, assembled on this machine from parts that anybody can install. What it "
    "sees depends on the bridge that it was assembled with: measure it with `babelcap eval photos`.",
    MICRO: "A captioner of 2.6 million parameters that comes with babelcap to show the method. It knows drawn "
    "scenes only: twelve kinds of things in ten colours. Of a photograph it says "
    "something about drawn things, which is wrong. It translates badly.",
}
OTHER = "A checkpoint of your own. What it can do is what it was trained on."


@dataclass(frozen=True)
class Chosen:
    name: str  # as the API calls it
    pipeline: CaptionPipeline
    about: str
    is_micro: bool  # knows drawn scenes only


def choose_model(model: str | None, device: str | None = None) -> Chosen:
    """The one that is named; else that of photographs where it is installed; else the one that is shipped."""
    name = model or _installed_photos() or MICRO
    pipeline = load(name, device=device)
    shown = name if name in ABOUT else Path(name).resolve().name if Path(name).is_dir() else name
    return Chosen(shown, pipeline, ABOUT.get(name, OTHER), name == MICRO)


def _installed_photos() -> str | None:
    try:
        require_model(resolve_folder(PHOTOS))
    except UserError:
        return None
    return PHOTOS
