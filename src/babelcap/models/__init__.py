"""The models: an encoder of image and prompt, a decoder, and what it takes to build, load, save and use them.

Importing this registers the captioner with transformers, so that AutoConfig, AutoProcessor and AutoModel know it.
"""

from transformers import AutoConfig, AutoModel, AutoModelForImageTextToText, AutoModelForSeq2SeqLM, AutoProcessor

from babelcap.models.checkpoints.importing import import_checkpoint
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.checkpoints.processor import CaptionProcessor, load_processor
from babelcap.models.generation.requests import GeneratedText, GenerationRequest, GenerationResult, GenerationSettings
from babelcap.models.generation.shortlist import build_shortlist, write_shortlist
from babelcap.models.inference import CaptionPipeline, load
from babelcap.models.network.captioner import Captioner, CaptionerOutput
from babelcap.models.network.configuration import CaptionerConfig

__all__ = [
    "CaptionPipeline",
    "CaptionProcessor",
    "Captioner",
    "CaptionerConfig",
    "CaptionerOutput",
    "GeneratedText",
    "GenerationRequest",
    "GenerationResult",
    "GenerationSettings",
    "build_shortlist",
    "import_checkpoint",
    "load",
    "load_model",
    "load_processor",
    "write_shortlist",
]

AutoConfig.register(CaptionerConfig.model_type, CaptionerConfig)
AutoProcessor.register(CaptionerConfig, CaptionProcessor)
for _auto_class in (AutoModel, AutoModelForImageTextToText, AutoModelForSeq2SeqLM):
    _auto_class.register(CaptionerConfig, Captioner)
