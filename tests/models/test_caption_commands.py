"""`caption` and `translate` on the command line: what is streamed, skipped, resumed and refused."""

import hashlib
import io
import json
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import babelcap
from babelcap.cli import app
from babelcap.coverage import Pair
from babelcap.identification import Written
from babelcap.models import CaptionPipeline
from babelcap.models.generation import core as core_module
from babelcap.models.generation import results as results_module

from .conftest import random_captioner, tiny_config

FEW = {"num_beams": 2, "max_new_tokens": 4}
COMMAND = ["--num-beams", "2", "--max-new-tokens", "4", "--device", "cpu"]


@pytest.fixture(scope="module")
def pipeline(model_folder: Path) -> CaptionPipeline:
    return babelcap.load(model_folder, device="cpu")


@pytest.fixture(autouse=True)
def _one_model(pipeline: CaptionPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded once for all tests; what cannot be loaded still fails."""
    original = babelcap.models.load

    def load(path: str, **options: object) -> CaptionPipeline:
        is_plain = all(value in (None, "cpu") for value in options.values())
        return pipeline if Path(path) == pipeline.model.folder and is_plain else original(path, **options)

    monkeypatch.setattr(babelcap.models, "load", load)


@pytest.fixture
def images(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "images" / f"{name}.png" for name in ("red", "green", "blue")]
    paths[0].parent.mkdir()
    for path in paths:
        Image.new("RGB", (40, 30), path.stem).save(path)
    return paths


@pytest.fixture
def run(model_folder: Path):  # type: ignore[no-untyped-def]
    def invoke(*arguments: object, command: str = "caption", **options: object) -> Result:
        words = [command, *map(str, arguments), "--model", str(model_folder), *COMMAND]
        return CliRunner().invoke(app, words, **options)  # type: ignore[arg-type]

    return invoke


def rows(done: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_images_times_languages(run, images: list[Path], pipeline: CaptionPipeline) -> None:  # type: ignore[no-untyped-def]
    done = run(*images[:2], "--language", "es,de", "--json")
    assert done.exit_code == 0, done.output
    assert [(row["image"], row["language"]) for row in rows(done)] == [
        (str(image), code) for image in images[:2] for code in ("es", "de")
    ]
    first = rows(done)[0]
    (expected,) = pipeline.caption(images[0], "es", **FEW)
    assert first["caption"] == expected.text
    assert expected.text.startswith("La imagen muestra")
    assert first["prefix"] == "La imagen muestra"
    assert first["log_probability"] == pytest.approx(expected.score.total)
    assert {"mean_log_probability", "language_found", "is_in_language"} <= first.keys()


def test_one_result_is_the_text_alone(run, images: list[Path], pipeline: CaptionPipeline) -> None:  # type: ignore[no-untyped-def]
    done = run(images[0], "--language", "de")
    assert done.stdout == pipeline.caption_one(images[0], "de", **FEW) + "\n"


def test_the_best_texts_with_their_scores(run, images: list[Path]) -> None:  # type: ignore[no-untyped-def]
    (row,) = rows(run(images[0], "-l", "de", "--num-return-sequences", "2", "--json"))
    assert len(row["alternatives"]) == 1  # type: ignore[arg-type]
    assert row["alternatives"][0].keys() == {"caption", "log_probability", "mean_log_probability"}  # type: ignore[index]
    assert len(run(images[0], "-l", "de", "--num-return-sequences", "2").stdout.splitlines()) == 2


def test_sampling(run, images: list[Path]) -> None:  # type: ignore[no-untyped-def]
    texts = [
        run(images[0], "-l", "de", "--temperature", "3", "--top-p", "0.9", "--seed", seed).stdout for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_why_processes_that_were_asked_for_are_not_there_is_told(run, images: list[Path]) -> None:  # type: ignore[no-untyped-def]
    done = run(*images, "--language", "de", "--processes", 2, "--temperature", 0.7)
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, 3), done.output
    alone = "2 processes were asked for, but this one works alone"
    assert done.stderr.splitlines()[0] == f"babelcap: {alone}: sampled texts depend on those that are drawn beside them"
    for options in (["--processes", 1], []):
        assert alone not in run(*images, "--language", "de", "--temperature", 0.7, *options).stderr


def test_bad_files_are_reported_and_left_out(run, images: list[Path], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "text.png").write_text("no image")
    done = run(images[0], tmp_path / "text.png", tmp_path / "none.jpg", images[1], "-l", "de,es", "--json")
    assert done.exit_code == 1
    assert [row["image"] for row in rows(done)] == [str(image) for image in images[:2] for _ in range(2)]
    assert [line.split(": ")[1] for line in done.stderr.splitlines()[:2]] == [
        str(tmp_path / "text.png"),
        str(tmp_path / "none.jpg"),
    ]
    assert "2 images could not be used" in done.stderr


def test_folders_patterns_and_standard_input(run, images: list[Path], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "images" / "notes.txt").write_text("not looked at")
    ordered = sorted(map(str, images))
    assert [row["image"] for row in rows(run(tmp_path / "images", "-l", "de", "--json"))] == ordered
    assert [row["image"] for row in rows(run(tmp_path / "images" / "*e*.png", "-l", "de", "--json"))] == ordered
    whole = rows(run("-", "-l", "de,es", "--json", input=images[0].read_bytes()))
    named = rows(run(images[0], "-l", "de,es", "--json"))
    assert [row["caption"] for row in whole] == [row["caption"] for row in named]
    (tmp_path / "empty").mkdir()
    for nothing in (tmp_path / "empty", tmp_path / "x*.png"):
        done = run(nothing, "-l", "de")
        assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/red.png":
            encoded = io.BytesIO()
            Image.new("RGB", (40, 30), "red").save(encoded, "PNG")
            self._answer(encoded.getvalue())
        elif self.path == "/large":
            self._answer(b"\0" * 70_000)
        else:
            self.send_error(404)

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()
        thread.join()


def test_addresses(run, images: list[Path], server: str, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(babelcap.data.feed.image_sources.fetch_image, "__defaults__", (60_000, 20.0))
    closed = "http://127.0.0.1:1/x.png"
    done = run(f"{server}/red.png", f"{server}/none.png", f"{server}/large", closed, "-l", "de", "--json")
    (row,) = rows(done)
    assert row["caption"] == rows(run(images[0], "-l", "de", "--json"))[0]["caption"]
    assert done.exit_code == 1
    reasons = ["answers 404", "file too large", "unreachable image"]
    for reason, line in zip(reasons, done.stderr.splitlines(), strict=False):
        assert reason in line


def test_output_is_gone_on_with(run, images: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    output = tmp_path / "captions.jsonl"
    whole = run(*images, "-l", "de,es", "--output", output)
    assert (whole.exit_code, whole.stdout) == (0, "")
    lines = output.read_text().splitlines(keepends=True)
    assert len(lines) == 6
    output.write_text("".join(lines[:3]) + lines[3][:20])  # killed in the middle of a line
    generated = []
    original = core_module.GenerationCore._encode

    def watch(self, batch, encoded):  # type: ignore[no-untyped-def]
        generated.append(len(batch))
        return original(self, batch, encoded)

    monkeypatch.setattr(core_module.GenerationCore, "_encode", watch)
    assert run(*images, "-l", "de,es", "--output", output).exit_code == 0
    assert output.read_text().splitlines(keepends=True) == lines
    assert sum(generated) == 3
    assert run(*images, "-l", "de,es", "--output", output).exit_code == 0
    assert sum(generated) == 3
    other = run(*images, "-l", "de", "--style", "detailed", "--output", output)
    assert other.exit_code == 2
    assert "of another model or settings" in other.stderr
    (tmp_path / "notes.jsonl").write_text('{"a": 1}\n')
    refused = run(*images, "-l", "de", "--output", tmp_path / "notes.jsonl")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert (tmp_path / "notes.jsonl").read_text() == '{"a": 1}\n'


def test_what_comes_on_standard_input_is_known_by_its_content(run, images: list[Path], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    output = tmp_path / "captions.jsonl"
    for image in (images[0], images[1], images[0]):
        assert run("-", "-l", "de", "--output", output, input=image.read_bytes()).exit_code == 0
    found = [json.loads(line) for line in output.read_text().splitlines()]
    names = [f"stdin:{hashlib.sha256(image.read_bytes()).hexdigest()[:16]}" for image in images[:2]]
    assert [row["image"] for row in found] == names
    assert [row["caption"] for row in found] == [row["caption"] for row in rows(run(*images[:2], "-l", "de", "--json"))]
    words = ["--text", "Describe", "-l", "de", "--json"]
    (named,), (given,) = (
        rows(run(images[0], *words, command="translate")),
        rows(run("-", *words, command="translate", input=images[0].read_bytes())),
    )
    assert given == named | {"image": names[0]}


def test_captions_of_images_that_changed_are_made_again(run, images: list[Path], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The name is the same, the picture is another: its old caption would stand beside it."""
    copies = [Path(shutil.copy(image, tmp_path)) for image in images]
    output = tmp_path / "captions.jsonl"
    assert run(*copies, "-l", "de", "--output", output).exit_code == 0
    before = output.read_text().splitlines()
    os.utime(copies[0], ns=(1, 1))
    done = run(*copies, "-l", "de", "--output", output)
    assert "1 captions are of images that changed since; made again" in done.stderr
    after = output.read_text().splitlines()
    assert after[:-1] == before[1:]
    assert json.loads(after[-1])["image"] == str(copies[0])
    assert json.loads(after[-1])["image_state"] != json.loads(before[0])["image_state"]


def test_output_of_a_model_that_was_replaced_is_not_gone_on_with(
    run,
    images: list[Path],
    tmp_path: Path,
    model_folder: Path,  # type: ignore[no-untyped-def]
) -> None:
    shutil.copytree(model_folder, tmp_path / "model")
    words = ["caption", str(images[0]), "-l", "de", "-m", str(tmp_path / "model"), *COMMAND]
    words += ["--output", str(tmp_path / "captions.jsonl")]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, words).exit_code == 0
    random_captioner(tiny_config("bart"), seed=1).save_pretrained(tmp_path / "model")
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, "of another model or settings" in done.stderr) == (2, True)


def test_control_c_keeps_what_is_there_and_says_how_to_go_on(
    run,
    images: list[Path],
    tmp_path: Path,
    pipeline: CaptionPipeline,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    original, output = pipeline.generate, tmp_path / "captions.jsonl"

    def stopped(requests: object, **options: object) -> Iterator[object]:
        for number, result in enumerate(original(requests, **options)):  # type: ignore[arg-type]
            if number == 2:
                raise KeyboardInterrupt
            yield result

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "generate", stopped)
        done = run(*images, "-l", "de", "--output", output)
        said = "babelcap: stopped after 2 captions"
        assert (done.exit_code, done.stderr) == (130, f"{said}; they are in {output}, and the same command goes on\n")
        plain = run(*images, "-l", "de")
        assert (plain.exit_code, plain.stderr, len(plain.stdout.splitlines())) == (130, f"{said}\n", 2)
    assert run(*images, "-l", "de", "--output", output).exit_code == 0
    assert [json.loads(line)["image"] for line in output.read_text().splitlines()] == list(map(str, images))


def test_another_language_than_asked_for_is_told(run, images: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(results_module, "identify", lambda text, languages: Written("de", "LATIN"))
    done = run(*images[:2], "-l", "ru,de", "--json")
    assert [row["language_found"] for row in rows(done)] == ["de"] * 4
    assert [row["is_in_language"] for row in rows(done)] == [False, True] * 2
    assert done.stderr == "babelcap: 2 of 2 captions are not in Russian as asked (2 in German)\n"


def test_translate(run, images: list[Path], pipeline: CaptionPipeline) -> None:  # type: ignore[no-untyped-def]
    done = run(images[0], "--text", "What does", "-l", "de", command="translate")
    assert done.exit_code == 0, done.output
    assert done.stdout == pipeline.translate_one("What does", "de", images[0], **FEW) + "\n"
    done = run("--text", "What does", "--text", "Describe", "-l", "de,es", "--json", command="translate")
    assert [(row["text"], row["language"]) for row in rows(done)] == [
        (text, code) for text in ("What does", "Describe") for code in ("de", "es")
    ]
    assert rows(done)[0]["image"] is None


def test_every_bad_image_of_a_translation_is_reported(run, images: list[Path]) -> None:  # type: ignore[no-untyped-def]
    places = ["nowhere.jpg", images[0], "nor here.jpg"]
    done = run(*places, "--text", "What", "--text", "does", "--text", "Describe", "-l", "de,es", command="translate")
    assert done.exit_code == 1
    assert [line.split(": ")[1] for line in done.stderr.splitlines()[:2]] == ["nowhere.jpg", "nor here.jpg"]
    assert "2 images could not be used" in done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_a_text_longer_than_the_model_reads_is_told(
    run, pipeline: CaptionPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    """The prompt, of ten tokens with the words that ask and its two ends, and then the source's."""
    monkeypatch.setattr(pipeline.processor, "max_prompt_tokens", 16)
    asked = len(pipeline.processor.prompt_ids([pipeline.coverage.prompt(Pair("translation", "de"), text="What")])[0])
    room = 16 - asked + 1
    words = ["--text", " ".join(["What"] * room), "--text", " ".join(["What"] * (room + 3)), "-l", "de"]
    done = run(*words, "--json", command="translate")
    assert done.exit_code == 0, done.output
    assert [row["num_tokens_cut"] for row in rows(done)] == [0, 3]
    assert done.stderr.splitlines()[0] == (
        "babelcap: 1 of 2 translations are of texts longer than the model reads: up to 3 tokens at the end were left "
        "out; give such texts in pieces"
    )
    whole = 8 * 16 - asked + 1
    assert run("--text", " ".join(["What"] * whole), "-l", "de", command="translate").exit_code == 0
    refused = run("--text", " ".join(["What"] * (whole + 1)), "-l", "de", command="translate")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert "takes 129 tokens, and the model reads 16; give it in pieces" in refused.stderr


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("caption", ["IMAGE", "-l", "xx"], "unknown language 'xx'"),
        ("caption", ["IMAGE", "-l", " , "], "no language given"),
        ("caption", ["IMAGE", "-l", "de", "--prefix", "alway"], "prefix 'alway' is unknown"),
        ("caption", ["IMAGE", "-l", "de", "--style", "long"], "style 'long' is unknown"),
        ("caption", ["IMAGE", "-l", "de", "--num-return-sequences", "3"], "num_return_sequences is 3, num_beams 2"),
        ("caption", ["IMAGE", "-l", "de", "--device", "cuda:99"], "device 'cuda:99' cannot be used"),
        ("caption", ["IMAGE", "-l", "de", "--dtype", "int8"], "dtype 'int8' is unknown"),
        ("caption", ["IMAGE", "-l", "de", "--encoder-tokenizer", "./nowhere"], "no such folder"),
        ("caption", ["IMAGE", "-l", "de", "--output", "FOLDER"], "is a folder; name a file in it"),
        ("translate", ["--text", "", "-l", "de"], "the text is empty"),
        ("translate", ["--text", "a dog", "-l", "en"], "no translation into 'en'"),
        ("translate", ["IMAGE", "IMAGE", "--text", "a dog", "-l", "de"], "2 images and 1 texts"),
    ],
)
def test_mistakes_are_one_line(
    model_folder: Path, images: list[Path], command: str, arguments: list[str], message: str
) -> None:
    places = {"IMAGE": str(images[0]), "FOLDER": str(images[0].parent)}
    model = [word for word in COMMAND if word not in ("--device", "cpu")] if "--device" in arguments else COMMAND
    words = [command, *(places.get(word, word) for word in arguments), *model]
    done = CliRunner().invoke(app, words, env={"BABELCAP_MODEL": str(model_folder)})
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["caption", "translate"])
@pytest.mark.parametrize(
    "option", ["--num-beams", "--max-new-tokens", "--num-return-sequences", "--batch-size", "--image-size-px"]
)
@pytest.mark.parametrize("value", ["0", "-3"])
def test_numbers_have_bounds(command: str, option: str, value: str) -> None:
    text = ["--text", "a dog"] if command == "translate" else []
    done = CliRunner().invoke(app, [command, "x.png", *text, "-l", "de", "-m", "nowhere", option, value])
    assert done.exit_code == 2
    assert f"Invalid value for '{option}'" in done.stderr


def test_no_model(images: list[Path]) -> None:
    done = CliRunner().invoke(app, ["caption", str(images[0]), "-l", "de"], env={"BABELCAP_MODEL": ""})
    assert (done.exit_code, done.stderr) == (
        2,
        "babelcap: no model given; name its folder or hub id with --model, or in BABELCAP_MODEL; "
        "micro comes with babelcap\n",
    )
