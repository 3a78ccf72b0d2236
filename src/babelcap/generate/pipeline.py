"""All stages of a dataset in order; what is done stays done, and the same command ends the same however often killed.

read -> clean -> embed texts ----------------+
tars -> caption -> translate -----------+    |
tars -> embed images -> search <--------|----+
                        search -> select -> align -> assemble
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from babelcap.config import affecting_values, resource_values
from babelcap.data.importers.files import find_files
from babelcap.data.store.tar import scan_tar
from babelcap.errors import UserError
from babelcap.generate.config import BuildConfig
from babelcap.generate.text_sources import list_chunks
from babelcap.jobs.engines import LocalEngine, RayEngine
from babelcap.jobs.receipts import Receipt
from babelcap.jobs.stages import Engine, Shard, Stage, run_stage, stage_outputs
from babelcap.storage import locked, read_text

HERE = "babelcap.generate"


@dataclass
class Build:
    """A build under way: its stages so far, with their receipts."""

    config: BuildConfig
    engine: Engine
    receipts: dict[str, dict[str, Receipt]] = field(default_factory=dict)  # stage -> shard -> receipt
    set_aside: dict[str, dict[str, str]] = field(default_factory=dict)  # stage -> shard -> why

    @property
    def work(self) -> Path:
        return self.config.work_folder

    def run(self, stage: Stage, shards: Sequence[Shard]) -> dict[str, Path]:
        """Makes a stage's shards and returns the files of those that could be made."""
        result = run_stage(stage, shards, self.work, self.engine)
        self.receipts.setdefault(stage.name, {}).update(result.receipts)
        if result.set_aside:
            self.set_aside.setdefault(stage.name, {}).update(result.set_aside)
        files = stage_outputs(stage, shards, self.work)
        return {name: path for name, path in files.items() if name in result.receipts}


def make_engine(config: BuildConfig) -> Engine:
    num_workers = config.num_workers or len(os.sched_getaffinity(0))
    if config.engine == "ray":
        return RayEngine(num_workers, config.address)
    return LocalEngine(num_workers, config.work_folder / "logs")


def make_stage(
    name: str, function: str, block: BaseModel, *before: Stage, model: bool = False, gpus: float = 0.0, **more: Any
) -> Stage:
    """Settings that matter are hashed; resources are handed over and not."""
    return Stage(
        name,
        f"{HERE}.{function}",
        affecting_values(block) | more,
        before=before,
        resources=resource_values(block),
        holds_model=model,
        gpus_per_worker=gpus if model else 0.0,
    )


def build_shards(config: BuildConfig) -> tuple[Build, dict[str, Path]]:
    """Every stage up to the published columns: tar -> its file of aligned annotations."""
    tars = {path.name.removesuffix(".tar"): path for path in find_files(config.images.tars, ".tar")}
    work = config.work_folder
    with locked(work / ".lock", refuse=f"{work}: another process builds this dataset"), make_engine(config) as engine:
        build = Build(config, engine)
        texts, text_vectors, clean = _texts(build)
        captions, translate = _captions(build, tars)
        selected, select = _selected(build, tars, texts, text_vectors, clean)
        stage = Stage(
            "align",
            f"{HERE}.align:align_shard",
            {"languages": config.translation_languages, "caption_languages": config.caption_languages},
            before=(translate, *select),
        )
        shards = [
            Shard(
                name,
                ({"captions": captions[name]} if name in captions else {})
                | {f"selected_{language}": path for language, path in selected.items()},
                {"tar": name},
            )
            for name in tars
        ]
        aligned = build.run(stage, shards)
    _require_all(build)
    return build, aligned


def _texts(build: Build) -> tuple[dict[str, dict[str, Path]], dict[str, dict[str, Path]], dict[str, Stage]]:
    """language -> chunk -> clean text, and its vectors; and the stages that made the vectors."""
    config = build.config
    texts: dict[str, dict[str, Path]] = {}
    vectors: dict[str, dict[str, Path]] = {}
    stages: dict[str, Stage] = {}
    for language, source in config.text.items():
        # Its files are inputs, known by their contents.
        described = {name: value for name, value in affecting_values(source).items() if name != "files"}
        settings = {"source": described, "pairs_per_chunk": config.clean.pairs_per_chunk, "language": language}
        read = Stage("read", f"{HERE}.text_sources:read_shard", settings)
        shard = Shard(f"en-{language}", {"text": list(source.files)})
        (listing,) = build.run(read, [shard]).values() or [None]
        if listing is None:
            continue
        chunks = list_chunks(listing)
        if not chunks:  # someone removed a chunk
            listing.unlink()
            (listing,) = build.run(read, [shard]).values()
            chunks = list_chunks(listing)
        clean = make_stage("clean", "clean:clean_chunk", config.clean, read, language=language)
        texts[language] = build.run(clean, [Shard(name, {"text": path}) for name, path in chunks.items()])
        embed = make_stage(
            "embed_texts", "embed:embed_texts", config.embed, clean, model=True, gpus=config.gpus_per_worker
        )
        vectors[language] = build.run(embed, [Shard(name, {"text": path}) for name, path in texts[language].items()])
        stages[language] = embed
    return texts, vectors, stages


def _captions(build: Build, tars: Mapping[str, Path]) -> tuple[dict[str, Path], Stage]:
    config = build.config
    gpus = config.gpus_per_worker
    caption = make_stage("caption", "caption:caption_shard", config.caption, model=True, gpus=gpus)
    made = build.run(caption, [Shard(name, {"tar": path}) for name, path in tars.items()])
    rows = [config.coverage.language(code).model_dump(mode="json") for code in config.caption_languages]
    translate = make_stage(
        "translate", "translate:translate_shard", config.translate, caption, model=True, gpus=gpus, languages=rows
    )
    return build.run(translate, [Shard(name, {"captions": path}) for name, path in made.items()]), translate


def _selected(
    build: Build,
    tars: Mapping[str, Path],
    texts: Mapping[str, Mapping[str, Path]],
    vectors: Mapping[str, Mapping[str, Path]],
    embed_texts: Mapping[str, Stage],
) -> tuple[dict[str, Path], list[Stage]]:
    """language -> the pairs that were taken."""
    config = build.config
    embed = make_stage("embed_images", "embed:embed_images", config.embed, model=True, gpus=config.gpus_per_worker)
    images = build.run(embed, [Shard(name, {"tar": path}) for name, path in tars.items()])
    held_out = sorted(eval_keys(config, tars))
    selected: dict[str, Path] = {}
    stages = []
    for language, chunks in texts.items():
        search = make_stage("search", "align:search_shard", config.align, embed, embed_texts[language])
        near = list(vectors[language].values())
        shards = [Shard(f"{name}.{language}", {"images": path, "texts": near}) for name, path in images.items()]
        candidates = build.run(search, shards)
        select = make_stage(
            "select", "align:select_language", config.align, search, language=language, eval_keys=held_out
        )
        inputs = {"candidates": list(candidates.values()), "texts": list(chunks.values())}
        selected |= build.run(select, [Shard(language, inputs)])
        stages.append(select)
    return selected, stages


def eval_keys(config: BuildConfig, tars: Mapping[str, Path]) -> set[str]:
    """Keys of the images that are held out."""
    keys: set[str] = set()
    for name in config.images.eval_tars:
        path = tars.get(name.removesuffix(".tar"))
        if path is None:
            raise UserError(f"images.eval_tars: no tar is called {name} (found {', '.join(sorted(tars)[:5])} ...)")
        keys |= {member.key for member in scan_tar(path).members if member.is_image}
    if config.images.eval_keys is not None:
        keys |= set(read_text(config.images.eval_keys).split())
    return keys


def _require_all(build: Build) -> None:
    """Shards that were set aside are named; all others are done, and the same command tries these again."""
    lines = [f"{stage} {shard}: {why}" for stage, shards in build.set_aside.items() for shard, why in shards.items()]
    if lines:
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        raise UserError(f"set aside: {lines[0]}{more}; all others are done, and the same command tries these again")


def count_drops(receipts: Iterable[Receipt]) -> dict[str, int]:
    total: dict[str, int] = {}
    for receipt in receipts:
        for reason, number in receipt.drops.items():
            total[reason] = total.get(reason, 0) + number
    return dict(sorted(total.items(), key=lambda item: -item[1]))
