"""Names of pictures: one picture under the names that datasets give it."""

import json
from pathlib import Path

import pytest

from babelcap.data.inspect.image_names import image_ids, read_aliases
from babelcap.errors import UserError


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("COCO_val2014_000000000285.jpg", {"coco:285"}),
        ("coco/train2014/COCO_train2014_000000117071.jpg", {"coco:117071"}),
        ("multi30k/images/COCO_train2014_000000117071.jpg", {"coco:117071"}),
        ("000000000285.jpg", {"coco:285"}),
        ("val2017/285.png", {"coco:285"}),
        ("9138147604_c6225224b8_z.jpg", {"flickr:9138147604"}),
        ("22439193117_4183a49ec2.jpg", {"flickr:22439193117"}),
        ("flickr30k/36979", {"flickr:36979"}),
        ("1000092795", {"flickr:1000092795"}),
        ("2345678.jpg", {"flickr:2345678", "visual genome:2345678"}),
        ("VG_100K_2/2345678.jpg", {"visual genome:2345678"}),
        ("image_paragraphs/17", {"visual genome:17"}),
        ("docci/images/test_00012.jpg", {"docci:test_00012"}),
        ("xm3600/images/000411001ff7dd4f.jpg", {"open images:000411001ff7dd4f"}),
        ("commute/images/e9490cd.jpeg", {"commute:e9490cd"}),
        ("000000123", set()),  # a running number
        ("17.jpg", set()),
        ("beach.jpg", set()),
    ],
)
def test_ids_by_name(name: str, ids: set[str]) -> None:
    assert image_ids(name) == ids


def test_one_dataset_tells_ids_of_another(tmp_path: Path) -> None:
    genome = [
        {"image_id": 5, "coco_id": 285, "flickr_id": None, "width": 800},
        {"image_id": 6, "coco_id": None, "flickr_id": 77777},
        {"image_id": 7, "coco_id": None, "flickr_id": None},
    ]
    coco = {"images": [{"id": 285, "flickr_url": "http://farm8.staticflickr.com/7434/9138147604_c6225224b8_z.jpg"}]}
    (tmp_path / "image_data.json").write_text(json.dumps(genome))
    (tmp_path / "captions.json").write_text(json.dumps(coco))
    aliases = read_aliases([tmp_path / "image_data.json", tmp_path / "captions.json"])
    one = {"visual genome:5", "coco:285", "flickr:9138147604"}
    assert image_ids("VG_100K/5.jpg", aliases) == one
    assert image_ids("COCO_val2014_000000000285.jpg", aliases) == one
    assert image_ids("9138147604_c6225224b8.jpg", aliases) == one
    assert image_ids("VG_100K/6.jpg", aliases) == {"visual genome:6", "flickr:77777"}
    assert image_ids("VG_100K/7.jpg", aliases) == {"visual genome:7"}


def test_real_addresses_of_coco(shared: Path) -> None:
    aliases = read_aliases([shared / "data/coco/captions.json"])
    assert image_ids("000000000285.jpg", aliases) == {"coco:285", "flickr:9138147604"}


def test_another_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(UserError, match=r"other\.json: expected Visual Genome's image_data\.json"):
        read_aliases([tmp_path / "other.json"])
