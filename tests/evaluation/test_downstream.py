"""The twins' scores: a system that knows all has everything, one that is blind has chance, one that is lost nothing."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from babelcap.coverage import Coverage
from babelcap.evaluation.benchmarks import Item, read_benchmark
from babelcap.evaluation.captions import Generated
from babelcap.evaluation.downstream import DownstreamEvaluation, answer_losses, evaluate_downstream, score_captions
from babelcap.measures import downstream_measure
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.generation.core import GenerationCore
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.sizes import size_config
from babelcap.world.benchmarks import TwinSizes, make_benchmarks
from babelcap.world.corpus import WorldConfig
from babelcap.world.score import CaptionScore
from babelcap.world.tokenizers import train_decoder_tokenizer, train_encoder_tokenizer, wrap_decoder, wrap_encoder
from tests.evaluation.oracles import ByHeart

COVERAGE = Coverage()
NUM_PAIRS = 6


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmarks")
    world = WorldConfig(num_images=0, num_eval_images=8, num_holdout_images=0, seed=5)
    make_benchmarks(folder, world, TwinSizes(num_captioned=8, num_translated=4, num_pairs=NUM_PAIRS))
    return folder


@pytest.fixture(scope="module")
def processor(root: Path) -> CaptionProcessor:
    items = [
        item for name in ("captioning", "translation", "ambiguity") for item in read_benchmark(f"world-{name}", root)
    ]
    sources, texts = [item.source or "" for item in items], [text for item in items for text in item.references]
    encoder, decoder = train_encoder_tokenizer(sources, COVERAGE), train_decoder_tokenizer(texts, COVERAGE)
    return CaptionProcessor(wrap_encoder(encoder), wrap_decoder(decoder), image_size_px=64)


class Oracle(ByHeart):
    """Translates by heart; `sees`: it knows which translation of a pair belongs to the picture that it is shown."""

    def __init__(self, root: Path, processor: CaptionProcessor, sees: bool = True) -> None:
        self.processor, self.sees = processor, sees
        items = read_benchmark("world-ambiguity", root)
        self.right = {(item.image, item.references[0]) for item in items}
        images = {item.image for item in items}
        self.pictures = {bytes_of(processor.encode_image(image, image.name).flatten()): image for image in images}
        self.translations = {
            (item.language, item.source): item.references[0] for item in read_benchmark("world-translation", root)
        }

    def encode_images(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.flatten(1)[:, None]

    def generate(self, input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        prompts = self.processor.encoder_tokenizer.batch_decode(input_ids, skip_special_tokens=True)
        texts = []
        for prompt in prompts:
            language = next(entry for entry in COVERAGE.languages if f"language is {entry.name}." in prompt)
            texts.append(self.translations[language.code, prompt.partition("text: ")[2]])
        ids = [self.processor.decoder_tokenizer(text)["input_ids"] for text in texts]
        width = max(map(len, ids))
        return torch.tensor([row + [0] * (width - len(row)) for row in ids])

    def __call__(self, image_features: torch.Tensor, labels: torch.Tensor, **_: Any) -> SimpleNamespace:
        texts = self.processor.decode(labels.masked_fill(labels < 0, 0))
        losses = torch.ones(labels.shape)
        for row, text in enumerate(texts):
            if self.sees:
                losses[row] -= 0.5 * ((self.pictures[bytes_of(image_features[row // 2][0])], text) in self.right)
            else:
                losses[row] += (hash_of(text) % 1000) / 1000
        return SimpleNamespace(token_losses=losses)


def bytes_of(features: torch.Tensor) -> bytes:
    return features.numpy().tobytes()


def hash_of(text: str) -> int:
    return sum(ord(letter) * (place + 1) for place, letter in enumerate(text))


def generated(item: Item, text: str, variant: str) -> Generated:
    counts = {name: 0 for name in CaptionScore.model_fields if name.startswith("num_")}
    return Generated(item.id.partition("/")[2], item.language, variant, text, CaptionScore(**counts))  # type: ignore[arg-type]


def test_captions_are_scored_as_they_were_made(root: Path) -> None:
    items = read_benchmark("world-captioning", root)
    english = {item.id.partition("/")[2]: item.references[0] for item in items if item.language == "en"}
    captions = [generated(item, item.references[2], "plain") for item in items]
    for item in items:  # English whatever was asked for, behind the language's prefix
        prefix = COVERAGE.language(item.language).prefix
        captions.append(generated(item, f"{prefix} {english[item.id.partition('/')[2]]}", "prefix"))
    scores = score_captions(items, captions, COVERAGE)

    def found(metric: str, code: str, variant: str = "plain", pictures: str = "own") -> float:
        return float(scores[downstream_measure("captioning", metric, variant, pictures)][f"caption-{code}"])  # type: ignore[arg-type]

    for code in ("en", "de", "fr", "es", "ru", "zh"):
        assert found("fidelity", code) == 1
        assert found("CIDEr", code) == found("gated_CIDEr", code) > 2
        assert found("CIDEr", code, pictures="shuffled") < 0.5 * found("CIDEr", code)
    for code in ("de", "fr", "es", "ru", "zh"):
        # A prefix speaks for nobody.
        assert found("fidelity", code, "prefix") == found("gated_CIDEr", code, "prefix") == 0
    assert found("fidelity", "en", "prefix") == 1


def test_a_shuffled_caption_is_that_of_the_next_picture() -> None:
    items = [
        Item(f"en/{key}", Path(key), "en", "caption", references=(text,))
        for key, text in zip("abc", TEXTS, strict=True)
    ]
    captions = [generated(item, text, "plain") for item, text in zip(items, (TEXTS[2], *TEXTS[:2]), strict=True)]
    scores = score_captions(items, captions, COVERAGE)
    assert float(scores[downstream_measure("captioning", "CIDEr")]["caption-en"]) == 0
    moved = scores[downstream_measure("captioning", "CIDEr", pictures="shuffled")]["caption-en"]
    assert float(moved) == pytest.approx(10)  # every caption meets the picture that it was made of


TEXTS = ("one two three four five", "six seven eight nine ten", "red blue green white black")


def test_who_knows_all_and_who_sees_nothing(root: Path, processor: CaptionProcessor) -> None:
    options = DownstreamEvaluation(root, batch_size=7)
    accuracy = downstream_measure("ambiguity", "accuracy")
    for sees, expected in ((True, 1.0), (False, 0.5)):
        oracle = Oracle(root, processor, sees)
        results = evaluate_downstream(oracle, processor, COVERAGE, [], options)  # type: ignore[arg-type]
        by_measure = {result.measure: result for result in results}
        assert set(by_measure[accuracy].per_pair.values()) == {expected}
        assert by_measure[accuracy].per_split == {"ST": expected, "every": expected}
        assert by_measure[accuracy].num_samples["translation-zh"] == 2 * NUM_PAIRS
        assert "pairs" in by_measure[accuracy].signature["translation-zh"]
        for metric, top in (("BLEU", 100), ("chrF", 100), ("fidelity", 1)):
            assert by_measure[downstream_measure("translation", metric)].at("every") == pytest.approx(top)
        other = by_measure[f"{accuracy}/shuffled"].at("every")
        assert other == (0 if sees else expected)  # no answer is right of another pair's picture: all are ties
        assert not [name for name in by_measure if "captioning" in name]  # there were no captions
    alone = evaluate_downstream(oracle, processor, COVERAGE, [], DownstreamEvaluation(root, shuffled=False))  # type: ignore[arg-type]
    assert not [result for result in alone if result.measure.endswith("shuffled")]


def test_losses_of_answers_are_those_of_the_model_one_by_one(root: Path, processor: CaptionProcessor) -> None:
    torch.manual_seed(0)
    config = size_config("micro-gemma-s")
    config.decoder_config.vocab_size = len(processor.decoder_tokenizer)
    model = Captioner(config).eval()
    core = GenerationCore(model, processor, COVERAGE)
    items = read_benchmark("world-ambiguity", root, ["ru"])[:5]
    with torch.inference_mode():
        features = dict(
            zip(
                [i.image for i in items],
                core.encode_pixels(processor.encode_images([i.image for i in items])),
                strict=True,
            )
        )
        right, wrong = answer_losses(core, items, features, batch_size=3)
        assert list(right) == list(wrong) == [item.id for item in items]
        for item in items:
            prompt = COVERAGE.prompt(COVERAGE.pair("translation-ru"), text=item.source)
            for text, losses in ((item.references[0], right[item.id]), (item.contrast, wrong[item.id])):
                labels = torch.tensor([processor.decoder_tokenizer(text)["input_ids"]])
                found = model(
                    **processor.encode_prompts([prompt]), image_features=features[item.image][None], labels=labels
                )
                expected = torch.nn.functional.cross_entropy(found.logits[0].float(), labels[0], reduction="none")
                assert losses == pytest.approx(expected.tolist(), abs=1e-4)
