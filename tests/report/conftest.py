"""A plausible study, simulated: sizes, bases, budgets and seeds, controls and fine-tuning, with the records' names."""

import base64
import io
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from babelcap.coverage import Coverage
from babelcap.records import EvalResult, RunRecord, compute_macs, write_run_records

COVERAGE = Coverage()
LANGUAGES = [language.code for language in COVERAGE.languages]
UNSEEN = [pair.language for pair in COVERAGE.hole]
PARAMETERS = {
    "micro-florence-s": 330_000, "micro-florence-m": 610_000, "micro-gemma-s": 420_000, "micro-gemma-m": 800_000,
    "micro-gemma-l": 1_500_000,
}  # fmt: skip
INITIAL = {"english": 6.5, "european": 5.6, "balanced": 4.8}
EXPONENTS = {"UC": (-0.16, -0.14, 0.5), "ST": (-0.08, -0.25, 0.15), "SC": (-0.15, -0.17, 0.05)}
CHANCE = {"language": 1 / 6, "objects": 0.13, "colours": 0.12, "relations": 0.2, "objects_with_colour": 0.02}
VARIANTS = ("plain", "prefix", "shortlist", "prefix+shortlist")
NUM_PICTURES = 100


def result(measure: str, per_pair: dict[str, float], split: str = "eval", num: int = NUM_PICTURES) -> EvalResult:
    per_split = {}
    for name, pairs in COVERAGE.splits.items():
        found = [per_pair[pair] for pair in pairs if pair in per_pair]
        if found:
            per_split[name] = sum(found) / len(found)
    unseen = [per_pair[f"caption-{code}"] for code in UNSEEN if f"caption-{code}" in per_pair]
    if unseen and not measure.startswith("cross_entropy/"):
        per_split["unseen"] = sum(unseen) / len(unseen)
    if measure.startswith("downstream/"):
        per_split["every"] = sum(per_pair.values()) / len(per_pair)
    num_samples = {} if measure.endswith("chance") else dict.fromkeys(per_pair, num)
    return EvalResult(measure=measure, split=split, per_pair=per_pair, per_split=per_split, num_samples=num_samples)


def losses(P: float, S: float, T: float, kind: str, rng: random.Random) -> list[EvalResult]:
    """As many results as `babelcap eval loss` leaves in the paper's mean: raw, conditioned, own and shuffled."""
    found = []
    noise = rng.gauss(0, 0.02)
    for picture in ("", "/shuffled"):
        per_pair: dict[str, dict[str, float]] = {"raw": {}, "conditioned": {}}
        for split, (b1, b2, b3) in EXPONENTS.items():
            loss = 60 * P**b1 * S**b2 * (T / 5) ** b3 * math.exp(noise + rng.gauss(0, 0.01))
            if picture and split != "ST" and kind != "unfit-translation":
                loss *= 1.4
            for pair in COVERAGE.splits[split]:
                per_pair["conditioned"][pair] = loss
                # The choice of language costs more the surer the model is of the wrong one.
                choice = 0.35 * math.log(S / 1000) * abs(rng.gauss(1, 0.3)) if split == "UC" else 0.1
                per_pair["raw"][pair] = loss + choice
        found += [result(f"cross_entropy/sample_mean/{name}{picture}", pairs) for name, pairs in per_pair.items()]
    return found


def clip(number: float) -> float:
    return min(1.0, max(0.0, number))


def captions(skill: float, kind: str, final: bool, rng: random.Random) -> list[EvalResult]:
    found = []
    for split in ("eval", "holdout") if final else ("eval",):
        for variant in VARIANTS if final else VARIANTS[:2]:
            rates: dict[str, dict[str, float]] = {name: {} for name in (*CHANCE, "hallucinated", "well_formed")}
            for code in LANGUAGES:
                pair, unseen = f"caption-{code}", code in UNSEEN
                language = clip(0.99 + rng.gauss(0, 0.01))
                if unseen and kind == "no-translation":
                    language = clip(rng.gauss(0.1, 0.05))
                elif unseen and "prefix" not in variant and kind != "finetuned":
                    language = clip(rng.gauss(0.7 if variant == "shortlist" else 0.15, 0.1))
                content = skill * (0.92 if unseen else 1.0) * (0.93 if split == "holdout" else 1.0)
                if unseen and kind == "unfit-translation":
                    content = CHANCE["objects"]
                content = clip(content + rng.gauss(0, 0.02)) * language
                rates["language"][pair] = language
                rates["objects"][pair] = content
                rates["colours"][pair] = clip(0.6 + 0.4 * content + rng.gauss(0, 0.01))
                rates["relations"][pair] = clip(0.3 + 0.5 * content)
                rates["objects_with_colour"][pair] = content * rates["colours"][pair]
                rates["hallucinated"][pair] = clip(1 - content)
                rates["well_formed"][pair] = clip(0.5 + 0.5 * content)
            found += [result(f"captions/{name}/{variant}", pairs, split) for name, pairs in rates.items()]
        for name, number in CHANCE.items():
            per_pair = {f"caption-{code}": number for code in LANGUAGES}
            found.append(result(f"captions/{name}/chance", per_pair, split))
    return found


def downstream(skill: float, kind: str, final: bool, rng: random.Random) -> list[EvalResult]:
    """Scores that rise with the skill; with shuffled pictures, those of a model that sees nothing."""
    found = []
    for pictures in ("", "/shuffled") if final else ("",):
        seen = skill * (0.15 if pictures else 1.0)
        for variant in VARIANTS[:2]:
            cider, fidelity = {}, {}
            for code in LANGUAGES:
                lost = code in UNSEEN and kind != "finetuned" and (variant == "plain" or kind == "no-translation")
                fidelity[f"caption-{code}"] = 0.2 if lost else 1.0
                cider[f"caption-{code}"] = 5 * clip(seen + rng.gauss(0, 0.02)) * (0.2 if lost else 1.0)
            for name, pairs in (("CIDEr", cider), ("gated_CIDEr", cider), ("fidelity", fidelity)):
                found.append(result(f"downstream/captioning/{name}/{variant}{pictures}", pairs))
        targets = [f"translation-{code}" for code in LANGUAGES if code != "en"]
        for name, top in (("translation/BLEU", 60), ("translation/chrF", 80)):
            pairs = {pair: top * clip(0.4 + 0.6 * seen + rng.gauss(0, 0.02)) for pair in targets}
            found.append(result(f"downstream/{name}/plain{pictures}", pairs, num=20))
        accuracy = {pair: clip(0.5 + (0.0 if pictures else 0.5 * seen) + rng.gauss(0, 0.02)) for pair in targets}
        found.append(result(f"downstream/ambiguity/accuracy/plain{pictures}", accuracy, num=48))
    return found


def make_record(size: str, base: str, steps: int, seed: int, kind: str = "main", final: bool = False) -> RunRecord:
    rng = random.Random(f"{size} {base} {steps} {seed} {kind}")
    P, S, T = PARAMETERS[size], steps * 32, INITIAL[base] + 0.2 * (size[-1] == "s")
    Pt, F = int(P * 0.7), 180.0 * P
    skill = clip(0.12 + 0.2 * math.log(S / 2000) + 0.12 * math.log(P / 3e5))
    if kind == "finetuned":
        skill = 1.0
    name = f"{size}.{base}.s{seed}"
    if kind == "finetuned":
        name += ".finetuned.from001000"
    elif kind != "main":
        name += f".{kind}"
    initial = [
        result(
            f"cross_entropy/sample_mean/{reading}{picture}",
            {pair: T + 0.3 * (split == "UC") for split, pairs in COVERAGE.splits.items() for pair in pairs},
        )
        for reading in ("raw", "conditioned")
        for picture in ("", "/shuffled")
    ]
    return RunRecord(
        run=f"{name}.b{steps:06d}", study="simulated", family=size.split("-")[1], size=size, base=base, seed=seed,
        num_steps=steps, batch_size=32, P=P, Pt=Pt, F=F, S=S, C=compute_macs(S, F, P, Pt), T=initial[0].per_split,
        initial=initial, seconds=S / 300,
        results=losses(P, S, T, kind, rng) + captions(skill, kind, final, rng) + downstream(skill, kind, final, rng),
        versions={"babelcap": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
        kind=kind, started_from=f"{size}.{base}.s{seed}.b001000" if kind == "finetuned" else "",
        extra={"chance": CHANCE},
    )  # fmt: skip


def make_records(seeds: tuple[int, ...] = (0, 1, 2)) -> list[RunRecord]:
    records = []
    for seed in seeds:
        for size in PARAMETERS:
            for base in INITIAL if size.startswith("micro-gemma") else ("balanced",):
                records += [make_record(size, base, steps, seed, final=steps == 1000) for steps in (125, 500, 1000)]
        for kind in ("no-translation", "unfit-translation"):
            records.append(make_record("micro-gemma-l", "balanced", 1000, seed, kind, final=True))
        records.append(make_record("micro-gemma-l", "balanced", 100, seed, "finetuned", final=True))
    return sorted(records, key=lambda record: record.run)


SENTENCES = {
    "en": "A red cat sits on the left.", "de": "Links sitzt eine rote Katze.", "fr": "Un chat rouge à gauche.",
    "es": "Un gato rojo <a la izquierda>.", "ru": "Слева красная кошка.", "zh": "左边有一只红色的猫。",
}  # fmt: skip


WHAT_FOLLOWS = {
    "en": " a red cat.", "de": " eine rote Katze.", "fr": " un chat rouge.", "es": " un gato <rojo>.",
    "ru": "а красная кошка.", "zh": "一只红色的猫。",
}  # fmt: skip


def make_gallery() -> dict[str, Any]:
    pictures = []
    for number in range(3):
        stream = io.BytesIO()
        Image.new("RGB", (64, 64), (40 + 60 * number, 120, 160)).save(stream, format="PNG")
        found = []
        for kind in ("main", "finetuned"):
            record = make_record("micro-gemma-l", "balanced", 100 if kind == "finetuned" else 1000, 0, kind)
            for code in LANGUAGES:
                for variant in ("plain", "prefix"):
                    wrong = kind == "main" and variant == "plain" and code in UNSEEN
                    text = SENTENCES["en" if wrong else code]
                    if variant == "prefix":
                        text = COVERAGE.language(code).prefix + WHAT_FOLLOWS[code]
                    marks = [[len(text) - 3, len(text) - 1, "colour"]] if number == 2 else []
                    found.append({
                        "run": record.run, "language": code, "variant": variant, "text": text, "marks": marks,
                        "right": not wrong and not marks, "language_right": not wrong,
                    })  # fmt: skip
        png = base64.b64encode(stream.getvalue()).decode("ascii")
        pictures.append({"key": f"00000000{number}", "png_base64": png, "truth": SENTENCES["en"], "captions": found})
    return {"pictures": pictures}


def write_study(folder: Path, records: list[RunRecord]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_run_records(folder / "runs.jsonl", records)
    config = {"name": "simulated", "world": {"coverage": COVERAGE.model_dump(mode="json")}}
    (folder / "study.json").write_text(json.dumps({"config": config, "hash": "abc123"}))
    (folder / "gallery.json").write_text(json.dumps(make_gallery(), ensure_ascii=False))
    kinds = {"world": 20.0, "base": 120.5, "train": 700.0, "loss": 60.0, "captions": 100.0}
    steps = [{"name": f"{k}/x", "kind": k, "size": "", "units": 10.0, "seconds": s} for k, s in kinds.items()]
    sessions = [{"started": 1, "seconds": 540.0, "workers": 2}]
    timing = {"steps": steps, "core_seconds": kinds, "wall_seconds": 540.0, "sessions": sessions}
    (folder / "timing.json").write_text(json.dumps(timing))
    return folder


@pytest.fixture(scope="session")
def records() -> list[RunRecord]:
    return make_records()


@pytest.fixture(scope="session")
def study_folder(tmp_path_factory: pytest.TempPathFactory, records: list[RunRecord]) -> Path:
    return write_study(tmp_path_factory.mktemp("study"), records)
