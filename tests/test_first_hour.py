"""A newcomer's path from an empty folder to a report, in processes of their own: nothing ends in a traceback."""

import csv
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from babelcap.data.store.store import Corpus

from .walk import SIZE_PX, Walk, save_captioner

REPOSITORY = Path(__file__).parent.parent
RESULTS = REPOSITORY / "results" / "small"
FEW = ["--num-beams", "1", "--max-new-tokens", "4", "--device", "cpu"]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """An empty folder, then a world in it and a captioner that has learnt nothing, with the world's tokenizers."""
    walk = Walk(tmp_path_factory.mktemp("newcomer"), tmp_path_factory.mktemp("outputs"))
    sizes = ["--images", 60, "--eval-images", 6, "--holdout-images", 2, "--size-px", SIZE_PX, "--text-lines", 40]
    world = walk.start("world", "make", "-o", "w", *sizes, "--workers", 1)
    walk.end(world).ends(0, "w: 60 training pictures; next: ")
    save_captioner(walk.folder / "base", walk.folder / "w" / "tokenizers")
    yield walk
    walk.close()


def test_a_corpus_is_checked_exported_and_indexed_again(walk: Walk) -> None:
    walk.end(walk.start("data", "check", "w")).ends(0, ": all well")
    walk.run("data", "export", "w", "-o", "exported", "--workers", 1).ends(0, "exported: 68 images")
    walk.run("data", "index", "exported", "-o", "again", "--workers", 1).ends(0, "again: 68 images")
    first, again = (
        {(row.key, row.split): row.annotations for row in Corpus.open(walk.folder / name).rows()}
        for name in ("w", "again")
    )
    assert first == again
    walk.run("data", "check", "again", "--workers", 1).ends(0, ": all well")


TRAINING = f"""
name = "first"
model = "base"
output = "runs/first"
policy = "text"
budgets = [100]
batch_size = 4
[data]
corpus = "w"
image_size_px = {SIZE_PX}
num_workers = 0
[schedule]
warmup_steps = 2
[parallel]
micro_batch_size = 4
num_threads = 1
[checkpoint]
every_steps = 1000
[log]
trackers = []
"""


@pytest.fixture(scope="module")
def trained(walk: Walk) -> str:
    """A run that was stopped by hand and started again."""
    (walk.folder / "first.toml").write_text(TRAINING)
    metrics = walk.folder / "runs" / "first" / "budget-000100" / "metrics.jsonl"
    process = walk.start("train", "first.toml")
    deadline = time.monotonic() + 240
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= 3):
        assert time.monotonic() < deadline, "no step within four minutes"
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    walk.end(process).ends(130, "; the same command goes on")
    assert 3 <= len(metrics.read_text().splitlines()) < 100
    done = walk.run("train", "first.toml").ends(0, "evaluating on split 'eval': ")
    assert "first" in done.stdout
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == list(range(1, 101))
    record = json.loads((metrics.parent / "record.json").read_text())
    assert record["S"] == 400
    return "runs/first/budget-000100/model"


def odd_images(folder: Path) -> None:
    folder.mkdir()
    gradient = np.linspace(0, 2**16 - 1, 24 * 32).astype(np.uint16).reshape(24, 32)
    Image.fromarray(gradient).save(folder / "16-bit.png")
    turned = Image.Exif()
    turned[0x0112] = 6  # orientation: the camera was held upright
    Image.fromarray((gradient >> 8).astype(np.uint8)).save(folder / "turned.jpg", exif=turned)
    Image.new("RGBA", (32, 24), (0, 0, 0, 0)).save(folder / "transparent.png")
    Image.new("RGB", (32, 24), "white").save(folder / "white.png")
    Image.new("CMYK", (32, 24), (0, 200, 200, 0)).save(folder / "cmyk.jpg")
    Image.new("RGB", (1, 1), "blue").save(folder / "pixel.png")
    frames = [Image.new("RGB", (32, 24), colour) for colour in ("green", "red")]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    (folder / "words.jpg").write_text("no image")


def photos_as_published(folder: Path) -> None:
    """What one has of COCO: photos and its annotation file; and a folder with a table of one's own."""
    (folder / "photos").mkdir()
    generator = np.random.default_rng(0)
    for number in range(3):
        pixels = generator.integers(0, 255, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{number:012d}.jpg")
    coco = {
        "info": {"description": "COCO 2017 Dataset"},
        "images": [{"id": number, "file_name": f"{number:012d}.jpg", "height": 30, "width": 40} for number in range(4)],
        "annotations": [
            {"id": 10 * number + which, "image_id": number, "caption": f"A dog number {which} on the grass."}
            for number in range(4)
            for which in range(2)
        ],
    }
    (folder / "captions_val2017.json").write_text(json.dumps(coco))
    with (folder / "mine.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["image", "text", "language", "split"])
        for number in range(3):
            table.writerow([f"{number:012d}.jpg", "Un perro en la hierba.", "es", "test"])


def test_a_captioner_is_evaluated_and_used(walk: Walk, trained: str) -> None:
    odd_images(walk.folder / "odd")
    photos_as_published(walk.folder)
    coco = ["--images", "photos", "--captions", "captions_val2017.json"]
    walk.run("data", "import", "coco", *coco, "-o", "coco").ends(0, "test: 3 images; caption-en 6")
    walk.run("data", "import", "folder", "photos", "--texts", "mine.csv", "-o", "mine").ends(0, "caption-es 3")
    caption = ["caption", "--model", trained, "--language", "es,ru", *FEW]
    loss = walk.run("eval", "loss", trained, "w", "--limit", 2, "--json").ends(0, "caption-zh")
    rows = [row for row in json.loads(loss.stdout) if "prefix_given" not in row["measure"]]  # two may not begin with it
    assert all({"UC", "ST", "SC"} == row["per_split"].keys() for row in rows)
    sample = ["--num", 1, "--variant", "prefix", "--max-new-tokens", 4]
    walk.run("eval", "captions", trained, "w", *sample).ends(0, "nothing named")
    on_coco = walk.run("eval", "loss", trained, "coco").ends(0, "no split 'eval' in coco; evaluated on 'test'")
    assert "split 'test' has no caption-de, translation-es, translation-zh, caption-es, caption-zh" in on_coco.stderr
    walk.run("eval", "loss", trained, "mine", "--split", "test", "--no-shuffled").ends(0, "caption-es")
    walk.run(*caption, "odd/moving.gif", "odd/pixel.png", "--output", "captions.jsonl").ends(0, "")
    resumed = walk.run(*caption, "odd", "nowhere.jpg", "--output", "captions.jsonl")
    resumed.ends(1, "odd/words.jpg: not an image")
    assert "nowhere.jpg: missing image" in resumed.stderr
    assert "2 images could not be used" in resumed.stderr
    lines = [json.loads(line) for line in (walk.folder / "captions.jsonl").read_text(encoding="utf-8").splitlines()]
    texts = {(row["image"], row["language"]): row["caption"] for row in lines}
    good = {str(Path("odd", path.name)) for path in (walk.folder / "odd").iterdir()} - {"odd/words.jpg"}
    assert len(lines) == len(texts)
    assert texts.keys() == {(image, code) for image in good for code in ("es", "ru")}
    assert all(texts[image, "es"].startswith("La imagen muestra") for image in good)
    assert texts["odd/transparent.png", "es"] == texts["odd/white.png", "es"]
    streamed = walk.run(*caption, "-", "--json", standard_input=walk.folder / "odd" / "turned.jpg").ends(0, "")
    assert [row["caption"] for row in streamed.rows] == [texts["odd/turned.jpg", code] for code in ("es", "ru")]
    translate = ["translate", "odd/white.png", "--text", "A red cat.", "-l", "de", "--model", trained, *FEW, "--json"]
    assert {"language_found", "is_in_language", "translation"} <= walk.run(*translate).ends(0, "").rows[0].keys()
    walk.run(*caption, "odd/white.png", "--prefix", "alway").ends(2, "'alway' is unknown; known are auto, always, none")
    walk.run(*caption, "odd/white.png", "--model", "runs/first").ends(
        2, f"the folder of a run; its last model is in {trained}"
    )
    walk.run(*caption, "odd/white.png", "--model", "w").ends(
        2, "w/config.json: no such file; this is not a model's folder"
    )
    walk.run("model", "info", "micro-gemma-s").ends(0, "P 1.0 M")


def test_laws_a_report_and_the_plan_of_a_study(walk: Walk) -> None:
    with (walk.folder / "runs.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["P", "S", "loss"])
        for parameters in (1e6, 2e6, 4e6):
            for samples in (1e4, 2e4, 4e4):
                table.writerow([parameters, samples, 20 * parameters**-0.1 * samples**-0.05])
    fitted = json.loads(walk.run("laws", "fit", "runs.csv", "--form", "ps", "--json").ends(0, "").stdout)
    assert fitted["coefficients"]["b1"] == pytest.approx(-0.1)
    walk.run("laws", "fit", "runs.csv", "--target", "accuracy").ends(2, "has no column accuracy; found P, S, loss")
    walk.run("laws", "compare", "runs.csv", "--forms", "ps;power:P").ends(0, "power:P")
    predicted = walk.run("laws", "predict", "runs.csv", "--at", "P=8e6,S=8e4").ends(0, "loss  2.32")
    assert "UC" not in predicted.stdout
    study = ["--target", "UC", "--form", "pst"]
    walk.run("laws", "plan", RESULTS / "runs.jsonl", *study, "--at", "T=2", "--budget", "1e14").ends(
        0, "a sample costs"
    )
    walk.run("report", "build", RESULTS, "-o", "report").ends(0, "report/index.html")
    with (walk.folder / "report" / "languages.csv").open(encoding="utf-8") as file:
        columns = next(csv.reader(file))
    assert len(columns) == len(set(columns))
    plan = walk.run("study", "run", REPOSITORY / "configs" / "study" / "micro.toml", "--dry-run")
    plan.ends(0, "steps")
    assert not (walk.folder / "studies").exists()
