"""Predictions: folders named by all that decides them, in which nothing stale is reused."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.predictions.folder import ANSWERS, DESCRIPTION, ITEMS, Prediction, find_predictions
from babelcap.evaluation.predictions.predict import plan_batches
from babelcap.evaluation.predictions.tasks import Selection, derangement, read_tasks
from babelcap.evaluation.systems import Answer
from babelcap.storage import locked
from planted import Planted, make_benchmark, predict_planted, read_file, reseal, without_seconds, write_items


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    return make_benchmark(tmp_path / "data")


def test_with_and_without_prefix_are_two_folders(benchmark: Path, tmp_path: Path) -> None:
    tasks, output = read_file(benchmark), tmp_path / "out"
    for prefix in ("auto", "none"):
        predict_planted(tasks, output, {"prefix": prefix})
    first, second = find_predictions([output])
    assert first.folder != second.folder
    assert {one.description.system["prefix"] for one in (first, second)} == {"auto", "none"}
    answers = first.answers()
    assert len(answers) == 14
    assert answers["de/3"] | {"seconds": 0, "sum": ""} == {
        "id": "de/3", "language": "de", "raw": "<s>Hier steht ein Boot auf der Wiese.</s>",
        "text": "Hier steht ein Boot auf der Wiese.", "sum": "", "seconds": 0,
    }  # fmt: skip


def test_batches_are_of_one_language_and_depend_on_nothing_else(benchmark: Path, tmp_path: Path) -> None:
    (prediction,) = predict_planted(read_file(benchmark), tmp_path / "out", {"batch_size": 4})
    batches = [[item.id for item in batch] for batch in plan_batches(prediction)]
    assert [len(batch) for batch in batches] == [4, 4, 4, 2]
    assert batches[0] == ["de/0", "de/1", "de/2", "de/3"]
    lines = [json.loads(line)["id"] for line in (prediction.folder / ANSWERS).read_text().splitlines()]
    assert lines == [key for batch in batches for key in batch]


def test_what_is_there_is_not_asked_again_and_what_is_torn_is(benchmark: Path, tmp_path: Path) -> None:
    tasks, output = read_file(benchmark), tmp_path / "out"
    (prediction,) = predict_planted(tasks, output)
    path = prediction.folder / ANSWERS
    whole, lines = path.read_bytes(), without_seconds(path)
    predict_planted(tasks, output)
    assert path.read_bytes() == whole  # seconds too: nothing was computed
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    # In a line, behind a line in the middle of a batch of 3, a line without a text, an empty file.
    for broken in (
        whole[: ends[7] - 9],
        whole[: ends[4]],
        whole[: ends[2]] + b'{"id": "de/3"}\n',
        b"",
        whole[: ends[5]] + b"{",
    ):
        path.write_bytes(broken)
        predict_planted(tasks, output)
        assert without_seconds(path) == lines
        kept = len(broken) if broken in (b"", whole[: ends[5]]) else 0
        assert path.read_bytes()[:kept] == broken[:kept]


def test_every_content_is_in_the_hash_and_no_place_is(benchmark: Path, tmp_path: Path) -> None:
    def folder(path: Path, **options: object) -> str:
        return predict_planted(read_file(path), tmp_path / "out", options)[0].folder.name

    first = folder(benchmark)
    assert folder(shutil.copytree(benchmark.parent, tmp_path / "moved") / benchmark.name) == first
    found = {first, folder(benchmark, num_beams=2), folder(benchmark, batch_size=5)}
    rows = [json.loads(line) for line in benchmark.read_text().splitlines()]
    rows[3]["references"][1] += "!"
    found.add(folder(write_items(benchmark, rows)))
    (benchmark.parent / "pictures/2.png").write_bytes((benchmark.parent / "pictures/5.png").read_bytes())
    found.add(folder(benchmark))
    assert len(found) == 5


def test_shuffled_pictures_are_another_prediction(benchmark: Path, tmp_path: Path) -> None:
    tasks, output = read_file(benchmark), tmp_path / "out"
    (own,) = predict_planted(tasks, output)
    (shuffled,) = predict_planted(tasks, output, shuffled=True)
    assert own.folder != shuffled.folder
    assert own.description.pair_hash == shuffled.description.pair_hash
    assert own.description.dataset_sha256 == shuffled.description.dataset_sha256
    for key, row in shuffled.answers().items():
        assert row["text"] != own.answers()[key]["text"]  # it says what is on the picture that it is shown
    shown = {asked.item.id: asked.shown for asked in shuffled.asked}
    assert {place.name for place in shown.values()} == {f"{number}.png" for number in range(7)}
    assert all(shown[f"en/{number}"] == shown[f"de/{number}"] for number in range(7))


@pytest.mark.parametrize("size", [2, 3, 10, 461])
def test_a_derangement_leaves_nothing_in_its_place(size: int) -> None:
    names = [str(number) for number in range(size)]
    other = derangement(names)
    assert sorted(other.values()) == sorted(names)
    assert all(name != found for name, found in other.items())
    assert other == derangement(names)


def test_one_picture_cannot_be_shuffled(tmp_path: Path) -> None:
    tasks = read_file(make_benchmark(tmp_path / "data", num_pictures=1))
    with pytest.raises(UserError, match="found 1 picture; at least 2"):
        predict_planted(tasks, tmp_path / "out", shuffled=True)


def test_bad_pictures_are_one_line_before_anything_is_asked(benchmark: Path, tmp_path: Path) -> None:
    for number in (2, 4):
        path = benchmark.parent / f"pictures/{number}.png"
        path.write_bytes(path.read_bytes()[:-24])
    with pytest.raises(UserError, match=r"trial: .*2\.png: (corrupt|not an) image.* \(2 such pictures\); get it again"):
        predict_planted(read_file(benchmark), tmp_path / "out")
    assert not list((tmp_path / "out").rglob(ANSWERS))
    (benchmark.parent / "pictures/4.png").unlink()
    missing: list[str] = []
    assert read_tasks([str(benchmark)], Selection(tmp_path), missing.append) == []
    assert "4.png: no such picture (1 of 7 missing)" in missing[0]


def test_one_process_writes_a_prediction(benchmark: Path, tmp_path: Path) -> None:
    tasks, output = read_file(benchmark), tmp_path / "out"
    (prediction,) = predict_planted(tasks, output)
    with (
        locked(prediction.folder / ".lock"),
        pytest.raises(UserError, match=rf"is being written \(held by process {os.getpid()}"),
    ):
        predict_planted(tasks, output)


def test_parts_languages_and_limits(tmp_path: Path) -> None:
    picture = make_benchmark(tmp_path).parent / "pictures/0.png"
    rows = [
        {"id": f"{language}/{number}", "image": str(picture), "language": language, "task": "translation",
         "source": "a", "references": ["b"], "contrast": "c"}
        for language in ("de", "fr") for number in range(6)
    ]  # fmt: skip
    path = write_items(tmp_path / "pairs.jsonl", rows)
    tasks = read_file(path, languages=("fr",), limit=3)
    assert [(task.benchmark, task.part) for task in tasks] == [("pairs", "translation"), ("pairs", "losses")]
    assert [item.id for item in tasks[0].items] == ["fr/0", "fr/1", "fr/2", "fr/3"]  # whole pairs
    assert [len(task.items) for task in read_file(tmp_path / "trial.jsonl", limit=3)] == [6]
    missing: list[str] = []
    assert read_tasks([str(path)], Selection(tmp_path, ("zh",)), missing.append) == []
    assert missing == ["pairs: no item in zh; it has de, fr"]


def test_task_sets(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babelcap.evaluation.predictions.tasks.require_images", lambda items, origin: None)
    selection, missing = Selection(shared / "data"), []
    found = read_tasks(["ambiguity"], selection, missing.append)
    assert [(task.benchmark, task.part, len(task.items)) for task in found] == [("commute", "losses", 1256)]
    found = read_tasks(["translation", "commute"], selection, missing.append)
    assert [(task.benchmark, task.part) for task in found][-2:] == [("commute", "translation"), ("commute", "losses")]
    assert len(found) == 6
    assert missing == []
    (only,) = read_tasks(["english"], selection, missing.append)
    assert (only.benchmark, {item.language for item in only.items}) == ("multi30k-captions", {"en"})
    assert len(missing) == 4
    assert all("no such file; get it from" in line for line in missing)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"task": "speech"}, "task is 'speech'"),
        ({"references": []}, "references: found 0"),
        ({"task": "translation"}, "source is missing"),
        ({"image": None}, "image: "),
        ({"id": "en/0"}, "id 'en/0' comes twice"),
    ],
)
def test_a_bad_file_of_items_is_one_line(benchmark: Path, row: dict[str, object], message: str) -> None:
    rows = [json.loads(line) for line in benchmark.read_text().splitlines()]
    write_items(benchmark, [rows[0], {**rows[2], **row}])
    missing: list[str] = []
    assert read_tasks([str(benchmark)], Selection(benchmark.parent), missing.append) == []
    assert f"{benchmark}:2: " in missing[0]
    assert message in missing[0]


def test_a_changed_prediction_is_refused(benchmark: Path, tmp_path: Path) -> None:
    (prediction,) = predict_planted(read_file(benchmark), tmp_path / "out")
    items = prediction.folder / ITEMS
    rows = [json.loads(line) for line in items.read_text().splitlines()]
    for name, value in (("references", ["One more."]), ("image", rows[2]["image"])):
        write_items(items, [rows[0] | {name: value}, *rows[1:]])
        with pytest.raises(UserError, match="its items are not those that were asked"):
            Prediction(prediction.folder).answers()
    description = prediction.folder / DESCRIPTION
    description.write_text(description.read_text().replace('"batch_size": 3', '"batch_size": 4'))
    with pytest.raises(UserError, match="is damaged or was changed"):
        Prediction(prediction.folder)
    reseal(description)
    with pytest.raises(UserError, match="its hash is not that of its settings"):
        Prediction(prediction.folder)


def test_workers_make_the_same_lines(benchmark: Path, tmp_path: Path) -> None:
    tasks, options = read_file(benchmark), {"batch_size": 1}
    (alone,) = predict_planted(tasks, tmp_path / "alone", options)
    (begun,) = predict_planted(tasks, tmp_path / "together", options)
    path = begun.folder / ANSWERS
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + b'{"id"')  # by one process up to there, by two from there on
    (together,) = predict_planted(tasks, tmp_path / "together", options, num_workers=2)
    assert together.folder.name == alone.folder.name
    assert without_seconds(path) == without_seconds(alone.folder / ANSWERS)
    assert path.read_bytes().startswith(b"".join(lines[:3]))
    assert not (together.folder / "shards").exists()


def test_the_command_line(benchmark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babelcap.evaluation.systems.open_system", sys.modules["planted"].open_planted)
    arguments = ["eval", "predict", "any", str(benchmark), "-o", str(tmp_path / "out"), "--prefix", "none"]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert row["num_items"] == 14
    assert Prediction(row["folder"]).description.given["options"] == {"prefix": "none"}
    done = CliRunner().invoke(app, ["eval", "predict", "any", "comute", "-o", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "unknown benchmark or task set 'comute'; did you mean 'commute'?" in done.stderr
    done = CliRunner().invoke(app, ["eval", "run", "any", "english", "-o", str(tmp_path), "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr.count("no such file; get it from") == 5
    assert done.stderr.splitlines()[-1].endswith("5 of the benchmarks cannot be read")
    done = CliRunner().invoke(app, [*arguments, "coco", "--data", str(tmp_path), "--skip-missing"])
    assert done.exit_code == 0
    done = CliRunner().invoke(app, ["eval", "score", str(tmp_path / "data")])
    assert done.exit_code == 2
    assert "no prediction in it" in done.stderr


def test_what_a_system_cannot_do_does_not_stop_the_rest(
    benchmark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(self: Planted, items: Sequence[Item]) -> list[Answer]:
        raise UserError("planted cannot translate")

    monkeypatch.setattr(sys.modules["planted"].Planted, "translate", cannot)
    monkeypatch.setattr("babelcap.evaluation.systems.open_system", sys.modules["planted"].open_planted)
    row = json.loads(benchmark.read_text().splitlines()[0])
    other = write_items(benchmark.with_name("other.jsonl"), [{**row, "task": "translation", "source": "a"}])
    arguments = ["eval", "predict", "any", str(other), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "babelcap: other, translation: planted cannot translate\n"
    done = CliRunner().invoke(app, [*arguments, str(benchmark)])
    assert done.exit_code == 1
    assert "trial-caption-planted-" in done.stdout
    assert "planted cannot translate" in done.stderr
