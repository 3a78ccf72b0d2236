"""A captioner of this package as a model of lmms-eval (0.7): `--model babelcap --model_args pretrained=FOLDER`.

Imported by lmms-eval only, which finds it by an entry point. Of our own tasks' items it knows language, style and
source; any other task is a picture to caption, in `language`, with the model's own prompt: it was taught no other.
Beams, tokens and prefix are the system's, not the task's, so that numbers are those of `babelcap eval`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from lmms_eval.api.model import lmms

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems.ours import Ours
from babelcap.evaluation.systems.settings import SystemOptions

NUMBERS = ("batch_size", "num_beams", "max_new_tokens", "image_size_px")
IGNORED = ("max_batch_size",)  # what lmms-eval hands to every model
OWN_FIELDS = ("id", "image", "language", "task", "style", "source")


def manifest() -> Any:
    """What lmms-eval registers a model by."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest("babelcap", simple_class_path=f"{__name__}.{Babelcap.__name__}")


class Babelcap(lmms):
    is_simple = True

    def __init__(self, pretrained: str, language: str = "en", style: str = "short", **options: Any) -> None:
        super().__init__()
        known = {field.name for field in fields(SystemOptions)}
        if unknown := set(options) - known - set(IGNORED):
            raise UserError(f"model_args: unknown {', '.join(sorted(unknown))} (known: {', '.join(sorted(known))})")
        chosen: dict[str, Any] = {
            name: int(value) if name in NUMBERS else value
            for name, value in options.items()
            if name in known and value is not None
        }
        self.system = Ours(pretrained, SystemOptions(**chosen))
        self.language, self.style = language, style

    @property
    def batch_size(self) -> int:
        return self.system.batch_size

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Arguments of a request: context, generation arguments, picture, number of the document, task, split."""
        answers: list[str] = []
        for some in _batches([self._item(*request.args[2:6]) for request in requests], self.batch_size):
            found: dict[int, str] = {}
            for task in dict.fromkeys(item.task for item in some):
                numbers = [number for number, item in enumerate(some) if item.task == task]
                answer = self.system.caption if task == "caption" else self.system.translate
                texts = [result.text for result in answer([some[number] for number in numbers])]
                found |= dict(zip(numbers, texts, strict=True))
            answers += [found[number] for number in range(len(some))]
        return answers

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """As lmms-eval's multiple choice takes it: the mean loss of a continuation's tokens, of which the least wins.

        Whether it is what a greedy search would say is not computed: False always.
        """
        items, texts = [], []
        for request in requests:
            _, continuation, *place = request.args
            items.append(self._item(*place))
            texts.append(str(continuation(self._document(*place[1:])) if callable(continuation) else continuation))
        losses = []
        for some, given in zip(_batches(items, self.batch_size), _batches(texts, self.batch_size), strict=True):
            losses += self.system.token_losses(some, [text.strip() for text in given])
        return [(sum(row) / len(row), False) for row in losses]

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        raise UserError("babelcap: a captioner answers once; tasks of several rounds are not for it")

    def _item(self, doc_to_visual: Any, doc_id: int, task: str, split: str) -> Item:
        document = self._document(doc_id, task, split)
        if all(name in document for name in OWN_FIELDS):
            values = {name: document[name] for name in OWN_FIELDS}
            return Item(**values | {"image": Path(values["image"])})
        pictures = doc_to_visual(document)
        if len(pictures) != 1:
            raise UserError(f"{task}: document {doc_id} has {len(pictures)} pictures; a captioner takes 1")
        # A Pillow image where our benchmarks have a path: the generation core takes both.
        return Item(f"{task}/{doc_id}", pictures[0], self.language, "caption", self.style)

    def _document(self, doc_id: int, task: str, split: str) -> dict[str, Any]:
        return dict(self.task_dict[task][split][doc_id])


def _batches(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
