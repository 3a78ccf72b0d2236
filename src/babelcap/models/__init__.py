"""The models: an encoder of image and prompt, a decoder, and what it takes to build, load, save and use them.

Importing this registers the captioner with transformers, so that AutoConfig and the AutoModel classes know it.
"""

from transformers import AutoConfig, AutoModel, AutoModelForImageTextToText, AutoModelForSeq2SeqLM

from babelcap.models.captioner import Captioner, CaptionerOutput
from babelcap.models.configuration import CaptionerConfig
from babelcap.models.loading import load_model

__all__ = ["Captioner", "CaptionerConfig", "CaptionerOutput", "load_model"]

AutoConfig.register(CaptionerConfig.model_type, CaptionerConfig)
for _auto_class in (AutoModel, AutoModelForImageTextToText, AutoModelForSeq2SeqLM):
    _auto_class.register(CaptionerConfig, Captioner)
