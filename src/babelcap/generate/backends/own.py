"""A captioner of this package as teacher: what it learned in English captions images for the next one."""

from collections.abc import Sequence

from babelcap.coverage import Style
from babelcap.generate.backends.captioners import Answer, Question


class OwnCaptioner:
    """`model` is a folder or a hub id. It is asked by style, so prompts and alt-texts say nothing to it."""

    def __init__(
        self,
        model: str,
        device: str = "cpu",
        dtype: str = "float32",
        max_new_tokens: int = 128,
        num_beams: int = 1,
        style: str = Style.DETAILED,
    ) -> None:
        from babelcap.models.inference import load

        self.pipeline = load(model, device=device, dtype=dtype)
        self.max_new_tokens, self.num_beams, self.style = max_new_tokens, num_beams, style

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        found = self.pipeline.caption(
            [question.image for question in questions],
            "en",
            batch_size=len(questions),
            style=self.style,
            num_beams=self.num_beams,
            max_new_tokens=self.max_new_tokens,
            scores=False,
        )
        # The pipeline does not tell a text that was cut; one without a final mark is treated as cut.
        return [Answer(result.text, is_cut=result.text[-1:].isalnum()) for result in found]
