"""All stages of a dataset in order; what is done stays done, and the same command ends the same however often killed.

read -> clean -> repeats -> unique -> embed texts ---+
tars -> caption -> translate -------------------+    |
tars -> embed images -> search <----------------|----+
                        search -> select -> align -> assemble
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from babelcap.config import affecting_values, resource_values
from babelcap.data.importers.files import find_files
from babelcap.data.store.tar import TarMember, scan_tar
from babelcap.errors import UserError
from babelcap.generate.align import read_columns
from babelcap.generate.backends.given import given_inputs
from babelcap.generate.config import BuildConfig
from babelcap.generate.model_stage import model_stage
from babelcap.generate.models import IDENTIFICATION, LIBRARIES, SIMPLIFICATION
from babelcap.generate.text_sources import list_chunks
from babelcap.jobs.receipts import Receipt
from babelcap.jobs.stages import Engine, Shard, Stage, run_stage, stage_outputs
from babelcap.storage import read_text

HERE = "babelcap.generate"
# What each of the commands makes, in this order.
PARTS = {
    "clean": ("cleaned",),
    "caption": ("captions",),
    "translate": ("captions", "translated", "translated_eval"),
    "embed": ("cleaned", "text_vectors", "image_vectors"),
    "align": ("cleaned", "captions", "translated", "translated_eval", "text_vectors", "image_vectors", "aligned"),
}
ASSEMBLE = "assemble"  # the last command: all of these, and the corpus
SEARCHED_STAGES = {"read", "clean", "repeats", "unique", "embed_texts", "embed_images"}


class Made(NamedTuple):
    """What a stage made: its files by shard, and the stage itself, which later ones follow."""

    files: dict[str, Path]
    stage: Stage


@dataclass
class Build:
    """A build under way. A property is what some stages make, and with them all that comes before."""

    config: BuildConfig
    engine: Engine
    receipts: dict[str, dict[str, Receipt]] = field(default_factory=dict)  # stage -> shard -> receipt
    set_aside: dict[str, dict[str, str]] = field(default_factory=dict)  # stage -> shard -> why
    num_made: dict[str, int] = field(default_factory=dict)  # stage -> shards that this run made

    @property
    def work(self) -> Path:
        return self.config.work_folder

    def run(self, until: str) -> None:
        """Makes one of PARTS, with all that it needs."""
        for part in PARTS[until]:
            getattr(self, part)

    @cached_property
    def tars(self) -> dict[str, Path]:
        """By name, without the ending."""
        return {path.name.removesuffix(".tar"): path for path in find_files(self.config.images.tars, ".tar")}

    @cached_property
    def held_out(self) -> set[str]:
        """Keys of the images that are held out."""
        images, keys = self.config.images, set()
        for name in images.eval_tars:
            path = self.tars.get(name.removesuffix(".tar"))
            if path is None:
                found = ", ".join(sorted(self.tars)[:5])
                raise UserError(f"images.eval_tars: no tar is called {name} (found {found} ...)")
            keys |= {member.key for member in scan_tar(path).members if member.is_image}
        listed = read_text(images.eval_keys).split() if images.eval_keys is not None else ()
        return keys | {TarMember(name, 0, 0).key for name in listed}

    @cached_property
    def cleaned(self) -> dict[str, Made]:
        """By language: its text, chunk by chunk."""
        return {language: self._clean(language, chunks) for language, chunks in self._chunks().items()}

    @cached_property
    def text_vectors(self) -> dict[str, Made]:
        found = {}
        embed = self.config.embed.model_copy(update={"given": None})  # other captions of images leave texts as they are
        for language, texts in self.cleaned.items():
            stage = self._model_stage("embed_texts", "embed:embed_texts", embed, texts.stage)
            found[language] = self._run(stage, [Shard(name, {"text": path}) for name, path in texts.files.items()])
        return found

    @cached_property
    def image_vectors(self) -> Made:
        stage = self._model_stage("embed_images", "embed:embed_images", self.config.embed)
        given = given_inputs(self.config.embed.given)
        return self._run(stage, [Shard(name, {"tar": path, **given}) for name, path in self.tars.items()])

    @cached_property
    def captions(self) -> Made:
        stage = self._model_stage("caption", "caption:caption_shard", self.config.caption)
        if self.config.caption.check_language:
            stage = replace(stage, libraries=(*stage.libraries, IDENTIFICATION))
        given = given_inputs(self.config.caption.given)
        return self._run(stage, [Shard(name, {"tar": path, **given}) for name, path in self.tars.items()])

    @cached_property
    def translated(self) -> Made:
        stage = self._translation("translate", self.config.caption_languages)
        return self._run(stage, [Shard(name, {"captions": path}) for name, path in self.captions.files.items()])

    @cached_property
    def translated_eval(self) -> Made:
        """Captions that only held-out images have, for the pairs of the hole."""
        stage = self._translation("translate_eval", self.config.eval_caption_languages)
        shards = []
        for name, path in self.captions.files.items() if self.config.eval_caption_languages else ():
            keys = sorted(self.held_out.intersection(read_columns(path, "key")[0].to_pylist()))
            if keys:
                shards.append(Shard(name, {"captions": path}, {"keys": keys}))
        return self._run(stage, shards) if shards else Made({}, stage)

    @cached_property
    def selected(self) -> dict[str, Made]:
        """By language the pairs that were taken; of none where a part was set aside: the rest would give others."""
        vectors, images = self.text_vectors, self.image_vectors
        if self.set_aside.keys() & SEARCHED_STAGES:
            return {}
        found = {language: self._search(texts, images, language) for language, texts in vectors.items()}
        if "search" in self.set_aside:
            return {}
        return {language: self._select(candidates, language) for language, candidates in found.items()}

    @cached_property
    def aligned(self) -> Made | None:
        """The published columns by tar, with scores."""
        config = self.config
        translated, translated_eval, selected = self.translated, self.translated_eval, self.selected
        if set(selected) != set(config.text) or "select" in self.set_aside:
            return None
        languages = config.caption_languages + config.eval_caption_languages
        stage = Stage(
            "align",
            f"{HERE}.align:align_shard",
            {"languages": config.translation_languages, "caption_languages": languages},
            before=(translated.stage, translated_eval.stage, *(made.stage for made in selected.values())),
        )
        chosen = {f"selected_{language}": made.files[language] for language, made in selected.items()}
        shards = []
        for name, path in translated.files.items():
            if name not in self.set_aside.get("translate_eval", {}):
                held_out = {"eval_captions": files[name]} if name in (files := translated_eval.files) else {}
                shards.append(Shard(name, {"captions": path} | held_out | chosen, {"tar": name}))
        return self._run(stage, shards)

    def _run(self, stage: Stage, shards: Sequence[Shard]) -> Made:
        """Makes a stage's shards; the files are of those that could be made."""
        result = run_stage(stage, shards, self.work, self.engine)
        self.receipts.setdefault(stage.name, {}).update(result.receipts)
        self.num_made[stage.name] = self.num_made.get(stage.name, 0) + result.num_made
        if result.set_aside:
            self.set_aside.setdefault(stage.name, {}).update(result.set_aside)
        files = stage_outputs(stage, shards, self.work)
        return Made({name: path for name, path in files.items() if name in result.receipts}, stage)

    def _model_stage(self, name: str, function: str, block: BaseModel, *before: Stage, **more: Any) -> Stage:
        gpus = self.config.gpus_per_worker
        return model_stage(self.work, name, f"{HERE}.{function}", block, *before, gpus_per_worker=gpus, **more)

    def _chunks(self) -> dict[str, Made]:
        """By language: its text as it came, chunk by chunk."""
        found = {}
        for language, source in self.config.text.items():
            # Its files are inputs, known by their contents.
            described = {name: value for name, value in affecting_values(source).items() if name != "files"}
            settings = {"source": described, "pairs_per_chunk": self.config.clean.pairs_per_chunk, "language": language}
            stage = Stage("read", f"{HERE}.text_sources:read_shard", settings)
            shard = Shard(f"en-{language}", {"text": list(source.files)})
            listing = self._run(stage, [shard]).files.get(shard.name)
            if listing is not None and not list_chunks(listing):  # someone removed a chunk
                listing.unlink()
                listing = self._run(stage, [shard]).files.get(shard.name)
            if listing is not None:
                found[language] = Made(list_chunks(listing), stage)
        return found

    def _clean(self, language: str, chunks: Made) -> Made:
        config = self.config.clean
        settings = affecting_values(config) | {"language": language}
        asked = {IDENTIFICATION: config.check_language, SIMPLIFICATION: config.check_traditional and language == "zh"}
        used = tuple(name for name, is_asked in asked.items() if is_asked)
        clean = Stage("clean", f"{HERE}.clean:clean_chunk", settings, before=(chunks.stage,), libraries=used)
        cleaned = self._run(clean, [Shard(name, {"text": path}) for name, path in chunks.files.items()])
        names = sorted(cleaned.files)
        num_pairs = sum(self.receipts["clean"][name].num_out for name in names)
        num_groups = max(1, -(-num_pairs // config.pairs_per_group))
        repeats = Stage("repeats", f"{HERE}.unique:find_repeats", {}, before=(clean,))
        inputs = {"text": [cleaned.files[name] for name in names]}
        parts = [
            Shard(f"{language}.{group:03d}", inputs, {"chunks": names, "group": group, "num_groups": num_groups})
            for group in range(num_groups if len(names) == len(chunks.files) else 0)
        ]
        found = self._run(repeats, parts)
        unique = Stage("unique", f"{HERE}.unique:keep_unique", {}, before=(repeats,))
        if len(found.files) < num_groups:
            return Made({}, unique)
        others = list(found.files.values())
        shards = [Shard(name, {"text": cleaned.files[name], "repeats": others}, {"chunk": name}) for name in names]
        return self._run(unique, shards)

    def _translation(self, name: str, codes: Sequence[str]) -> Stage:
        rows = [self.config.coverage.language(code).model_dump(mode="json") for code in codes]
        entry, config = "translate:translate_shard", self.config.translate
        stage = self._model_stage(name, entry, config, self.captions.stage, languages=rows)
        return replace(stage, libraries=(*stage.libraries, IDENTIFICATION))

    def _search(self, texts: Made, images: Made, language: str) -> Made:
        config = self.config.align
        stage = Stage(
            "search",
            f"{HERE}.align:search_shard",
            {name: value for name, value in affecting_values(config).items() if name != "select"},
            before=(images.stage, texts.stage),
            resources=resource_values(config),
            libraries=LIBRARIES[config.index],
            holds_model=True,
            gpus_per_worker=self.config.gpus_per_worker if config.device != "cpu" else 0.0,
        )
        names, size = sorted(images.files), config.tars_per_search
        near = list(texts.files.values())
        shards = []
        for start in range(0, len(names), size):
            some = names[start : start + size]
            name = f"{'-'.join(dict.fromkeys((some[0], some[-1])))}.{language}"
            shards.append(Shard(name, {"images": [images.files[tar] for tar in some], "texts": near}, {"tars": some}))
        return self._run(stage, shards)

    def _select(self, candidates: Made, language: str) -> Made:
        settings = {"select": affecting_values(self.config.align.select), "language": language}
        settings |= {"eval_keys": sorted(self.held_out)}
        stage = Stage("select", f"{HERE}.align:select_language", settings, before=(candidates.stage,))
        texts = list(self.cleaned[language].files.values())
        return self._run(stage, [Shard(language, {"candidates": list(candidates.files.values()), "texts": texts})])
