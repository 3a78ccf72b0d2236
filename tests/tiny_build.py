"""A small world and builds of datasets out of it, for what runs many stages."""

import io
import tarfile
from pathlib import Path
from typing import Any

from babelcap.config import build_config
from babelcap.data.store.tar import scan_tar
from babelcap.generate.config import BuildConfig
from babelcap.storage import write_json
from babelcap.world.corpus import WorldConfig, load_truth, make_world


def make_source(folder: Path) -> Path:
    config = WorldConfig(num_images=60, num_eval_images=6, num_holdout_images=0, num_text_lines=0, num_workers=1)
    make_world(folder, config)
    return folder


def build_settings(world: Path, output: Path, **changes: Any) -> BuildConfig:
    keys = output.with_name("eval_keys.txt")
    keys.parent.mkdir(parents=True, exist_ok=True)
    keys.write_text("\n".join(list(load_truth(world))[-6:]))
    values: dict[str, Any] = {
        "output": output,
        "images": {"tars": [str(world / "images")], "eval_keys": keys},
        "text": {
            code: {"files": [world / "parallel" / f"en-{code}.tsv.gz"], "format": "tsv"}
            for code in ("de", "fr", "es", "ru", "zh")
        },
        "caption": {"backend": "world", "model": str(world), "check_language": False},
        "translate": {"backend": "world"},
        "clean": {"check_language": False, "pairs_per_chunk": 150, "check_traditional": False},
        "embed": {"backend": "world", "model": str(world), "noise": 0.2},
        "align": {"num_candidates": 8, "select": {"num_texts": 2, "min_score": 0.3}},
        "num_workers": 2,
    }
    return build_config(BuildConfig, values | changes)


class SmallBuilds:
    """Builds of four small tars and two languages; one list of keys for all of them, for they are to be equal."""

    def __init__(self, world: Path, folder: Path) -> None:
        self.world, self.tars, self.keys = world, folder / "tars", folder / "eval_keys.txt"
        self.tars.mkdir(parents=True)
        (tar,) = (world / "images").glob("*.tar")
        members = [member for member in scan_tar(tar).members if member.is_image]
        for number in range(4):
            with tarfile.open(self.tars / f"{number}.tar", "w") as archive, tar.open("rb") as file:
                for member in [*members[number * 8 : number * 8 + 8], *members[-4 + number :][:1]]:
                    file.seek(member.offset)
                    info = tarfile.TarInfo(member.name)
                    info.size = member.length
                    archive.addfile(info, io.BytesIO(file.read(member.length)))
        self.keys.write_text("\n".join(member.key for member in members[-4:]))

    def write(self, folder: Path, **changes: object) -> Path:
        """Writes the configuration of a build into its folder."""
        folder.mkdir(parents=True, exist_ok=True)
        pairs = {"seen": ["caption-en", "caption-de", "translation-de", "translation-fr"]}
        coverage = pairs | {"splits": {"UC": ["caption-fr"], "SC": ["caption-en", "caption-de"]}}
        texts = {code: self.world / "parallel" / f"en-{code}.tsv.gz" for code in ("de", "fr")}
        config = build_settings(
            self.world,
            folder / "out",
            coverage=coverage,
            images={"tars": [str(self.tars)], "eval_keys": self.keys},
            text={code: {"files": [path], "format": "tsv"} for code, path in texts.items()},
            clean={"check_language": False, "check_traditional": False, "pairs_per_chunk": 80, "pairs_per_group": 100},
            align={"num_candidates": 4, "tars_per_search": 2, "select": {"num_texts": 2, "min_score": 0.3}},
            work=folder / "work",
            **changes,
        )
        write_json(folder / "build.json", config.model_dump(mode="json"))
        return folder
