"""How fast is the data? Ratios measured in one run, so that a slow or busy machine changes little.

loader        samples a second of the training loader at 224 px, against a bare Pillow decode-and-resize loop over the
              same images in as many processes (at least 0.90); and the same by the processes' processor time, which
              other programs on the machine disturb less
mixture       indices resolved a second, over the published 137 M annotations

    python bench/data.py [--quick] [--json]
"""

import argparse
import io
import json
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from babelcap.coverage import CAPTION, TRANSLATION, Coverage, Pair, Style
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.feed.loader import LoaderConfig, TrainingLoader
from babelcap.data.feed.mixture import Mixture, MixtureConfig
from babelcap.data.feed.reader import BatchReader
from babelcap.data.feed.text import Tokenizers
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import CorpusWriter
from babelcap.records import Annotation

SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
SIZE_PX = 224
NUM_WORKERS = 2
BATCH_SIZE = 64
WORDS = ["the", "a", "red", "small", "dog", "house", "tree", "under", "near", "bicycle", "runs", "stands", "man", "sky"]
PUBLISHED = {
    "caption-en": 19_431_960,
    "caption-de": 12_927_044,
    "translation-de": 32_848_032,
    "translation-es": 19_102_755,
    "translation-fr": 18_532_141,
    "translation-ru": 17_761_632,
    "translation-zh": 16_778_439,
}


def photographs(count: int) -> list[bytes]:
    """Real ones where they are beside the repository, else pictures of the same size with as much detail."""
    real = [path.read_bytes() for path in sorted(SHARED.glob("coco/val2017/*.jpg"))]  # their short side has 320 px
    found = [real[number % len(real)] for number in range(count)] if real else []
    generator = np.random.default_rng(0)
    while len(found) < count:
        noise = Image.fromarray(generator.integers(0, 256, (94, 125, 3), dtype=np.uint8))
        stream = io.BytesIO()
        noise.resize((500, 375), Image.Resampling.BICUBIC).save(stream, "JPEG", quality=90)
        found.append(stream.getvalue())
    return found


def make_corpus(folder: Path, images: list[bytes]) -> CorpusIndex:
    generator = np.random.default_rng(1)

    def text() -> str:
        return " ".join(generator.choice(WORDS, generator.integers(8, 60))) + "."

    with CorpusWriter(folder, provenance={"source": "bench/data.py"}) as writer:
        for number, image in enumerate(images):
            annotations = [
                Annotation(task=CAPTION, language=code, style=Style.SHORT, target=text()) for code in ("en", "de")
            ]
            annotations += [
                Annotation(task=TRANSLATION, language=code, source=text(), target=text())
                for code in ("de", "fr", "es", "ru", "zh")
            ]
            writer.add(f"{number:09d}", image, "jpg", "train", annotations)
    return CorpusIndex.open(folder)


def tokenizers() -> tuple[Any, Any]:
    """The published pair where it is at hand, else two of single bytes, which are no faster."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    found = []
    for name, names in (("florence2", special), ("gemma2", {**special, "bos_token": "<bos>", "eos_token": "<eos>"})):
        path = SHARED / "tokenizers" / name / "tokenizer.json"
        if path.is_file():
            found.append(PreTrainedTokenizerFast(tokenizer_file=str(path), **names))
        else:
            alphabet = [*special.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
            tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(alphabet)}, merges=[]))
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            found.append(PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special))
    return found[0], found[1]


def decode_bare(images: list[bytes]) -> None:
    for encoded in images:
        image = Image.open(io.BytesIO(encoded))
        image.draft("RGB", (SIZE_PX, SIZE_PX))
        image.convert("RGB").resize((SIZE_PX, SIZE_PX), Image.Resampling.BICUBIC)


def _decode_in_process(images: list[bytes], ready: Any, times: Any) -> None:
    ready.wait()
    start = time.perf_counter()
    decode_bare(images)
    times.put((start, time.perf_counter()))


def bare_rate(images: list[bytes]) -> float:
    """Images a second of Pillow alone, from bytes in memory, once all processes are up."""
    context = multiprocessing.get_context("fork")
    ready, times = context.Barrier(NUM_WORKERS), context.Queue()
    shares = [images[number::NUM_WORKERS] for number in range(NUM_WORKERS)]
    processes = [context.Process(target=_decode_in_process, args=(share, ready, times)) for share in shares]
    for process in processes:
        process.start()
    spans = [times.get() for _ in processes]
    for process in processes:
        process.join()
    return len(images) / (max(end for _, end in spans) - min(start for start, _ in spans))


def loader_rate(loader: TrainingLoader, num_steps: int, consume: Callable[[Any], Any]) -> float:
    """Samples a second from the end of the first step on, when all workers are up and busy."""
    start, num_samples = 0.0, 0
    for step, batches in loader.steps(0, num_steps + 1):
        for batch in batches:
            consume(batch)
            num_samples += len(batch) * (step > 0)
        start = start or time.perf_counter()
    return num_samples / (time.perf_counter() - start)


def children_seconds() -> float:
    """Processor time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bench_loader(folder: Path, num_steps: int, num_rounds: int) -> dict[str, float]:
    index = make_corpus(folder, photographs(400))
    mixture = Mixture(index, MixtureConfig(), Coverage(), seed=0)
    reader = BatchReader(index, Tokenizers(*tokenizers()), BatchConfig(image_size_px=SIZE_PX), Coverage())
    config = LoaderConfig(batch_size=2 * BATCH_SIZE, micro_batch_size=BATCH_SIZE, num_workers=NUM_WORKERS)
    loader = TrainingLoader(mixture, reader, config)
    _, rows = mixture.resolve(np.arange(config.batch_size, (num_steps + 1) * config.batch_size))
    images = [index.read_image(index.image_number(row)) for row in rows]
    rates: dict[str, list[float]] = {"bare": [], "loader": [], "normalised": []}
    cpu_seconds = {"bare": 0.0, "loader": 0.0}
    for number in range(num_rounds):  # in turn, so that a machine that gets slower or faster does so for both
        start = children_seconds()
        rates["bare"].append(bare_rate(images))
        between = children_seconds()
        rates["loader"].append(loader_rate(loader, num_steps, len))
        num_read = len(images) + config.batch_size  # the first step is not timed, but it is worked
        cpu_seconds["bare"] += (between - start) / len(images)
        cpu_seconds["loader"] += (children_seconds() - between) / num_read
        if number % 5 == 0:
            rates["normalised"].append(loader_rate(loader, num_steps, lambda batch: batch.model_inputs()))
    # All of the samples over all of the time: the mean of rates would make much of a lucky moment.
    whole = {name: statistics.harmonic_mean(found) for name, found in rates.items()}
    return {
        "bare_samples_per_second": whole["bare"],
        "loader_samples_per_second": whole["loader"],
        "loader_over_bare": whole["loader"] / whole["bare"],
        "bare_cpu_seconds_over_loader_cpu_seconds": cpu_seconds["bare"] / cpu_seconds["loader"],
        "loader_and_normalised_on_cpu_over_bare": whole["normalised"] / whole["bare"],
    }


class PublishedRows:
    """Row numbers of as many annotations as were published, in place of memory maps of a gigabyte."""

    class Rows:
        def __init__(self, size: int) -> None:
            self.size = size

        def __len__(self) -> int:
            return self.size

        def __getitem__(self, positions: np.ndarray) -> np.ndarray:
            return positions

    def pairs(self, split: str) -> tuple[Pair, ...]:
        return tuple(map(Pair.parse, PUBLISHED))

    def rows(self, split: str, pair: Pair) -> Any:
        return self.Rows(PUBLISHED[str(pair)])


def bench_mixture(num_indices: int) -> dict[str, float]:
    start = time.perf_counter()
    mixture = Mixture(PublishedRows(), MixtureConfig(window_size=10_000), Coverage(), seed=0)
    started = time.perf_counter()
    counts = np.zeros(len(mixture.pairs))
    for first in range(0, num_indices, 2**16):
        pair_numbers, _ = mixture.resolve(np.arange(first, min(first + 2**16, num_indices)))
        counts += np.bincount(pair_numbers, minlength=len(counts))
    error = np.abs(counts / num_indices / mixture.weights - 1).max()
    return {
        "mixture_start_seconds": started - start,
        "mixture_indices_per_second": num_indices / (time.perf_counter() - started),
        "mixture_largest_relative_error": float(error),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer images and rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    num_steps, num_rounds = (4, 3) if options.quick else (12, 25)
    with tempfile.TemporaryDirectory() as name:
        results = bench_loader(Path(name) / "corpus", num_steps, num_rounds)
    results |= bench_mixture(100_000 if options.quick else 1_000_000)
    if options.json:
        json.dump(results, sys.stdout, indent=2)
        print()
        return
    for measure, value in results.items():
        print(f"{measure:<40} {value:>14,.4g}" if value < 100 else f"{measure:<40} {value:>14,.0f}")


if __name__ == "__main__":
    main()
