"""babelcap: an image captioner learns new languages from translation data alone, and scaling laws say how well."""

from typing import Any

from babelcap.version import VERSION as __version__

__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    # torch and transformers take seconds to import; whoever only reads records or prints help does not wait for them.
    if name == "load":
        from babelcap.models import load

        return load
    raise AttributeError(f"module 'babelcap' has no attribute '{name}'")
