"""Single images in a folder with a CSV or JSON lines."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from babelcap.cli import app
from babelcap.data.importers.coco import import_coco
from babelcap.data.importers.folder import FolderDefaults, import_folder
from babelcap.data.inspect.check import check_corpus
from babelcap.errors import UserError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", "import", "folder", *map(str, arguments)])


@pytest.fixture
def photos(tmp_path: Path, make_image: Callable[..., bytes]) -> Path:
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    for number, name in enumerate(("a.jpg", "more/b.v2.jpg", "c.jpeg")):
        (folder / name).write_bytes(make_image(number))
    return folder


def test_a_csv_gives_captions_and_translations(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "image,text,language,task,style,source,split\n"
        'a.jpg,"A dog, running.",en,,,,\n'
        "a.jpg,Ein Hund,de,caption,detailed,,\n"
        "a.jpg,Un chien,fr,translation,,A dog,\n"
        "more/b.v2.jpg,A cat,,,,,eval\n"
        "lost.jpg,A bird,,,,,\n"
        "c.jpeg,,,,,,\n",
        encoding="utf-8-sig",  # as spreadsheets write it
    )
    done = run(photos, "--texts", tmp_path / "t.csv", "-o", tmp_path / "c")
    assert done.exit_code == 0, done.output
    assert "2 images, 4 annotations" in done.output
    assert "left out: image is not in the folder: 1" in done.output
    assert "left out: empty text: 1" in done.output
    corpus = import_folder(tmp_path / "again", photos, tmp_path / "t.csv")
    rows = {row.key: row for row in corpus.rows()}
    assert set(rows) == {"a", "more/b_v2"}
    assert [(str(text.pair), text.style, text.source, text.target) for text in rows["a"].annotations] == [
        ("caption-en", "short", None, "A dog, running."),
        ("caption-de", "detailed", None, "Ein Hund"),
        ("translation-fr", None, "A dog", "Un chien"),
    ]
    assert rows["more/b_v2"].split == "eval"
    assert corpus.coverage.seen == ("caption-en", "caption-de", "translation-fr")  # what the training split has
    assert check_corpus(corpus).problems.counts == {}


def test_json_lines_in_the_folder_are_found(photos: Path, tmp_path: Path) -> None:
    lines = [{"file_name": "a.jpg", "caption": "Ein Hund"}, {"file_name": "c.jpeg", "text": "x", "score": 0.5}]
    (photos / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    corpus = import_folder(tmp_path / "c", photos, None, FolderDefaults("de", split="test"))
    assert [(row.key, row.split, row.annotations[0].language) for row in corpus.rows()] == [
        ("a", "test", "de"),
        ("c", "test", "de"),
    ]
    assert corpus.coverage.seen == ("caption-de",)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "image,words\na.jpg,x\n", "column 'text' is missing"),
        ("t.csv", "image,text,text\na.jpg,x,y\n", "column 'text' is there more than once"),
        ("t.csv", "image,text\na.jpg,x,y\n", "t.csv:2: 3 values for 2 columns"),
        ("t.csv", "image,text\n../a.jpg,x\n", "image is '../a.jpg'; expected the path of a file below the folder"),
        ("t.csv", "image,text\na.exe,x\n", "does not end in"),
        ("t.csv", "image,text,language\na.jpg,x,xx\n", "unknown language"),
        ("t.csv", "image,text,task\na.jpg,x,sing\n", "unknown task 'sing'"),
        ("t.csv", "image,text,task\na.jpg,x,translation\n", "needs one"),
        ("t.csv", "image,text,style\na.jpg,x,loud\n", "style"),
        ("t.csv", "image,text,score\na.jpg,x,good\n", "score"),
        ("t.csv", "image,text,split\na.jpg,x,train\na.jpg,y,eval\n", "in split 'eval' and in 'train'"),
        ("t.csv", f'image,text\na.jpg,"{"x" * 140_000}"\n', "not a readable CSV line"),
        ("t.csv", 'image,text\na.jpg,"open\n', "not a readable CSV line"),
        ("t.csv", "", "column 'image' is missing"),
        ("t.csv", "image,text\na.jpg,\n", "no line has a text that can be used"),
        ("t.jsonl", '{"image": 3, "text": "x"}', "image is 3"),
        ("t.jsonl", '{"image": "a.jpg", "text": "\\ud800"}', "half of a surrogate pair"),
        ("t.jsonl", '{"image": "a.jpg", "text": "x", "split": [1]}', "a split is a name"),
        ("t.jsonl", '{"image": "a.jpg", "text": "x", "language": {"a": 1}}', "language"),
        ("t.jsonl", '{"image": "lost.jpg", "text": "x"}', "image is not in the folder: 1"),
        (
            "t.jsonl",
            json.dumps({"image": "x" * 5000 + ".jpg", "text": "x"}),
            "expected the path of a file below the folder",
        ),
        ("t.jsonl", "[1]", "a line is one JSON object"),
        ("t.jsonl", "[" * 100_000, "nested too deeply"),
        ("t.txt", "", "texts are read from"),
    ],
)
def test_bad_lines_are_named(photos: Path, tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        import_folder(tmp_path / "c", photos, tmp_path / name)
    assert not (tmp_path / "c").exists()


def test_what_is_not_there_is_named(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        import_folder(tmp_path / "c", tmp_path / "none")
    with pytest.raises(UserError, match=r"neither metadata\.csv nor metadata\.jsonl"):
        import_folder(tmp_path / "c", photos)
    (tmp_path / "t.csv").write_bytes(b"image,text\na.jpg,\xff\n")
    with pytest.raises(UserError, match="not UTF-8 text"):
        import_folder(tmp_path / "c", photos, tmp_path / "t.csv")


@pytest.mark.parametrize("form", ["coco", "folder"])
def test_two_files_that_become_one_key_are_named(tmp_path: Path, form: str) -> None:
    """A key has no dots: the message once told the key alone, which no file is called."""
    names = ("a.b.png", "a_b.png")
    for name in names:
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    rows = [{"image": name, "text": "A dog."} for name in names]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "captions.json").write_text(json.dumps([{"file": name, "captions": ["A dog."]} for name in names]))
    runs: dict[str, Callable[[], object]] = {
        "coco": lambda: import_coco(tmp_path / "out", images=tmp_path, captions=tmp_path / "captions.json"),
        "folder": lambda: import_folder(tmp_path / "out", tmp_path, tmp_path / "texts.jsonl"),
    }
    with pytest.raises(UserError, match=r"'a\.b\.png' and 'a_b\.png' would both get the key 'a_b'"):
        runs[form]()
    assert not (tmp_path / "out").exists()
