"""What `model info` says of the published sizes, counted once and kept, so that it need not be counted at every call.

`python -m babelcap.cli.counted` counts and writes `counted.json`. Each entry holds only for the very source that it was
counted by and the versions of torch and transformers: where one of them is another, the command counts again.
"""

import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from babelcap.errors import UserError
from babelcap.storage import read_json_object, write_text

KEPT = Path(__file__).with_name("counted.json")
SIZES = ("0.4B", "1.0B", "3.5B", "11.2B")
LIBRARIES = ("torch", "transformers")
# Read as text, not imported: importing them takes longer than counting.
COUNTED_BY = ("models/network", "models/sizing")


def source_hash() -> str:
    """Of the files that a count depends on; a size's numbers are among them."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(path for folder in COUNTED_BY for path in (package / folder).glob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def installed() -> dict[str, str]:
    """Versions without what a build adds to them."""
    try:
        return {name: version(name).partition("+")[0] for name in LIBRARIES}
    except PackageNotFoundError:
        return {}


def kept_info(size: str, policy: str) -> dict[str, Any] | None:
    """What was counted of a size at its own image size, where that holds here."""
    try:
        kept = read_json_object(KEPT) if size in SIZES and KEPT.is_file() else {}
    except UserError:
        return None
    if kept.get("versions") != installed() or kept.get("source") != source_hash():
        return None
    found = kept["sizes"][size]
    return found.get(policy) if isinstance(found, dict) else None


def count_sizes() -> dict[str, Any]:
    from babelcap.models.sizing.freezing import POLICIES
    from babelcap.models.sizing.info import model_info
    from babelcap.models.sizing.sizes import size_config

    return {size: {policy: model_info(size_config(size), policy=policy) for policy in POLICIES} for size in SIZES}


if __name__ == "__main__":
    values = {"source": source_hash(), "versions": installed(), "sizes": count_sizes()}
    write_text(KEPT, json.dumps(values, separators=(",", ":")) + "\n")
