"""Our model and tasks for lmms-eval: with itself where it is installed, else with its interface as 0.7 has it."""

import importlib
import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import BENCHMARKS, Item
from babelcap.evaluation.lmms_eval import tasks
from babelcap.evaluation.systems import SystemOptions, open_system
from babelcap.models import Captioner, CaptionProcessor
from babelcap.models.sizing.sizes import size_config

FILES = sorted(tasks.TASK_FILES.glob("*.yaml"))
REPOSITORY = Path(__file__).parents[3]
LACKING = {name for name in BENCHMARKS if name != "coco" and not name.startswith("world-")}  # it has COCO


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lmms") / "model"
    specials = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    words = [
        *specials.values(),
        *["a", "the", "red", "dog", "ball", "ein", "Hund", "Ball", "liegt", "im", "Gras", "La", "photo", "montre"],
    ]
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    sides = [PreTrainedTokenizerFast(tokenizer_object=core, **specials) for _ in range(2)]
    torch.manual_seed(0)
    Captioner(
        size_config("micro-florence-s", encoder_vocab_size=len(words), decoder_vocab_size=len(words))
    ).save_pretrained(folder)
    CaptionProcessor(*sides, image_size_px=32).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    folder = tmp_path_factory.mktemp("pictures")
    for colour in ("red", "blue"):
        Image.new("RGB", (32, 32), colour).save(folder / f"{colour}.png")
    red, blue = folder / "red.png", folder / "blue.png"
    right, wrong = "ein Hund liegt im Gras", "Ball liegt im Gras"
    return [
        Item("fr/0", red, "fr", "caption", references=("un chien",)),
        Item("de/0", red, "de", "translation", source="the dog", references=(right,), contrast=wrong),
        Item("de/1", blue, "de", "translation", source="the ball", references=(wrong,), contrast=right),
        Item("en/0", blue, "en", "caption", references=("a red dog", "the dog")),
    ]


def documents(items: list[Item], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Written, and read back as the json builder of datasets would."""
    monkeypatch.setattr(tasks, "read_benchmark", lambda name, root, languages: items)
    path, num_items = tasks.write_items("commute", "root", folder)
    assert path == folder / "babelcap_items" / "commute.jsonl"
    assert num_items == len(items)
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, over lmms-eval or over what it asks of a model."""
    try:
        importlib.import_module("lmms_eval.api.model")
    except ImportError:

        class lmms:  # noqa: N801
            def __init__(self) -> None:
                self._rank, self._world_size, self.task_dict = 0, 1, {}

        @dataclass(frozen=True)
        class ModelManifest:
            model_id: str
            simple_class_path: str | None = None

        for name, values in (
            ("lmms_eval", {}),
            ("lmms_eval.api", {}),
            ("lmms_eval.models", {}),
            ("lmms_eval.api.model", {"lmms": lmms}),
            ("lmms_eval.models.registry_v2", {"ModelManifest": ModelManifest}),
        ):
            module = ModuleType(name)
            vars(module).update(values)
            monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "babelcap.evaluation.lmms_eval.model", raising=False)
    return importlib.import_module("babelcap.evaluation.lmms_eval.model")


def request(*arguments: Any) -> SimpleNamespace:
    return SimpleNamespace(args=arguments)


def test_a_captioner_answers_our_tasks(
    adapter: ModuleType, checkpoint: Path, items: list[Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = adapter.Babelcap(str(checkpoint), batch_size="3", device="cpu", num_beams=1, max_new_tokens=4)
    lm.task_dict["ours"] = {"test": documents(items, tmp_path, monkeypatch)}
    options = SystemOptions(device="cpu", batch_size=3, num_beams=1, max_new_tokens=4)
    system = open_system(str(checkpoint), options)
    places = [(tasks.picture, number, "ours", "test") for number in range(4)]
    found = lm.generate_until([request("", {}, *place) for place in places])
    assert found == [
        *(answer.text for answer in system.caption(items[:1])),
        *(answer.text for answer in system.translate(items[1:3])),
        *(answer.text for answer in system.caption(items[3:])),
    ]
    losses = lm.loglikelihood([request("", f" {items[1].references[0]}", *places[1]), request("", "Ball", *places[2])])
    rows = system.token_losses(items[1:3], [items[1].references[0], "Ball"])
    assert [loss for loss, _ in losses] == pytest.approx([sum(row) / len(row) for row in rows])
    targets = lm.loglikelihood([request("", tasks.reference, *places[1])])
    assert targets[0][0] == pytest.approx(losses[0][0])


def test_other_tasks_are_pictures_to_caption(adapter: ModuleType, checkpoint: Path, items: list[Item]) -> None:
    lm = adapter.Babelcap(str(checkpoint), language="fr", device="cpu", num_beams=1, max_new_tokens=4)
    lm.task_dict["coco"] = {"val": [{"question_id": "1"}]}
    picture = Image.open(items[0].image).convert("RGB")
    place = (lambda document: [picture], 0, "coco", "val")
    expected = open_system(str(checkpoint), SystemOptions(device="cpu", num_beams=1, max_new_tokens=4))
    assert lm.generate_until([request("Describe.", {"until": ["\n"]}, *place)]) == [
        answer.text for answer in expected.caption(items[:1])
    ]
    with pytest.raises(UserError, match="coco: document 0 has 2 pictures; a captioner takes 1"):
        lm.generate_until([request("Compare.", {}, lambda document: [picture] * 2, 0, "coco", "val")])
    with pytest.raises(UserError, match="a captioner answers once"):
        lm.generate_until_multi_round([])
    with pytest.raises(UserError, match="model_args: unknown beams"):
        adapter.Babelcap(str(checkpoint), beams=3)


def test_lmms_eval_finds_it(adapter: ModuleType) -> None:
    points = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["entry-points"]["lmms_eval.models"]
    module, _, name = points["babelcap"].partition(":")
    assert (module, name) == (adapter.__name__, adapter.manifest.__name__)
    manifest = adapter.manifest()
    assert manifest.model_id == "babelcap"
    assert manifest.simple_class_path == f"{adapter.__name__}.Babelcap"


class TaskLoader(yaml.SafeLoader):
    """Knows lmms-eval's tag for functions."""


TaskLoader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))


def test_every_benchmark_that_it_lacks_has_a_task_file() -> None:
    loaded = [yaml.load(path.read_text(), TaskLoader) for path in FILES]
    assert [task["task"] for task in loaded] == [path.stem for path in FILES]
    read = {Path(task["dataset_kwargs"]["data_files"]["test"]).stem for task in loaded}
    assert read == LACKING
    for task in loaded:
        assert task["dataset_kwargs"]["data_files"]["test"].startswith(f"{tasks.FOLDER}/")
        named = [task[field] for field in task if field.startswith(("doc_to", "process"))]
        named += [metric["aggregation"] for metric in task["metric_list"]]
        for place in named:
            module, _, name = place.rpartition(".")
            assert module == tasks.__name__
            assert callable(getattr(tasks, name)), place


def test_what_is_asked_and_how_it_is_scored(items: list[Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = documents(items, tmp_path, monkeypatch)
    assert tasks.question(rows[0]).startswith("Describe this image in one short sentence in French.")
    assert tasks.question(rows[1]).endswith("Only answer with the translation.\n the dog")
    assert tasks.choices(rows[1]) == ["ein Hund liegt im Gras", "Ball liegt im Gras"]
    assert tasks.picture(rows[0])[0].size == (32, 32)
    pairs = [((1.0, False), (2.0, False)), ("(3.5, False)", "(3.5, False)"), ("(1e-3, False)", "(0.5, True)")]
    decided = [tasks.decided(rows[1], pair)["accuracy"] for pair in pairs]
    assert [row["is_right"] for row in decided] == [1, 0, 1]
    # Two of three in German, none of one in French: the mean of the languages.
    french = {"id": "x", "language": "fr", "references": [], "is_right": 0.0}
    assert tasks.accuracy([*decided, french]) == pytest.approx(100 * (2 / 3 + 0) / 2)
    perfect = [tasks.translated(row, [row["references"][0]])["BLEU"] for row in rows[1:3]]
    assert (tasks.bleu(perfect), tasks.chr_f(perfect)) == pytest.approx((100, 100))
    texts = {"1": "a red dog runs", "2": "the ball lies here"}
    captions = [
        tasks.captioned({"id": key, "language": "en", "references": [text]}, [text])["CIDEr"]
        for key, text in texts.items()
    ]
    assert (tasks.cider(captions), tasks.bleu_4(captions), tasks.rouge_l(captions)) == pytest.approx((1000, 100, 100))


def test_the_command_says_how_to_go_on(items: list[Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "read_benchmark", lambda name, root, languages: items)
    done = CliRunner().invoke(app, ["eval", "lmms-items", "commute", "--root", str(tmp_path), "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "commute.jsonl: 4 items" in done.stdout
    assert "--tasks babelcap_commute" in done.stdout
