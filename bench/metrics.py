"""Time of CIDEr of 10,000 captions with an interval of 1,000 replicates, against counting in dictionaries without one.

All score the same tokens in the same run; seconds of processor time in one thread. The baseline is CIDEr-D as the COCO
tools compute it, a dictionary of n-grams a caption, and must give the same score; pycocoevalcap itself, whose wheel has
104 MB of jars, is measured too where it is installed (pip install --no-deps pycocoevalcap; no Java is needed here).
Neither has an interval: to get one, scoring is repeated for each replicate. The limit is splitting texts into words.

Run: python bench/metrics.py [--quick] [--json]
"""

import argparse
import importlib.util
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from babelcap.evaluation.metrics import Score, coco_scores, ptb_tokenise
from babelcap.evaluation.metrics.coco import cider_of_tokens

NUM_CAPTIONS, NUM_REFERENCES, NUM_REPLICATES = 10_000, 5, 1_000
NUM_WORDS = 8_000  # of the vocabulary; frequencies fall as in text

Result = TypeVar("Result")


def captions(num_images: int, seed: int = 0) -> tuple[dict[str, list[str]], dict[str, str]]:
    """References and hypotheses of about ten words. Those of one image share words, as captions do."""
    generator = np.random.default_rng(seed)
    letters = "abcdefghijklmnopqrst"
    words = ["".join(letters[number // 20**place % 20] for place in range(4)) for number in range(NUM_WORDS)]
    weights = 1 / np.arange(1, NUM_WORDS + 1)
    drawn = generator.choice(NUM_WORDS, size=(num_images, 16), p=weights / weights.sum())

    def caption(own: np.ndarray) -> str:
        start = generator.integers(0, 6)
        kept = own[start : start + generator.integers(8, 12)]
        return " ".join(words[number] for number in kept)

    references = {str(image): [caption(own) for _ in range(NUM_REFERENCES)] for image, own in enumerate(drawn)}
    return references, {str(image): caption(own) for image, own in enumerate(drawn)}


def timed(action: Callable[[], Result]) -> tuple[float, Result]:
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def grams_of(text: str) -> Counter[tuple[str, ...]]:
    words = text.split()
    return Counter(tuple(words[at : at + n]) for n in range(1, 5) for at in range(len(words) - n + 1))


def cider_in_dictionaries(references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, str]) -> float:
    """CIDEr-D caption by caption, without arrays; to check and to be measured against."""
    counted = {key: [grams_of(text) for text in texts] for key, texts in references.items()}
    frequency = Counter(gram for texts in counted.values() for gram in set().union(*texts))
    log_images = math.log(len(references))

    def vector(counts: Counter[tuple[str, ...]]) -> tuple[dict[tuple[str, ...], float], list[float], int]:
        weights = {gram: times * (log_images - math.log(max(1, frequency[gram]))) for gram, times in counts.items()}
        squares = [0.0] * 4
        for gram, weight in weights.items():
            squares[len(gram) - 1] += weight**2
        return weights, [math.sqrt(square) for square in squares], sum(n for g, n in counts.items() if len(g) == 2)

    total = 0.0
    for key, texts in counted.items():
        own, own_norms, own_length = vector(grams_of(hypotheses[key]))
        for counts in texts:
            wanted, norms, length = vector(counts)
            products = [0.0] * 4
            for gram, weight in own.items():
                other = wanted.get(gram, 0.0)
                products[len(gram) - 1] += min(weight, other) * other
            cosines = [p / (a * b) for p, a, b in zip(products, own_norms, norms, strict=True) if a and b]
            total += 10 / 4 / len(texts) * sum(cosines) * math.exp(-((own_length - length) ** 2) / (2 * 6.0**2))
    return total / len(references)


def measure(num_images: int) -> dict[str, float]:
    references, hypotheses = captions(num_images)
    cider_of_tokens(*captions(10), {"tok": "given"})  # imports
    found: dict[str, float] = {"captions": num_images, "replicates": NUM_REPLICATES}
    found["tokenise_seconds"], _ = timed(
        lambda: [ptb_tokenise(text + ".") for texts in references.values() for text in texts]
    )
    found["cider_seconds"], score = timed(lambda: cider_of_tokens(references, hypotheses, {"tok": "given"}))
    found["dictionaries_cider_seconds"], plain = timed(lambda: cider_in_dictionaries(references, hypotheses))
    if not math.isclose(plain, score.value, rel_tol=1e-9):
        raise AssertionError(f"CIDEr in dictionaries is {plain}, ours {score.value}")
    texts = [text for several in references.values() for text in several] + list(hypotheses.values())
    found["split_seconds"], _ = timed(lambda: [text.split() for text in texts])
    found["interval_seconds"], _ = timed(lambda: score.interval(NUM_REPLICATES))
    found["all_seconds"], scores = timed(lambda: coco_scores(references, hypotheses, tokenised=True))
    found["bleu_interval_seconds"], _ = timed(lambda: scores["Bleu_4"].interval(NUM_REPLICATES))
    if importlib.util.find_spec("pycocoevalcap") is not None:
        found |= measure_theirs(references, hypotheses, scores)
    return found


def measure_theirs(
    references: dict[str, list[str]], hypotheses: dict[str, str], scores: Mapping[str, Score]
) -> dict[str, float]:
    """pycocoevalcap on the same tokens: its times, and the largest difference to ours, of a corpus or of one image."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    listed = {key: [text] for key, text in hypotheses.items()}
    seconds, cider = timed(lambda: Cider().compute_score(references, listed))
    others, (rouge, bleu) = timed(
        lambda: (
            Rouge().compute_score(references, listed),
            Bleu(4).compute_score(references, listed, verbose=0),
        )
    )
    theirs = {"CIDEr": cider, "ROUGE_L": rouge}
    theirs |= {f"Bleu_{number}": values for number, values in enumerate(zip(*bleu, strict=True), 1)}
    differences = []
    for name, (value, per_image) in theirs.items():
        ours = scores[name].per_item
        alone = [abs(float(found) - ours[key]) for key, found in zip(references, per_image, strict=True)]
        differences.append(max(abs(float(value) - scores[name].value), *alone))
    return {
        "pycocoevalcap_cider_seconds": seconds,
        "pycocoevalcap_all_seconds": seconds + others,
        "difference": max(differences),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the captions")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()
    found = measure(NUM_CAPTIONS // 10 if options.quick else NUM_CAPTIONS)
    if options.json:
        print(json.dumps(found))
        return
    ours = found["cider_seconds"] + found["interval_seconds"]
    print(f"{found['captions']} captions, {NUM_REFERENCES} references each, {NUM_REPLICATES} replicates")
    print(f"PTB tokens of all references       {found['tokenise_seconds']:8.2f} s")
    print(f"CIDEr                              {found['cider_seconds']:8.2f} s")
    print(f"its interval                       {found['interval_seconds']:8.2f} s")
    print(f"CIDEr, ROUGE-L, BLEU-1 to BLEU-4   {found['all_seconds']:8.2f} s")
    print(f"interval of BLEU-4                 {found['bleu_interval_seconds']:8.2f} s")
    plain = found["dictionaries_cider_seconds"]
    print(f"CIDEr in dictionaries, no interval {plain:8.2f} s ({plain / found['cider_seconds']:.1f} times ours)")
    theirs = found.get("pycocoevalcap_cider_seconds")
    if theirs is None:
        print("pycocoevalcap is not installed (pip install --no-deps pycocoevalcap)")
        return
    again = theirs * NUM_REPLICATES
    print(f"pycocoevalcap's CIDEr, no interval {theirs:8.2f} s ({theirs / found['cider_seconds']:.1f} times ours)")
    print(f"with an interval by repetition     {again:8.0f} s ({again / ours:.0f} times ours)")
    both = found["pycocoevalcap_all_seconds"]
    print(f"its CIDEr, ROUGE-L and BLEU        {both:8.2f} s ({both / found['all_seconds']:.1f} times ours)")
    print(f"largest difference of any score    {found['difference']:8.1e}  (of the corpus and of each image)")


if __name__ == "__main__":
    main()
