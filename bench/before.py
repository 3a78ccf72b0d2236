"""Captions a second from pictures to texts, against another checkout: `babelcap.load(micro).caption`, at its defaults.

Drawn pictures x six languages with the captioner that comes with babelcap, each source in a process of its own, in
turn. The models, beams and pictures are the same; what differs is the code and how many texts it decodes at once.

python bench/before.py OTHER/src [--images 500] [--batch-size 16] [--repeats 3] [--json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from babelcap.world.render import render
from babelcap.world.scenes import draw_scene, generator
from measure import row

SOURCE = Path(__file__).parent.parent / "src"
MODEL = SOURCE / "babelcap" / "models" / "shipped" / "micro"
LANGUAGES = ["en", "de", "fr", "es", "ru", "zh"]
IMAGE_SIZE_PX = 112
CAPTION = """
import json, sys, time
from pathlib import Path
import babelcap
folder, model, options = Path(sys.argv[1]), babelcap.load(sys.argv[2]), json.loads(sys.argv[4])
pictures, languages = sorted(folder.glob("*.png")), json.loads(sys.argv[3])
list(model.caption(pictures[:4], languages, **options))
start = time.perf_counter()
found = model.caption(pictures, languages, **options)
seconds = time.perf_counter() - start
print(json.dumps([sum(map(len, found.values())) if isinstance(found, dict) else len(found), seconds]))
"""


def draw_pictures(folder: Path, number: int) -> None:
    for index in range(number):
        rng = generator(7, "before", index)
        render(draw_scene(rng), rng, IMAGE_SIZE_PX).save(folder / f"{index:04d}.png")


def captions_per_second(source: Path, folder: Path, options: dict[str, Any]) -> float:
    arguments = [str(folder), str(MODEL), json.dumps(LANGUAGES), json.dumps(options)]
    done = subprocess.run(
        [sys.executable, "-c", CAPTION, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(source)},
    )
    number, seconds = json.loads(done.stdout.splitlines()[-1])
    return float(number / seconds)


def run_benchmark(before: Path, num_images: int, repeats: int, options: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        draw_pictures(Path(name), num_images)
        pairs = [
            (captions_per_second(before, Path(name), options), captions_per_second(SOURCE, Path(name), options))
            for _ in range(repeats)
        ]
    theirs, ours = max(then for then, _ in pairs), max(now for _, now in pairs)
    ratios = [now / then for then, now in pairs]
    found = row(
        "captions: pictures to texts",
        "another checkout",
        ratio=round(ours / theirs, 3),
        low=round(min(ratios), 3),
        high=round(max(ratios), 3),
        target=3.0,
    )
    return {"captions a second": {"before": round(theirs, 1), "now": round(ours, 1)}, "rows": [found]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the src folder of another checkout")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--batch-size", type=int, help="the same for both; by default each one's own")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    settings = {} if options.batch_size is None else {"batch_size": options.batch_size}
    result = run_benchmark(options.before, options.images, options.repeats, settings)
    if options.json:
        print(json.dumps(result))
        return
    (found,) = result["rows"]
    print(f"{result['captions a second']}: {found['ratio']} times ({found['low']} to {found['high']})")


if __name__ == "__main__":
    main()
