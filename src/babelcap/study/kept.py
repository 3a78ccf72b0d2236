"""What is kept of a study: its records, and the captions that they judge, so that these can be judged anew.

    captions.jsonl.gz    {run, world_seed, split, variant, style, language, captions: {key: text}} a line

When the rule by which the world judges a caption changes, `rejudge` applies it to these; nothing is trained again.
"""

import gzip
import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from babelcap.config import build_config
from babelcap.errors import UserError
from babelcap.evaluation.captions import Generated, judge_caption, variant_results
from babelcap.measures import CAPTION_PREFIX, CHANCE, EVAL, Variant, check_variant
from babelcap.records import EvalResult, Record, RunRecord, first_problem, read_run_records, write_run_records
from babelcap.report.gallery_file import GalleryFile
from babelcap.storage import atomic_file, parse_json, read_gzip_text, read_json_object, write_json
from babelcap.study.config import StudyConfig
from babelcap.study.finish import LAWS
from babelcap.study.gallery import GALLERY, shown_caption
from babelcap.study.graph import CAPTIONS
from babelcap.study.grid import GridRun, study_graph
from babelcap.study.records import RUNS
from babelcap.world.corpus import WorldConfig, scene_of

KEPT = f"{CAPTIONS}.gz"
COPIED = ("config.json", "study.json", RUNS, GALLERY, LAWS, "timing.json")


class CaptionLine(Record):
    """The captions of one run in one language, asked for in one way, by the keys of their pictures."""

    run: str
    world_seed: int
    split: str
    variant: str
    style: str
    language: str
    captions: dict[str, str]


class Rejudged(NamedTuple):
    num_captions: int
    num_changed: int  # values of measures
    num_runs: int  # that have them


def keep_study(config: StudyConfig, output: Path) -> list[str]:
    """Copies what a study that has ended is judged by, and returns the names of the files."""
    study = config.output.resolve()
    missing = [name for name in COPIED if not (study / name).is_file()]
    if missing:
        raise UserError(f"{study} has no {missing[0]}; run the study to its end first (babelcap study run)")
    output.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        with atomic_file(output / name) as partial:
            shutil.copyfile(study / name, partial)
    lines = list(_caption_lines(config, study))
    if lines:
        write_kept_captions(output / KEPT, lines)
    return [*COPIED, *([KEPT] if lines else [])]


def _caption_lines(config: StudyConfig, study: Path) -> Iterator[CaptionLine]:
    if config.evaluation.texts is not None:
        return  # of photographs, which no world judges
    for run in study_graph(config).runs:
        if run.captions is None:
            continue
        groups: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
        lines = (study / run.captions.folder / CAPTIONS).read_text(encoding="utf-8").split("\n")
        for said in map(json.loads, filter(None, lines)):  # not splitlines, which also cuts at marks within a text
            groups[said["split"], said["variant"], said["language"]][said["key"]] = said["text"]
        for (split, variant, language), captions in groups.items():
            yield CaptionLine(
                run=run.name, world_seed=_world_seed(run), split=split, variant=variant,
                style=run.captions.settings["style"], language=language, captions=captions,
            )  # fmt: skip


def _world_seed(run: GridRun) -> int:
    assert run.captions is not None
    return int(run.captions.inputs["pictures"].settings["seed"])


def write_kept_captions(path: Path, lines: list[CaptionLine]) -> None:
    with atomic_file(path) as partial, partial.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        for line in lines:
            file.write((json.dumps(line.model_dump(), ensure_ascii=False, separators=(",", ":")) + "\n").encode())


def read_kept_captions(path: Path) -> list[CaptionLine]:
    if not path.is_file():
        raise UserError(f"{path}: no such file; `babelcap study keep` writes it beside the records")
    found = []
    for number, text in enumerate(read_gzip_text(path).split("\n"), 1):
        if text.strip():
            try:
                found.append(CaptionLine.model_validate(parse_json(text, f"{path}:{number}")))
            except ValidationError as error:
                raise UserError(f"{path}:{number}: {first_problem(error)}") from None
    return found


def rejudge(folder: Path) -> Rejudged:
    """Judges the kept captions by today's rule, and writes the records and the gallery anew."""
    config = build_config(StudyConfig, _settings(folder), str(folder / "study.json"))
    if config.world is None:
        raise UserError(f"{folder}: its pictures are of no world, which would know what they show")
    worlds: dict[int, WorldConfig] = {}
    lines = read_kept_captions(folder / KEPT)
    judged: dict[tuple[str, str, Variant, str], list[Generated]] = defaultdict(list)
    for line in lines:
        world = worlds.setdefault(line.world_seed, config.world.model_copy(update={"seed": line.world_seed}))
        prefix = config.coverage.language(line.language).prefix if "prefix" in line.variant else ""
        judged[line.run, line.split, check_variant(line.variant), line.style] += _judged(line, world, prefix)
    results: dict[str, list[EvalResult]] = defaultdict(list)
    for (run, split, variant, style), captions in judged.items():
        results[run] += variant_results(captions, variant, split, config.coverage, style)
    records = read_run_records(folder / RUNS)
    unknown = results.keys() - {record.run for record in records}
    if unknown:
        raise UserError(f"{folder / KEPT}: has captions of {min(unknown)}, which {RUNS} has no record of")
    changed = [_replaced(record, results.get(record.run, [])) for record in records]
    if (folder / GALLERY).is_file():
        _mark_gallery(folder / GALLERY, judged)  # first: where it is damaged, the records stay as they were
    write_run_records(folder / RUNS, [record for record, _ in changed])
    return Rejudged(
        sum(len(line.captions) for line in lines), sum(num for _, num in changed), sum(num > 0 for _, num in changed)
    )


def _settings(folder: Path) -> dict[str, Any]:
    found = read_json_object(folder / "study.json").get("config")
    if not isinstance(found, dict):
        raise UserError(f"{folder / 'study.json'}: has no config; it may be damaged")
    return {name: value for name, value in found.items() if name != "coverage"}  # which the world's says


def _judged(line: CaptionLine, world: WorldConfig, prefix: str) -> list[Generated]:
    return [
        judge_caption(key, scene_of(world, key), line.language, check_variant(line.variant), text, prefix)
        for key, text in line.captions.items()
    ]


def _replaced(record: RunRecord, new: list[EvalResult]) -> tuple[RunRecord, int]:
    """The record with these in the place of what it had of them, and how many values differ."""
    by_name = {(result.measure, result.split): result for result in new}
    num_changed, results = 0, []
    for old in record.results:
        is_judged = old.measure.startswith(CAPTION_PREFIX) and not old.measure.endswith(CHANCE)
        found = by_name.get((old.measure, old.split)) if is_judged else None
        num_changed += found is not None and repr(found.per_pair) != repr(old.per_pair)
        results.append(found or old)
    return record.model_copy(update={"results": results}), num_changed


def _mark_gallery(path: Path, judged: dict[tuple[str, str, Variant, str], list[Generated]]) -> None:
    lines = {
        (run, said.key, said.language, said.variant): said.values()
        for (run, split, _, _), captions in judged.items()
        if split == EVAL
        for said in captions
    }
    gallery = read_json_object(path)
    if "pictures" not in gallery:
        raise UserError(f"{path}: has no pictures; it may be damaged, keep the study again")
    try:
        GalleryFile.model_validate(gallery)
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}; it may be damaged, keep the study again") from None
    for picture in gallery["pictures"]:
        picture["captions"] = [
            shown_caption(old["run"], lines[where])
            if (where := (old["run"], picture["key"], old["language"], old["variant"])) in lines
            else old
            for old in picture["captions"]
        ]
    write_json(path, gallery)
