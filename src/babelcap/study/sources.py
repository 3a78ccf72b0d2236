"""Where a study's pictures and base models come from, as the first steps of its graph.

pictures      a world that is drawn, or a corpus folder, which is indexed and checked
benchmarks    the world's twins of them
base models   made in small and prepared, prepared from named checkpoints, or a captioner's folder that is ready
What lies outside of the study is named by its contents, so that another corpus or model gives other steps.
"""

import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Any

from babelcap.bases.config import BaseConfig
from babelcap.bases.recipe import SHIPPED, Base, needed_bases
from babelcap.config import build_config, merge_values
from babelcap.coverage import Coverage
from babelcap.data.store.manifest import MANIFEST
from babelcap.evaluation.metrics.sentence_space import NAME
from babelcap.storage import file_sha256, has_manifest, read_json_object
from babelcap.storage.manifest import MANIFEST as CHECKSUMS
from babelcap.study.blocks import FinetuneBlock
from babelcap.study.config import CheckpointConfig, CorpusConfig, StudyConfig
from babelcap.study.graph import Step
from babelcap.world.corpus import TRUTH, WorldConfig

FINETUNE_WORLD_SEED = 1_000_003  # added to the world's, so that fine-tuning has pictures of its own
SAMPLED_BYTES = 1 << 16


def changed_world(config: StudyConfig, changes: dict[str, Any]) -> WorldConfig:
    assert config.world is not None
    return build_config(WorldConfig, merge_values(WorldConfig, config.world.model_dump(mode="json"), changes))


def trial_step(config: StudyConfig, slug: str, changes: dict[str, Any]) -> tuple[Step, Coverage]:
    """What a trial is trained on: the same scenes but for what was changed, and nothing to measure on."""
    unused = {"num_eval_images": 0, "num_holdout_images": 0, "num_text_lines": 0}
    world = changed_world(config, {**unused, **changes})
    return _world_step(slug, world), world.coverage


def pictures_step(config: StudyConfig, slug: str = "main") -> Step:
    """What the grid is trained and measured on."""
    if config.corpus is None:
        assert config.world is not None
        return _world_step(slug, config.world)
    splits = [config.corpus.train_split, config.corpus.eval_split, config.corpus.holdout_split]
    return _corpus_step(slug, config.corpus.folder, [split for split in splits if split is not None])


def finetuning_step(config: StudyConfig, block: FinetuneBlock) -> Step:
    """A corpus of full coverage: a folder, or a world of other pictures."""
    if block.corpus is not None:
        return _corpus_step("full", block.corpus, [block.split])
    assert config.world is not None
    changes = {
        "coverage": config.coverage.full(),
        "num_images": block.num_images,
        "seed": config.world.seed + FINETUNE_WORLD_SEED,
        "num_eval_images": 0,
        "num_holdout_images": 0,
        "num_text_lines": 0,
    }
    slug = f"full.{block.trial.replace('=', '-')}" if block.trial else "full"
    return _world_step(slug, config.world.model_copy(update=changes))


def benchmarks_step(config: StudyConfig, slug: str = "main") -> Step | None:
    """The world's twins of the benchmarks, on the pictures that are captioned anyway; None for a corpus."""
    measured = config.evaluation
    if config.world is None or not measured.downstream:
        return None
    settings = {
        "world": config.world.model_dump(mode="json", exclude={"num_workers"}),
        "num_captioned": measured.num_captions,
        "num_translated": measured.num_translated,
        "num_pairs": measured.num_pairs,
    }
    return Step("benchmarks", slug, settings, units=measured.num_captions + 2 * measured.num_pairs)


def photograph_settings(config: StudyConfig, split: str, is_final: bool) -> dict[str, Any] | None:
    """How photographs, which have no truth file, are captioned and judged: by what people wrote of them."""
    measured = config.evaluation
    wanted = measured.final_variants if is_final else measured.variants
    variants = [variant for variant in wanted if "shortlist" not in variant]
    if measured.texts is None or not variants or not measured.num_captions:
        return None
    return {
        "judged_by": NAME,
        "split": split,
        "num_pictures": measured.num_captions,
        "variants": variants,
        "trained_tokens": config.training.get("head") == "corpus",  # written in the vocabulary that was trained
        "style": str(measured.style),
        "num_beams": measured.num_beams,
        "max_new_tokens": measured.max_new_tokens,
    }


def truth_hash(config: StudyConfig) -> str | None:
    """Of the scenes behind the pictures, by which captions are judged; None where nobody knows them."""
    if config.corpus is None:
        return ""  # the world's own step covers it
    path = config.corpus.folder / TRUTH
    return file_sha256(path) if path.is_file() else None


def splits_of(config: StudyConfig) -> CorpusConfig:
    """The names of the splits, a world's in the form of a corpus."""
    if config.corpus is not None:
        return config.corpus
    assert config.world is not None
    holdout = "holdout" if config.world.num_holdout_images else None
    return CorpusConfig(folder=Path(), holdout_split=holdout, coverage=config.world.coverage)


def _world_step(slug: str, world: WorldConfig) -> Step:
    settings = world.model_dump(mode="json", exclude={"num_workers"})
    units = world.num_images + world.num_eval_images + world.num_holdout_images
    return Step("world", slug, settings, units=units)


def _corpus_step(slug: str, folder: Path, splits: list[str]) -> Step:
    path = folder / MANIFEST
    found = read_json_object(path) if path.is_file() else {}
    settings = {"content": found.get("content_hash", f"{folder}, not there yet"), "splits": splits}
    return Step("corpus", slug, settings, units=found.get("num_images", 1), at=str(folder.resolve()))


def captioner_step(config: StudyConfig, size: str, base: str) -> Step:
    """The captioner that trainings start from, with the steps that make what it is made of."""
    slug = f"{size}.{base}"
    if base in config.base.variants:
        settings = {"size": size, "seed": config.base.seed}
        return Step("prepare", slug, settings, _base_steps(config.base, size, base), size=size)
    origin = next(found for found in config.checkpoints if (found.base, found.size) == (base, size))
    if origin.model is not None:
        settings = {"size": size, "model": content_mark(str(origin.model))}
        return Step("prepare", slug, settings, size=size, at=str(origin.model.resolve()))
    return Step("prepare", slug, _surgery(origin), resources=_names(origin), size=size)


def _surgery(origin: CheckpointConfig) -> dict[str, Any]:
    marks = {role: content_mark(name) for role, name in _names(origin).items()}
    return {"size": origin.size, "seed": origin.seed, "dtype": origin.dtype, **marks}


def _names(origin: CheckpointConfig) -> dict[str, str]:
    given = {"florence": origin.florence, "gemma": origin.gemma}
    return {role: _absolute(name) for role, name in given.items() if name is not None}


def _absolute(name: str) -> str:
    return str(Path(name).resolve()) if Path(name).is_dir() else name


def content_mark(name: str) -> str:
    """Of a model's folder: its manifest's checksum, else one of its files' names, sizes, beginnings and ends.

    A name on the hub stands for itself, and so does a folder that is not there yet.
    """
    folder = Path(name)
    if not folder.is_dir():
        return name
    if has_manifest(folder):
        return str(read_json_object(folder / CHECKSUMS).get("sha256"))
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")]):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            digest.update(file.read(SAMPLED_BYTES))
            file.seek(max(0, size - SAMPLED_BYTES))
            digest.update(file.read())
    return digest.hexdigest()[:16]


def _base_steps(config: BaseConfig, size: str, variant: str) -> dict[str, Step]:
    resources = {"config": config.model_dump(mode="json")}
    built: dict[str, Step] = {}
    for base in needed_bases(config, size, variant):
        needs = {"tower": built["tower"]} if base.kind == "florence" else {}
        is_shipped = config.use_shipped and _is_in_package(base)
        built[base.kind] = Step(
            "base",
            base.name.rpartition("-")[0],
            {"kind": base.kind, "letter": base.letter, "variant": base.variant, "recipe": base.recipe},
            needs,
            resources,
            units=1.0 if is_shipped else _num_samples(config, base.kind),
            size="shipped" if is_shipped else f"{base.kind}-{base.letter}",
            path=f"bases/{base.name}",
        )
    return built


def _is_in_package(base: Base) -> bool:
    """Whether its weights come with the package, so that it need not be trained."""
    return (Path(str(files("babelcap.bases"))) / SHIPPED / f"{base.name}.safetensors").is_file()


def _num_samples(config: BaseConfig, kind: str) -> float:
    """That the base is trained on."""
    name = {"tower": "tower", "florence": "caption", "gemma": "language"}[kind]
    return float(getattr(config, f"{name}_steps") * getattr(config, f"{name}_batch_size"))
