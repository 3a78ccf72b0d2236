"""Captioners that have a name of their own.

`micro`, of drawn scenes, comes with the package; `photos` is made once by `babelcap model get`, then found by name.
"""

import os
from pathlib import Path

from babelcap.errors import UserError

MICRO, PHOTOS = "micro", "photos"
SHIPPED = Path(__file__).parents[1] / "shipped"
HOME = "BABELCAP_HOME"  # in the environment: where they lie; else the user's cache


def place_of(name: str) -> Path:
    home = os.environ.get(HOME)
    return (Path(home) if home else Path.home() / ".cache" / "babelcap") / "models" / name


def named_folder(name: str) -> Path | None:
    """None for a name that is none of these; one that was not made yet is a mistake."""
    if name == MICRO:
        return SHIPPED / MICRO
    if name != PHOTOS:
        return None
    folder = place_of(name)
    if not folder.is_dir():
        raise UserError(f"model '{name}' is not here yet; make it once with `babelcap model get {name}`")
    return folder
