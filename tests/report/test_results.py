"""The records that come with the repository give the claims that stand beside them, and README's figures exist."""

import csv
import re
from pathlib import Path

import pytest

from babelcap.report import build_report
from babelcap.report.gallery_file import GalleryFile
from babelcap.storage import read_json_object
from babelcap.world.corpus import WorldConfig, make_image
from babelcap.world.score import mark_caption

REPOSITORY = Path(__file__).parents[2]
SMALL = REPOSITORY / "results" / "small"


def claims_in(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["small", "photos"])
def test_claims_follow_from_the_records(name: str, tmp_path: Path) -> None:
    folder = REPOSITORY / "results" / name
    build_report(folder, tmp_path / "report")
    held_out = (tmp_path / "report" / "held_out.svg").read_text(encoding="utf-8")
    again, beside = claims_in(tmp_path / "report" / "claims.csv"), claims_in(folder / "claims.csv")
    left_out = [row for row in beside if row["condition"].endswith("error on the largest budget, left out of the fit")]
    told = [f"{100 * float(row['measured']):.1f} %" for row in left_out[:3]]  # a tenth is told, or 15.3 would be 15
    assert re.findall(r"off by ([\d.]+ %)", held_out)[:3] == told
    for column in ("claim", "verdict", "condition", "needs", "holds"):
        assert [row[column] for row in again] == [row[column] for row in beside]
    for row, known in zip(again, beside, strict=True):
        for column in ("measured", "measured low", "measured high"):
            assert bool(row[column]) == bool(known[column])
            if known[column]:
                assert float(row[column]) == pytest.approx(float(known[column]), rel=1e-3, abs=1e-3), row["condition"]


def test_every_figure_of_the_readme_is_there() -> None:
    shown = re.findall(r"\((docs/figures/[^)]+)\)", (REPOSITORY / "README.md").read_text(encoding="utf-8"))
    assert shown
    assert [path for path in shown if not (REPOSITORY / path).is_file()] == []


def test_the_gallery_marks_what_the_world_says_is_wrong() -> None:
    """Pictures and truth follow from the study's configuration, the marks from them: nothing is marked by hand."""
    config = read_json_object(SMALL / "config.json")
    world = WorldConfig.model_validate(config["world"])
    gallery = GalleryFile.model_validate(read_json_object(SMALL / "gallery.json"))
    for picture in gallery.pictures:
        made = make_image(world, int(picture.key))
        assert made.image == picture.png_base64
        for caption in picture.captions:
            marks = mark_caption(caption.text, caption.language, made.scene)
            assert caption.marks == [tuple(mark) for mark in marks]
            if caption.right:
                assert caption.language_right
                assert not marks
    captions = [caption for picture in gallery.pictures for caption in picture.captions]
    car = next(caption for caption in captions if caption.text.startswith("La imagen muestra un pequeño coche marrón"))
    wrong = [car.text[start:end] for start, end, _ in car.marks or ()]
    assert (car.right, wrong) == (False, ["marrón", "a la izquierda"])  # it is red, and not on the left
