"""Packages that some metrics need and most users do without: absent, they are one clear line."""

import importlib
from types import ModuleType

from babelcap.errors import UserError


def need(module: str, metric: str, install: str = "babelcap[eval]") -> ModuleType:
    """The module, or a line that says what to install for which metric."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = getattr(error, "name", None) or module
        raise UserError(f"{metric}: '{missing}' is not installed; pip install '{install}'") from None
