"""A captioner out of a training that is not at its end: what its last checkpoint holds, to be looked at or given on."""

from pathlib import Path

import torch

from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.checkpoints.saving import save_captioner
from babelcap.models.sizing.freezing import apply_policy
from babelcap.training.checkpoint import load_checkpoint, newest_whole
from babelcap.training.config import TrainConfig
from babelcap.training.loop import Progress
from babelcap.training.optimiser import make_optimiser
from babelcap.training.parallel import join_world
from babelcap.training.run import open_run


def export_checkpoint(config: TrainConfig, output: Path) -> int:
    """Writes the captioner, whole or not at all, and returns the step that it was at."""
    with join_world() as world:
        if world.size > 1:
            raise UserError("a checkpoint is exported by one process; start this without torchrun")
        run = open_run(config, world)
        found = [newest_whole(config.output / leg.name / "checkpoints", world) for leg in run.legs]
        place = next((place for place in reversed(found) if place is not None), None)
        if place is None:
            raise UserError(f"{config.output}: has no checkpoint; a finished training has its model beside its record")
        model = load_model(config.model, dtype=torch.float32)
        apply_policy(model, config.policy)
        values = load_checkpoint(place, model, make_optimiser(model, config.optimiser), run.hashes, world)
        learnt = run.config.coverage
        if model.config.coverage is not None:  # of an earlier training, which this one adds to
            learnt = learnt.after(model.config.get_coverage())
        model.config.coverage = learnt.model_dump(mode="json")
        model.config.image_size_px = config.data.image_size_px
        save_captioner(output, model, run.processor)
        return Progress.load(values, place).step
