"""The output folder of a run: written by one training at a time; it belongs to one configuration, model and corpus."""

import reprlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from babelcap.config import build_config, differences, write_config
from babelcap.errors import UserError
from babelcap.storage import locked, read_json_object, sweep_partials, write_json
from babelcap.training.config import TrainConfig
from babelcap.training.parallel import World
from babelcap.training.record import versions

LOCK = "run.lock"


@contextmanager
def held_output(config: TrainConfig, hashes: dict[str, str], world: World) -> Iterator[None]:
    """Within the block the output is this run's alone. What is wrong with it all ranks hear."""
    output, refusal = config.output, None
    with ExitStack() as stack:
        if world.is_first:
            try:
                refuse = f"{output}: another training is writing there; wait for it, stop it or choose another output"
                stack.enter_context(locked(output / LOCK, refuse=refuse))
                _claim(config, hashes)
                _sweep(output)
            except UserError as error:
                refusal = str(error)
        refusal = world.tell(refusal)
        if refusal is not None:
            raise UserError(refusal)
        yield


def _claim(config: TrainConfig, hashes: dict[str, str]) -> None:
    described = config.output / "run.json"
    if not described.exists():
        write_config(config.output / "config.json", config)
        write_json(described, hashes | {"seed": config.seed, "versions": versions()})
        return
    before = read_json_object(described)
    for name in ("config_hash", "model_hash", "corpus_hash"):
        if before.get(name) != hashes[name]:
            what = name.removesuffix("_hash") + (_what_differs(config) if name == "config_hash" else "")
            raise UserError(f"{config.output} holds a run of another {what}; choose another output or remove it")


def _sweep(output: Path) -> None:
    """What a killed training left half written; only below its own legs, for the folder may be a user's with more."""
    for path in output.glob(".*.partial"):
        if path.is_file():
            path.unlink()
    for leg in output.glob("budget-*"):
        sweep_partials(leg)


def _what_differs(config: TrainConfig) -> str:
    try:
        before = build_config(TrainConfig, read_json_object(config.output / "config.json"))
    except UserError:
        return ""  # of another version, or gone
    found = differences(before, config)
    if not found:
        return ""
    key, old, new = found[0]
    more = f" (and {len(found) - 1} more: {', '.join(key for key, _, _ in found[1:4])})" if len(found) > 1 else ""
    return f": {key} is {reprlib.repr(old)} there and {reprlib.repr(new)} here{more}"
