"""transformers' processors where torchvision is not installed. Pictures need it nowhere: Pillow's path is taken.

Two processors ask for it all the same: Qwen-VL's for its videos, Pixtral's for one function that Pillow's has too.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from babelcap.storage import read_json_object

NEEDLESS = "torchvision"
CLASS_FILES = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
PIXTRAL = "transformers.models.pixtral"


def load_processor(folder: Path, model_type: str) -> Any:
    from transformers import AutoProcessor

    try:
        return AutoProcessor.from_pretrained(folder, trust_remote_code=False)
    except ImportError as error:
        if NEEDLESS not in str(error).lower():
            raise
        return pictures_only(processor_class(folder, model_type)).from_pretrained(folder)


def processor_class(folder: Path, model_type: str) -> Any:
    import transformers
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    named = [
        read_json_object(folder / name).get("processor_class") for name in CLASS_FILES if (folder / name).is_file()
    ]
    name = next((found for found in named if found), None) or PROCESSOR_MAPPING_NAMES[model_type]
    if name == "PixtralProcessor":
        sys.modules.setdefault(
            f"{PIXTRAL}.image_processing_pixtral", importlib.import_module(f"{PIXTRAL}.image_processing_pil_pixtral")
        )
        return importlib.import_module(f"{PIXTRAL}.processing_pixtral").PixtralProcessor
    return getattr(transformers, str(name))


def pictures_only(of: Any) -> Any:
    """The same without a part for videos, which no benchmark here has."""

    def get_attributes(cls: Any) -> list[str]:
        return [name for name in of.get_attributes() if name != "video_processor"]

    return type(of.__name__, (of,), {"get_attributes": classmethod(get_attributes)})
