"""Losses on corpora as importers write them: another split's name, some pairs only; and every number has bounds."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.coverage import Coverage
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import CorpusWriter
from babelcap.errors import UserError
from babelcap.evaluation.loss import LossEvaluation, loss_evaluation, measured_pairs
from babelcap.evaluation.splits import choose_split, find_split
from babelcap.measures import LOSS
from babelcap.models import Captioner, CaptionProcessor
from babelcap.models.sizing.sizes import size_config
from babelcap.records import Annotation

WORDS = [f"w{number}" for number in range(20)]
NUM_IMAGES = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    specials = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}
    words = [*specials.values(), *WORDS]
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    sides = [PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials) for _ in range(2)]
    torch.manual_seed(0)
    sizes = {"encoder_vocab_size": len(words), "decoder_vocab_size": len(words)}
    Captioner(size_config("micro-florence-s", **sizes)).save_pretrained(folder)
    CaptionProcessor(*sides, image_size_px=64).save_pretrained(folder)
    return folder


def make_corpus(folder: Path, split: str, *languages: str) -> Path:
    """Captions in these languages, as COCO's or Multi30K's importers would write them."""
    with CorpusWriter(folder, provenance={"source": "test"}) as writer:
        for number in range(NUM_IMAGES):
            encoded = io.BytesIO()
            Image.new("RGB", (64, 64), (40 * number, 90, 10)).save(encoded, "PNG")
            annotations = [
                Annotation(task="caption", language=code, target=" ".join(WORDS[number : number + 5]), style="short")  # type: ignore[arg-type]
                for code in languages
            ]
            writer.add(f"{number:06d}", encoded.getvalue(), "png", split, annotations)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("corpus") / "coco", "test", "en", "fr")


def test_pairs_that_are_there_are_evaluated_and_the_others_named(model: Path, corpus: Path) -> None:
    done = CliRunner().invoke(app, ["eval", "loss", str(model), str(corpus), "--json"])
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    assert {tuple(result["per_pair"]) for result in results} == {("caption-en",)}
    assert {result["split"] for result in results} == {"test"}
    assert results[0]["num_samples"] == {"caption-en": NUM_IMAGES}
    first, second = done.stderr.splitlines()
    assert first == f"babelcap: no split 'eval' in {corpus}; evaluated on 'test'"
    assert second == (
        "babelcap: split 'test' has no caption-es, caption-zh, translation-es, translation-zh, caption-de; "
        "evaluated without"
    )


def test_the_gap_is_that_of_the_two_losses_with_the_error_of_its_own_samples(model: Path, corpus: Path) -> None:
    def measured(limit: int) -> dict[str, dict[str, Any]]:
        done = CliRunner().invoke(app, ["eval", "loss", str(model), str(corpus), "--json", "--limit", str(limit)])
        return {result["measure"]: result for result in json.loads(done.stdout)}

    whole = measured(NUM_IMAGES)
    own, other, gap = (whole[f"{LOSS}{ending}"]["per_split"]["SC"] for ending in ("", "/shuffled", "/gap"))
    assert gap != 0
    assert gap == pytest.approx(other - own, abs=1e-9)
    assert whole[f"{LOSS}/gap"]["sampling_errors"]["SC"] > 0
    assert f"{LOSS}/gap" not in measured(1)  # there is no other picture


def test_a_named_split_is_taken_or_refused(model: Path, corpus: Path) -> None:
    done = CliRunner().invoke(app, ["eval", "loss", str(model), str(corpus), "--split", "eval"])
    assert (done.exit_code, done.stderr) == (2, f"babelcap: {corpus}: no split 'eval'; the corpus has test\n")
    done = CliRunner().invoke(app, ["eval", "loss", str(model), str(corpus), "--split", "test", "--pair", "caption-fr"])
    assert (done.exit_code, done.stderr) == (0, "")


def test_splits_in_order(tmp_path: Path) -> None:
    found = CorpusIndex.open(make_corpus(tmp_path / "val", "val", "de")).corpus
    assert find_split(found) == choose_split(found) == "val"
    assert find_split(found, "test") is None
    with pytest.raises(UserError, match="no split of eval, val, test; the corpus has other"):
        choose_split(CorpusIndex.open(make_corpus(tmp_path / "other", "other", "de")).corpus)


def test_training_evaluates_on_the_split_that_is_there(corpus: Path, tmp_path: Path) -> None:
    options = LossEvaluation(BatchConfig(image_size_px=64))
    assert loss_evaluation(corpus, Coverage(), options) is not None
    assert loss_evaluation(make_corpus(tmp_path / "other", "other", "de"), Coverage(), options) is None
    none = CorpusIndex.open(make_corpus(tmp_path / "french", "eval", "fr"))
    with pytest.raises(UserError, match=r"split 'eval' has none of the pairs caption-es, .*; it has caption-fr"):
        measured_pairs(none, Coverage(), "eval")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *(("loss", option) for option in ("--limit", "--batch-size", "--image-size-px")),
        *(("captions", option) for option in ("--num", "--num-beams", "--max-new-tokens", "--batch-size")),
    ],
)
@pytest.mark.parametrize("value", ["0", "-3"])
def test_numbers_are_checked_before_anything_is_loaded(command: str, option: str, value: str) -> None:
    done = CliRunner().invoke(app, ["eval", command, "nowhere", "nowhere", option, value])
    assert done.exit_code == 2
    assert f"Invalid value for '{option}'" in done.stderr


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": -3}, {"batch_size": 0}, {"num_workers": -1}])
def test_options_have_bounds_in_python_too(options: dict[str, int]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(options))} is "):
        LossEvaluation(BatchConfig(), **options)  # type: ignore[arg-type]
