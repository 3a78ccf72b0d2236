"""`caption` and `translate` on the command line: what is streamed, skipped, resumed and refused."""

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import babelcap
from babelcap.cli import app
from babelcap.identification import Written
from babelcap.models import CaptionPipeline
from babelcap.models.generation import core as core_module

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
    original = core_module.GenerationCore._run

    def watch(self, batch, features):  # type: ignore[no-untyped-def]
        generated.append(len(batch))
        return original(self, batch, features)

    monkeypatch.setattr(core_module.GenerationCore, "_run", watch)
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


def test_another_language_than_asked_for_is_told(run, images: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(core_module, "identify", lambda text, languages: Written("de", "LATIN"))
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
        "babelcap: no model given; name its folder or hub id with --model, or in BABELCAP_MODEL\n",
    )
