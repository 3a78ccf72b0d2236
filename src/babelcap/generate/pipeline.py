"""All stages of a dataset in order; what is done stays done, and the same command ends the same however often killed.

read -> clean -> embed texts ----------------+
tars -> caption -> translate -----------+    |
tars -> embed images -> search <--------|----+
                        search -> select -> align -> assemble
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from babelcap.config import affecting_values, resource_values
from babelcap.data.importers.files import find_files
from babelcap.data.store.tar import scan_tar
from babelcap.errors import UserError
from babelcap.generate.align import read_columns
from babelcap.generate.config import BuildConfig
from babelcap.generate.text_sources import list_chunks
from babelcap.jobs.receipts import Receipt
from babelcap.jobs.stages import Engine, Shard, Stage, run_stage, stage_outputs
from babelcap.storage import read_text

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


def find_tars(config: BuildConfig) -> dict[str, Path]:
    """By name, without the ending."""
    return {path.name.removesuffix(".tar"): path for path in find_files(config.images.tars, ".tar")}


def build_shards(config: BuildConfig, engine: Engine) -> tuple[Build, dict[str, Path]]:
    """Every stage up to the published columns: tar -> its file of aligned annotations."""
    tars = find_tars(config)
    held_out = eval_keys(config, tars)
    build = Build(config, engine)
    texts, text_vectors, embed_texts = _texts(build)
    captions, eval_captions, translate = _captions(build, tars, held_out)
    selected, select = _selected(build, tars, Texts(texts, text_vectors, embed_texts), held_out)
    if set(selected) != set(config.text):  # what is left of the text would give other pairs than all of it
        return build, {}
    stage = Stage(
        "align",
        f"{HERE}.align:align_shard",
        {
            "languages": config.translation_languages,
            "caption_languages": config.caption_languages + config.eval_caption_languages,
        },
        before=(*translate, *select),
    )
    chosen = {f"selected_{language}": path for language, path in selected.items()}
    shards = []
    unfinished = build.set_aside.get("translate_eval", {})
    for name in captions:
        if name in unfinished:
            continue
        made = {role: files[name] for role, files in (("captions", captions), ("eval_captions", eval_captions))
                if name in files}  # fmt: skip
        shards.append(Shard(name, made | chosen, {"tar": name}))
    return build, build.run(stage, shards)


class Texts(NamedTuple):
    """By language: its chunks, their vectors, and the stage that made those."""

    chunks: dict[str, dict[str, Path]]
    vectors: dict[str, dict[str, Path]]
    stages: dict[str, Stage]


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


def _captions(
    build: Build, tars: Mapping[str, Path], held_out: set[str]
) -> tuple[dict[str, Path], dict[str, Path], list[Stage]]:
    """Captions with their translations; and those that only held-out images have, for the pairs of the hole."""
    config = build.config
    gpus = config.gpus_per_worker
    caption = make_stage("caption", "caption:caption_shard", config.caption, model=True, gpus=gpus)
    made = build.run(caption, [Shard(name, {"tar": path}) for name, path in tars.items()])

    def translation(name: str, codes: Sequence[str]) -> Stage:
        rows = [config.coverage.language(code).model_dump(mode="json") for code in codes]
        entry = "translate:translate_shard"
        return make_stage(name, entry, config.translate, caption, model=True, gpus=gpus, languages=rows)

    translate = translation("translate", config.caption_languages)
    translated = build.run(translate, [Shard(name, {"captions": path}) for name, path in made.items()])
    unseen = config.eval_caption_languages
    if not (unseen and held_out):
        return translated, {}, [translate]
    shards = []
    for name, path in made.items():
        keys = sorted(held_out.intersection(read_columns(path, "key")[0].to_pylist()))
        if keys:
            shards.append(Shard(name, {"captions": path}, {"keys": keys}))
    translate_eval = translation("translate_eval", unseen)
    return translated, build.run(translate_eval, shards), [translate, translate_eval]


def _selected(
    build: Build, tars: Mapping[str, Path], texts: Texts, held_out: set[str]
) -> tuple[dict[str, Path], list[Stage]]:
    """language -> the pairs that were taken; none of a language of which a part was set aside."""
    config = build.config
    embed = make_stage("embed_images", "embed:embed_images", config.embed, model=True, gpus=config.gpus_per_worker)
    images = build.run(embed, [Shard(name, {"tar": path}) for name, path in tars.items()])
    selected: dict[str, Path] = {}
    stages: list[Stage] = []
    if build.set_aside.keys() & {"read", "clean", "embed_texts", "embed_images"}:
        return selected, stages
    names, size = sorted(images), config.align.tars_per_search
    groups = [names[start : start + size] for start in range(0, len(names), size)]
    for language, chunks in texts.chunks.items():
        search = Stage(
            "search",
            f"{HERE}.align:search_shard",
            {name: value for name, value in affecting_values(config.align).items() if name != "select"},
            before=(embed, texts.stages[language]),
            resources=resource_values(config.align),
        )
        near = list(texts.vectors[language].values())
        shards = [
            Shard(f"{'-'.join(dict.fromkeys((some[0], some[-1])))}.{language}",
                  {"images": [images[name] for name in some], "texts": near}, {"tars": some})
            for some in groups
        ]  # fmt: skip
        candidates = build.run(search, shards)
        settings = {"select": affecting_values(config.align.select), "language": language}
        settings |= {"eval_keys": sorted(held_out)}
        select = Stage("select", f"{HERE}.align:select_language", settings, before=(search,))
        inputs = {"candidates": list(candidates.values()), "texts": list(chunks.values())}
        if "search" not in build.set_aside:
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


def count_drops(receipts: Iterable[Receipt]) -> dict[str, int]:
    total: dict[str, int] = {}
    for receipt in receipts:
        for reason, number in receipt.drops.items():
            total[reason] = total.get(reason, 0) + number
    return dict(sorted(total.items(), key=lambda item: -item[1]))
