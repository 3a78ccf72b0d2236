"""Every target of speed against another checkout: before and after, each in processes of its own, in turn.

- `captions`: captions a second from pictures to texts, `babelcap.load(MODEL).caption` of drawn pictures x six languages
  with the captioner that comes with babelcap, each source at its defaults. Models, beams and pictures are the same;
  what differs is the code, how many texts it decodes at once and in how many processes.
- `generate`: seconds of a generation at the 0.4B size, random weights, 257,024 tokens, 4 beams, batch 4, 224 px, whole
  and with a shortlist; in int8 too, against the other source's int8 or, where it knows none, against its float32.
- `train`: seconds and peak memory (VmHWM) of a step of the source's own loop at the 0.4B size: 4 samples, prompts of
  16 and targets of 64 tokens, 224 px, the vision tower frozen; ours in bfloat16 too, against the other's float32.
- `start`: seconds of `babelcap caption` of one picture and of `babelcap --help`, from nothing to their end.

A ratio is of the fastest runs, above 1 where this source is faster or smaller; its spread is that of neighbours. What
runs inside the sources is bench/one_source.py.

python bench/before.py OTHER/src [--only captions generate train start] [--images 500] [--batch-size 16]
    [--repeats 3] [--quick] [--json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from babelcap.world.render import render
from babelcap.world.scenes import draw_scene, generator
from measure import Timings, row
from start import seconds_of

SOURCE = Path(__file__).parent.parent / "src"
MODEL = SOURCE / "babelcap" / "models" / "shipped" / "micro"
LANGUAGES = ["en", "de", "fr", "es", "ru", "zh"]
IMAGE_SIZE_PX = 112
LARGE_IMAGE_SIZE_PX = 224
NUM_SHORTLISTED = 20_000
BASELINE, MEMORY, LOSS = "another checkout", ", memory", "loss"

Measured = dict[str, float]  # of one source in one round, by name: lower is better
Round = tuple[Measured, Measured]  # before, now


class Asked(NamedTuple):
    """How much of each is measured."""

    pictures: Path
    caption_settings: Mapping[str, Any]
    num_new_tokens: int = 64
    num_steps: int = 2
    size: str = "0.4B"


class Line(NamedTuple):
    """A row of what is measured; `otherwise` is what it is held against where the other source has no such thing."""

    name: str
    measured: str
    otherwise: str | None = None
    target: float | None = None
    unit: str = "s"


def draw_pictures(folder: Path, number: int) -> None:
    for index in range(number):
        rng = generator(7, "before", index)
        render(draw_scene(rng), rng, IMAGE_SIZE_PX).save(folder / f"{index:04d}.png")


def in_source(source: Path, what: str, **options: Any) -> Measured:
    command = [sys.executable, str(Path(__file__).parent / "one_source.py"), what, json.dumps(options)]
    environment = os.environ | {"PYTHONPATH": str(source)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: Measured = json.loads(done.stdout.splitlines()[-1])
    return found


def measure_captions(source: Path, asked: Asked) -> Measured:
    given = {"model": str(MODEL), "pictures": str(asked.pictures), "languages": LANGUAGES}
    return in_source(source, "captions", **given, settings=asked.caption_settings)


def measure_generation(source: Path, asked: Asked) -> Measured:
    return in_source(
        source,
        "generate",
        size=asked.size,
        batch_size=4,
        num_beams=4,
        num_new_tokens=asked.num_new_tokens,
        num_shortlisted=NUM_SHORTLISTED,
        image_size_px=LARGE_IMAGE_SIZE_PX,
    )


def measure_training(source: Path, asked: Asked) -> Measured:
    """Peak memory is a process's, so each precision has its own."""
    found: Measured = {}
    for name, precision in (("float32", "fp32"), ("bfloat16", "bf16")):
        if precision == "bf16" and source != SOURCE:
            continue
        given = {"size": asked.size, "precision": precision, "num_samples": 4, "num_target_tokens": 64}
        took = in_source(source, "train", **given, image_size_px=LARGE_IMAGE_SIZE_PX, num_steps=asked.num_steps)
        found |= {name: took["seconds"], f"{name}{MEMORY}": took["peak_bytes"], LOSS: took["loss"]}
    return found


def measure_start(source: Path, asked: Asked) -> Measured:
    started = ["-c", "from babelcap.cli import main\nmain()"]
    picture = str(min(asked.pictures.glob("*.png")))
    caption = [*started, "caption", picture, "--model", str(MODEL), "--language", "en"]
    return {"caption": seconds_of(caption, source), "--help": seconds_of([*started, "--help"], source)}


SUBJECTS: Mapping[str, tuple[Callable[[Path, Asked], Measured], Sequence[Line]]] = {
    "captions": (
        measure_captions,
        [Line("captions: pictures to texts", "captions", target=3.0, unit="captions/s")],
    ),
    "generate": (
        measure_generation,
        [
            Line("generate: float32", "float32"),
            Line(f"generate: shortlist of {NUM_SHORTLISTED:,}", "shortlist"),
            Line("generate: int8", "int8", "float32"),
            Line(f"generate: int8, shortlist of {NUM_SHORTLISTED:,}", "int8, shortlist", "shortlist"),
        ],
    ),
    "train": (
        measure_training,
        [
            Line("train step: 0.4B", "float32"),
            Line("train step: 0.4B, memory", "float32, memory", unit="GiB"),
            Line("train step: 0.4B, bfloat16", "bfloat16", "float32"),
            Line("train step: 0.4B, bfloat16, memory", "bfloat16, memory", "float32, memory", unit="GiB"),
        ],
    ),
    "start": (measure_start, [Line("start: caption", "caption", target=2.0), Line("start: --help", "--help")]),
}
UNITS: Mapping[str, Callable[[float], float]] = {
    "s": lambda seconds: seconds,
    "captions/s": lambda seconds: 1 / seconds,
    "GiB": lambda num_bytes: num_bytes / 2**30,
}


def make_row(line: Line, rounds: Sequence[Round]) -> dict[str, Any]:
    """Before and now are the best of the rounds, in the line's unit."""
    is_known = line.otherwise is None or line.measured in rounds[0][0]
    held_against = line.measured if is_known else str(line.otherwise)
    before, now = ([one[held_against] for one, _ in rounds], [one[line.measured] for _, one in rounds])
    baseline = BASELINE if is_known else f"{BASELINE}, {held_against.removesuffix(MEMORY)}"
    best = {name: round(UNITS[line.unit](min(found)), 3) for name, found in (("before", before), ("now", now))}
    ratio = Timings({"before": before, "now": now}, {}).ratio("now", "before")
    return row(line.name, baseline, **ratio, target=line.target, **best, unit=line.unit)


def measure_rows(name: str, other: Path, asked: Asked, repeats: int) -> list[dict[str, Any]]:
    measure, lines = SUBJECTS[name]
    if name == "start":  # files into memory, modules into bytecode
        for source in (other, SOURCE):
            measure(source, asked)
    rounds = [(measure(other, asked), measure(SOURCE, asked)) for _ in range(repeats)]
    check_losses(rounds)
    return [make_row(line, rounds) for line in lines]


def check_losses(rounds: Sequence[Round]) -> None:
    losses = [found[LOSS] for both in rounds for found in both if LOSS in found]
    if losses and max(losses) - min(losses) > 1e-4 * losses[0]:
        raise AssertionError(f"the sources compute different losses: {losses}")


def as_line(found: Mapping[str, Any]) -> str:
    target = "" if found["target"] is None else f"; target {found['target']}"
    return (
        f"{found['name']:36}{found['ratio']:7.2f} [{found['low']:.2f}, {found['high']:.2f}{target}]  "
        f"{found['before']:g} -> {found['now']:g} {found['unit']}  against {found['baseline']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the src folder of another checkout")
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--images", type=int, help="of the captions; by default 500, or 20 when quick")
    parser.add_argument("--batch-size", type=int, help="of the captions, the same for both; by default each one's own")
    parser.add_argument("--repeats", type=int, help="rounds; by default 3, or 1 when quick")
    parser.add_argument("--quick", action="store_true", help="20 pictures, 32 new tokens, one step, one round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not (options.before / "babelcap").is_dir():
        parser.error(f"{options.before} holds no babelcap; name the src folder of a checkout")
    settings = {} if options.batch_size is None else {"batch_size": options.batch_size}
    with tempfile.TemporaryDirectory() as folder:
        draw_pictures(Path(folder), options.images or (20 if options.quick else 500))
        asked = Asked(Path(folder), settings)
        if options.quick:
            asked = asked._replace(num_new_tokens=32, num_steps=1)
        repeats = options.repeats or (1 if options.quick else 3)
        rows = []
        for name in options.only:
            found = measure_rows(name, options.before, asked, repeats)
            rows += found
            if not options.json:  # as they come: if a later one fails, these were measured
                print("\n".join(map(as_line, found)), flush=True)
    if options.json:
        print(json.dumps({"repeats": repeats, "quick": options.quick, "rows": rows}))


if __name__ == "__main__":
    main()
