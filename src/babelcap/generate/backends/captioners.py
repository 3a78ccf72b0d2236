"""Captioners of transformers: any image-text-to-text model, LLaVA-NeXT by default, from a folder or the hub."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from PIL import Image

from babelcap.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

IMAGE_MARK = "<image>"
REFUSAL = "refused by the server"  # a reason to drop


class Question(NamedTuple):
    """An image and what is asked of it; `answer_start` is put into the captioner's mouth."""

    key: str
    image: Image.Image
    prompt: str
    answer_start: str = ""


class Answer(NamedTuple):
    """`text` is what was written; `is_cut` where it ended for lack of room. A question that cannot be answered, by the
    data's fault, has a reason to be dropped.
    """

    text: str
    is_cut: bool = False
    drop: str | None = None


class CaptionBackend(Protocol):
    def answer(self, questions: Sequence[Question]) -> list[Answer]: ...


class VisionLanguageModel:
    """Batches are padded on the left, so that answers start side by side."""

    def __init__(
        self, model: str, device: str = "cpu", dtype: str = "float32", max_new_tokens: int = 128, num_beams: int = 1
    ) -> None:
        import torch
        from transformers import AutoModelForImageTextToText, AutoProcessor

        try:
            self.processor = AutoProcessor.from_pretrained(model, trust_remote_code=False)
            self.model = AutoModelForImageTextToText.from_pretrained(
                model, dtype=getattr(torch, dtype), trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0][:200]
            raise UserError(f"caption.model: '{model}' cannot be loaded ({reason})") from None
        self.model = self.model.to(device).eval()
        self.processor.tokenizer.padding_side = "left"
        self.device, self.dtype = device, getattr(torch, dtype)
        self.max_new_tokens, self.num_beams = max_new_tokens, num_beams

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        inputs = self.processor(
            images=[question.image for question in questions],
            text=[f"{self._text(question.prompt)}{question.answer_start}" for question in questions],
            padding=True,
            return_tensors="pt",
        ).to(self.device, self.dtype)
        # Without gradients: `generate` keeps none.
        ids = self.model.generate(
            **inputs, max_new_tokens=self.max_new_tokens, num_beams=self.num_beams, do_sample=False
        )
        # A decoder alone repeats the prompt; an encoder-decoder does not.
        start = 0 if self.model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
        return [self._answer(row[start:]) for row in ids]

    def _text(self, prompt: str) -> str:
        if getattr(self.processor, "chat_template", None):
            content = [{"type": "image"}, {"type": "text", "text": prompt}]
            chat: Any = [{"role": "user", "content": content}]
            return str(self.processor.apply_chat_template(chat, add_generation_prompt=True))
        return f"[INST] {IMAGE_MARK}\n{prompt} [/INST]"  # LLaVA-NeXT's on Mistral, where no template came along

    def _answer(self, ids: "Tensor") -> Answer:
        tokenizer = self.processor.tokenizer
        ended = bool((ids == tokenizer.eos_token_id).any()) or len(ids) < self.max_new_tokens
        return Answer(str(tokenizer.decode(ids, skip_special_tokens=True)).strip(), is_cut=not ended)
