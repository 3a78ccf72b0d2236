"""Writing a captioner's folder: model, processor, model card and, last, the manifest that vouches for all of it."""

import shutil
from pathlib import Path

from babelcap.models.checkpoints.files import CARD_FILE, INDEX_FILE, MEAN_IMAGE_FILE, OTHER_FILES, SURGERY_FILE
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.checkpoints.weights import without_progress_bar
from babelcap.models.network.captioner import Captioner
from babelcap.storage import MANIFEST, atomic_folder, update_manifest


def save_captioner(
    output: str | Path,
    model: Captioner,
    processor: CaptionProcessor | None,
    *,
    name: str | None = None,
    overwrite: bool = False,
) -> None:
    """Whole or not at all. What its surgery said of the model's sources goes along; `name` is its card's heading."""
    from babelcap.models.checkpoints.card import write_card  # with pyarrow's functions, which loading does not need

    with atomic_folder(output, overwrite=overwrite) as folder:
        with without_progress_bar():
            model.save_pretrained(folder)
        if processor is not None:
            processor.save_pretrained(folder)
        account = Path(model.folder or folder) / SURGERY_FILE
        if account.is_file():
            shutil.copyfile(account, folder / SURGERY_FILE)
        update_manifest(folder, OTHER_FILES)
        write_card(folder, name or Path(output).name)


def copy_all_but_weights(source: Path, target: Path) -> None:
    """What of a captioner's folder holds for other weights too: processor, shortlists, mean image, its account."""

    def left_out(_: str, names: list[str]) -> list[str]:
        return [name for name in names if name in (MANIFEST, INDEX_FILE, CARD_FILE) or is_weights(name)]

    shutil.copytree(source, target, dirs_exist_ok=True, ignore=left_out)


def is_weights(name: str) -> bool:
    return name.endswith((".safetensors", ".bin")) and name != MEAN_IMAGE_FILE
