"""The stages of a fine-tuning corpus before it is assembled, and the files that each leaves.

texts of a source ---------------------------+-----------+
single pictures -> pack -> tars -> print -> leaks -> describe -> prepare -> translate
pictures of benchmarks -> print_tests -------+
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from babelcap.config import ConfigModel, affecting_values
from babelcap.coverage import CAPTION, TRANSLATION
from babelcap.data.distributed import coco, docci, image_paragraphs
from babelcap.data.importers.files import find_files
from babelcap.data.store.tar import scan_tar
from babelcap.errors import UserError
from babelcap.generate.finetune.config import FinetuneConfig
from babelcap.generate.finetune.leaks import ImagesOfTests, plan_tests
from babelcap.generate.finetune.pack import is_packed, pack_plan, present_pictures, require_share
from babelcap.generate.finetune.sources import MULTI30K_ORIGIN, SourceConfig, picture_tars, text_files
from babelcap.generate.model_stage import model_stage
from babelcap.jobs.receipts import Receipt
from babelcap.jobs.stages import Engine, Shard, Stage, run_stage, stage_outputs
from babelcap.measures import TRAIN
from babelcap.storage import parquet_errors

HERE = "babelcap.generate.finetune"
ORIGINS = {
    "multi30k": MULTI30K_ORIGIN,
    "coco": coco.TRAINING_IMAGES_ORIGIN,
    "docci": docci.IMAGES_ORIGIN,
    "image_paragraphs": image_paragraphs.IMAGES_ORIGIN,
    "corpus": "where the corpus was made",
}
FOLDERS = {"multi30k": "flickr30k", "image_paragraphs": "vg_100k", "corpus": ""}  # whose names bare keys are


@dataclass
class Running:
    """A build under way: its stages so far, with their receipts."""

    config: FinetuneConfig
    engine: Engine
    receipts: dict[str, dict[str, Receipt]] = field(default_factory=dict)  # stage -> shard -> receipt
    set_aside: dict[str, dict[str, str]] = field(default_factory=dict)  # stage -> shard -> why

    def run(self, stage: Stage, shards: Sequence[Shard]) -> dict[str, Path]:
        """Makes a stage's shards; stops the build where one could not be made, once all others are."""
        result = run_stage(stage, shards, self.config.work_folder, self.engine)
        self.receipts.setdefault(stage.name, {}).update(result.receipts)
        if result.set_aside:
            self.set_aside.setdefault(stage.name, {}).update(result.set_aside)
            raise SetAside
        return stage_outputs(stage, shards, self.config.work_folder)


class SetAside(Exception):
    """Shards could not be made; which ones is in the build."""


class Tar(NamedTuple):
    source: str
    path: Path


class Leaks(NamedTuple):
    path: Path
    stage: Stage


def read_sources(build: Running) -> dict[str, Path]:
    """source -> its texts."""
    found: dict[str, Path] = {}
    for name, source in build.config.sources.items():
        described = affecting_values(source)
        kept = ("format", "num_images")  # what is read depends on these alone
        settings = {
            "name": name,
            "source": {field: described[field] for field in kept},
            "in_tars": bool(source.tars),
        }
        resources = {"folder": str(source.folder), "tars": list(source.tars)}
        stage = Stage("texts", f"{HERE}.sources:read_source_shard", settings, resources=resources)
        found |= build.run(stage, [Shard(name, {"texts": text_files(source)})])
    return found


def find_pictures(build: Running, texts: Mapping[str, Path]) -> dict[str, Tar]:
    """name of a tar -> the tar, of pictures that came so or were packed."""
    tars: dict[str, Tar] = {}
    for name, source in build.config.sources.items():
        with parquet_errors(texts[name]):
            table = pq.read_table(texts[name], columns=["key", "image"])
        images = dict(zip(table["key"].to_pylist(), table["image"].to_pylist(), strict=True))
        made = _existing(name, source, images) if picture_tars(source) else _packed(build, name, source, images)
        for path in made:
            if path.stem in tars:
                raise UserError(f"two tars are called {path.name}: {path} and {tars[path.stem].path}")
            tars[path.stem] = Tar(name, path)
    return tars


def _existing(name: str, source: SourceConfig, images: Mapping[str, str]) -> list[Path]:
    """Tars that hold pictures of the source; one that holds none of them is left out."""
    found = {path: {member.key for member in scan_tar(path).members if member.is_image}
             for path in find_files(picture_tars(source), ".tar")}  # fmt: skip
    missing = set(images).difference(*found.values())
    require_share(name, source, sorted(missing), len(images), ORIGINS[source.format])
    return [path for path, keys in found.items() if not keys.isdisjoint(images)]


def _packed(build: Running, name: str, source: SourceConfig, images: Mapping[str, str]) -> list[Path]:
    folder = build.config.packed_folder
    pictures = present_pictures(name, source, images, ORIGINS[source.format])
    stage = Stage("pack", f"{HERE}.pack:pack_shard", {}, resources={"folder": str(folder)})
    plan = pack_plan(name, pictures, build.config.images_per_tar)
    made = build.run(stage, plan)
    tars = {shard: folder / f"{shard}.tar" for shard in made}
    removed = [shard for shard in made if not is_packed(tars[shard], build.receipts["pack"][shard])]
    for shard in removed:
        made[shard].unlink()
    if removed:
        build.run(stage, plan)
    return list(tars.values())


def find_test_images(build: Running, texts: Mapping[str, Path], tars: Mapping[str, Tar], tests: ImagesOfTests) -> Leaks:
    config = build.config.leakage
    prints: list[Path] = []
    stages: list[Stage] = []
    for name in build.config.sources:
        stage = Stage("print", f"{HERE}.leaks:print_tar_shard", {"source": name})
        shards = [Shard(key, {"tar": tar.path}) for key, tar in tars.items() if tar.source == name]
        prints += build.run(stage, shards).values()
        stages.append(stage)
    of_tests = Stage("print_tests", f"{HERE}.leaks:print_test_shard", {})
    printed = build.run(of_tests, plan_tests(tests))
    folders = {name: FOLDERS.get(source.format, source.format) for name, source in build.config.sources.items()}
    settings = {"max_distance": config.max_distance, "folders": folders}
    stage = Stage("leaks", f"{HERE}.leaks:leaks_shard", settings, before=(*stages, of_tests))
    inputs = {"prints": list(prints), "tests": list(printed.values()), "texts": list(texts.values())}
    if config.ids:
        inputs["ids"] = list(config.ids)
    (path,) = build.run(stage, [Shard("all", inputs)]).values()
    return Leaks(path, stage)


def translate_texts(
    build: Running, texts: Mapping[str, Path], tars: Mapping[str, Tar], leaks: Leaks
) -> dict[str, list[tuple[str, Path]]]:
    """tar -> task -> translations of its English texts."""
    config = build.config
    made: dict[str, list[tuple[str, Path]]] = {name: [] for name in tars}
    for source in config.sources:
        inputs = {name: {"tar": tar.path, "texts": texts[source], "leaks": leaks.path}
                  for name, tar in tars.items() if tar.source == source}  # fmt: skip
        wanted = languages_by_machine(config, source, texts[source])
        if not any(wanted.values()):
            continue
        before: tuple[Stage, ...] = (leaks.stage,)
        if config.describe is not None and config.translate.with_context:
            describe = _model_stage(build, "describe", f"{HERE}.texts:describe_shard", config.describe, *before)
            described = build.run(describe, [Shard(name, files) for name, files in inputs.items()])
            inputs = {name: files | {"descriptions": described[name]} for name, files in inputs.items()}
            before = (describe,)
        for task, codes in wanted.items():
            if not codes:
                continue
            prepare = Stage("prepare", f"{HERE}.texts:prepare_shard", {"task": task}, before=before)
            prepared = build.run(prepare, [Shard(f"{name}.{task}", files) for name, files in inputs.items()])
            rows = [config.coverage.language(code).model_dump(mode="json") for code in codes]
            entry = "babelcap.generate.translate:translate_shard"
            translate = _model_stage(build, "translate", entry, config.translate, prepare, languages=rows)
            done = build.run(translate, [Shard(name, {"captions": path}) for name, path in prepared.items()])
            for name in inputs:
                made[name].append((task, done[f"{name}.{task}"]))
    return made


def _model_stage(build: Running, name: str, entry: str, block: ConfigModel, *before: Stage, **more: Any) -> Stage:
    config = build.config
    return model_stage(config.work_folder, name, entry, block, *before, gpus_per_worker=config.gpus_per_worker, **more)


def languages_by_machine(config: FinetuneConfig, name: str, texts: Path) -> dict[str, list[str]]:
    """task -> languages that its English texts of a source are translated into: those in which it has none."""
    with parquet_errors(texts):
        table = pq.read_table(texts, columns=["task", "language"], filters=[("split", "=", TRAIN)])
    pairs = set(zip(table["task"].to_pylist(), table["language"].to_pylist(), strict=True))
    others = [language.code for language in config.coverage.languages if language.code != "en"]
    wanted = {
        task: [code for code in others if (task, code) not in pairs] if any(task == one for one, _ in pairs) else []
        for task in (CAPTION, TRANSLATION)
    }
    given = config.sources[name].captions_into
    return wanted if given is None else wanted | {CAPTION: list(given)}
