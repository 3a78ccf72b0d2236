"""Chat models over transformers' chat template: Gemma-3, Pixtral, Qwen-VL and any other image-text-to-text model."""

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems.decoder_only import DecoderOnly
from babelcap.evaluation.systems.loading import load_model
from babelcap.evaluation.systems.settings import SystemOptions, read_settings


class Chat(DecoderOnly):
    def __init__(self, path_or_id: str, options: SystemOptions) -> None:
        name = "chat"
        settings = read_settings(name, options)
        loaded = load_model(name, path_or_id, (), "AutoModelForImageTextToText", settings, options)
        if not getattr(loaded.processor, "chat_template", None):
            raise UserError(f"{name}: '{path_or_id}' has no chat template; it is not a chat model")
        super().__init__(name, loaded, settings)

    def _inputs(self, items: Sequence[Item], images: Sequence[Any], answers: Sequence[str] | None) -> Any:
        given: Sequence[str | None] = [None] * len(items) if answers is None else answers
        texts = [self._rendered(item, answer) for item, answer in zip(items, given, strict=True)]
        begin = self.loaded.processor.tokenizer.bos_token
        written = bool(begin) and texts[0].startswith(begin)  # by the template: it must not be there twice
        return self.loaded.processor(
            images=[[image] for image in images],
            text=texts,
            padding=True,
            return_tensors="pt",
            add_special_tokens=not written,
        )

    def _rendered(self, item: Item, answer: str | None) -> str:
        chat: list[dict[str, Any]] = [
            {"role": "user", "content": [{"type": "image"}, *_text(self.settings.prompt(self.name, item))]}
        ]
        system_text = self.settings.system_text.get(self.loaded.model.config.model_type)
        if system_text is not None:
            chat.insert(0, {"role": "system", "content": _text(system_text)})
        if answer is None:
            return self._template(chat, add_generation_prompt=True)
        answer = answer.strip()
        try:
            return self._template([*chat, {"role": "assistant", "content": _text(answer)}])
        except (TemplateError, TypeError):  # Mistral's templates take lists from users only
            return self._template([*chat, {"role": "assistant", "content": answer}])

    def _template(self, chat: list[dict[str, Any]], add_generation_prompt: bool = False) -> str:
        processor = self.loaded.processor
        return str(processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=add_generation_prompt))


def _text(text: str) -> list[dict[str, str]]:
    """Templates differ in what they call it."""
    return [{"type": "text", "text": text, "content": text}]
