"""The measures of captions: a captioner that tells the truth gets everything, one that is lost gets nothing."""

import json
import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.coverage import Coverage, Style
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import UserError
from babelcap.evaluation.captions import (
    CaptionEvaluation,
    corpus_shortlists,
    evaluate_captions,
    split_pictures,
)
from babelcap.evaluation.loss import LossEvaluation
from babelcap.measures import VARIANTS
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.sizes import size_config
from babelcap.world.corpus import WorldConfig, load_truth, make_world
from babelcap.world.message import plan_caption
from babelcap.world.realise import realise
from babelcap.world.scenes import generator
from tests.evaluation.oracles import ByHeart

NUM_EVAL = 6


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "world"
    config = WorldConfig(num_images=40, num_eval_images=NUM_EVAL, num_holdout_images=2, num_text_lines=60)
    make_world(folder, config)
    return folder


@pytest.fixture(scope="module")
def processor(world: Path) -> CaptionProcessor:
    from transformers import AutoTokenizer

    encoder, decoder = (AutoTokenizer.from_pretrained(world / "tokenizers" / side) for side in ("encoder", "decoder"))
    return CaptionProcessor(encoder, decoder, image_size_px=64)


class Oracle(ByHeart):
    """Says what is true of a picture, always in the given language or in the one that is asked for."""

    def __init__(self, world: Path, processor: CaptionProcessor, always: str | None = None) -> None:
        self.processor, self.always = processor, always
        self.scenes = list(load_truth(world).values())
        self.calls: list[tuple[int, str, bool]] = []

    def generate(self, input_ids, image_features, allowed_tokens, decoder_input_ids=None, **_):  # type: ignore[no-untyped-def]
        prompts = self.processor.encoder_tokenizer.batch_decode(input_ids, skip_special_tokens=True)
        texts = []
        for prompt, feature in zip(prompts, image_features, strict=True):
            asked = next(entry for entry in Coverage().languages if f"language is {entry.name}." in prompt)
            number = int(feature[0, 0])
            plan = plan_caption(self.scenes[number], Style.SHORT, generator(0, "oracle", number))
            text = realise(plan, self.always or asked.code)
            texts.append(f"{asked.prefix} {text}" if decoder_input_ids is not None else text)
        prefixes = [] if decoder_input_ids is None else self.processor.decode(decoder_input_ids)
        self.calls.append((len(texts), "|".join(dict.fromkeys(prefixes)), allowed_tokens is not None))
        ids = [self.processor.decoder_tokenizer(text)["input_ids"] for text in texts]
        width = max(map(len, ids))
        return torch.tensor([row + [0] * (width - len(row)) for row in ids])


def evaluate(world: Path, oracle: Oracle, processor: CaptionProcessor, **settings):  # type: ignore[no-untyped-def]
    options = CaptionEvaluation(image_features=lambda number: torch.full((1, 1), float(number)), **settings)
    return evaluate_captions(oracle, processor, CorpusIndex.open(world), Coverage(), options)  # type: ignore[arg-type]


def test_the_truth_is_right_in_every_variant(world: Path, processor: CaptionProcessor) -> None:
    results, generated = evaluate(world, Oracle(world, processor), processor, batch_size=4)
    found = {result.measure: result for result in results}
    for variant in VARIANTS:
        assert found[f"captions/language/{variant}"].per_split == {"UC": 1.0, "SC": 1.0, "unseen": 1.0}
        assert found[f"captions/objects/{variant}"].per_split["unseen"] == 1.0
        assert found[f"captions/hallucinated/{variant}"].per_split["unseen"] == 0.0
        assert set(found[f"captions/colours/{variant}"].per_pair.values()) == {1.0}
        assert set(found[f"captions/language/{variant}"].num_samples.values()) == {NUM_EVAL}
    assert len(generated) == NUM_EVAL * 6 * 4
    assert 0 < found["captions/objects/chance"].per_split["unseen"] < 0.3
    assert found["captions/language/chance"].per_pair["caption-zh"] == pytest.approx(1 / 6)


def test_prefix_and_shortlist_reach_the_model_and_captions_are_whole(world: Path, processor: CaptionProcessor) -> None:
    oracle = Oracle(world, processor)
    _, generated = evaluate(world, oracle, processor, variants=("prefix+shortlist", "plain"), num_pictures=2)
    prefixes = [entry.prefix for entry in Coverage().languages]
    assert [call for call in oracle.calls if call[2]] == [(2, prefix, True) for prefix in prefixes]
    assert oracle.calls[-1] == (12, "", False)  # languages share a batch where nothing differs between them
    by_language = {(caption.language, caption.variant): caption.text for caption in generated}
    for language in Coverage().languages:
        assert by_language[language.code, "prefix+shortlist"].startswith(language.prefix)
    oracle.calls.clear()
    evaluate(world, oracle, processor, variants=("prefix",), num_pictures=2)
    shared = [call for call in oracle.calls if "|" in call[1]]
    assert sum(call[0] for call in oracle.calls) == 12
    assert shared, "languages whose prefixes have as many tokens share a batch"


def test_a_russian_caption_is_a_whole_sentence(world: Path, processor: CaptionProcessor) -> None:
    """The prefix ends inside a word, which the caption goes on with."""

    class Fisher(Oracle):
        def generate(self, input_ids, image_features, allowed_tokens, decoder_input_ids=None, **_):  # type: ignore[no-untyped-def]
            whole = self.processor.decoder_tokenizer("На картинке изображены две рыбы.")["input_ids"]
            return torch.tensor([whole] * len(input_ids))

    _, generated = evaluate(world, Fisher(world, processor), processor, variants=("prefix",), num_pictures=1)
    assert {caption.text for caption in generated if caption.language == "ru"} == {"На картинке изображены две рыбы."}


def test_another_language_has_no_content(world: Path, processor: CaptionProcessor) -> None:
    results, _ = evaluate(world, Oracle(world, processor, always="en"), processor, variants=("plain",))
    found = {result.measure: result for result in results}
    assert found["captions/language/plain"].per_pair == {f"caption-{code}": float(code == "en") for code in
                                                         ("en", "de", "fr", "es", "ru", "zh")}  # fmt: skip
    assert found["captions/objects/plain"].per_split["unseen"] == 0.0
    assert math.isnan(found["captions/hallucinated/plain"].per_split["unseen"])  # nothing was named
    assert found["captions/objects/plain"].per_split["SC"] == 0.5


@pytest.mark.parametrize("name", ["num_pictures", "num_beams", "max_new_tokens", "batch_size"])
@pytest.mark.parametrize("value", [0, -3])
def test_options_have_bounds(name: str, value: int) -> None:
    with pytest.raises(UserError, match=f"{name} is {value}; it must be at least 1"):
        CaptionEvaluation(**{name: value})
    if name == "batch_size":
        with pytest.raises(UserError, match=f"{name} is {value}; it must be at least 1"):
            LossEvaluation(BatchConfig(), batch_size=value)


def test_splits_and_shortlists_come_from_the_world(world: Path, processor: CaptionProcessor) -> None:
    index = CorpusIndex.open(world)
    assert [picture.key for picture in split_pictures(index, "holdout")] == ["000000046", "000000047"]
    shortlists = corpus_shortlists(index.corpus, Coverage(), processor)
    spanish = set(processor.decoder_tokenizer("La imagen muestra")["input_ids"])
    assert spanish <= set(shortlists["es"])
    assert len(shortlists["es"]) < len(processor.decoder_tokenizer)
    with pytest.raises(UserError, match="variant 'prefixed' is unknown"):
        evaluate(world, Oracle(world, processor), processor, variants=("prefixed",))


def test_command_on_an_untrained_captioner(world: Path, processor: CaptionProcessor, tmp_path: Path) -> None:
    torch.manual_seed(0)
    vocabularies = {
        "encoder_vocab_size": len(processor.encoder_tokenizer),
        "decoder_vocab_size": len(processor.decoder_tokenizer),
    }
    Captioner(size_config("micro-florence-s", **vocabularies)).save_pretrained(tmp_path / "model")
    processor.save_pretrained(tmp_path / "model")
    arguments = ["eval", "captions", str(tmp_path / "model"), str(world), "--num", "2", "--max-new-tokens", "6"]
    done = CliRunner().invoke(app, [*arguments, "--json", "--texts"])
    assert done.exit_code == 0, done.output
    values = json.loads(done.stdout)
    measured = {(result["measure"], result["split"]) for result in values["results"]}
    assert ("captions/relations/prefix+shortlist", "eval") in measured
    assert len(values["captions"]) == 2 * 6 * 4
    assert values["captions"][0].keys() == {"key", "language", "variant", "text", "score", "marks", "right"}
    table = CliRunner().invoke(app, [*arguments, "--variant", "plain"])
    assert table.exit_code == 0, table.output
    assert CliRunner().invoke(app, [*arguments, "--style", "long"]).exit_code == 2
