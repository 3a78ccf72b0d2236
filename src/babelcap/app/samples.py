"""Pictures to start with, for a model that knows drawn scenes and for one that knows photographs: drawn ones."""

from pathlib import Path

from babelcap.world.render import render
from babelcap.world.scenes import Scope, draw_scene, generator

NUM_SAMPLES = 6
SIZE_PX = 256
SCOPE = Scope(num_nouns=12)  # what the shipped captioner was trained on


def draw_samples(folder: Path) -> list[Path]:
    """Scenes of the world that training never drew: other seeds, and a size that shows well."""
    paths = []
    for index in range(NUM_SAMPLES):
        rng = generator(20_26, "app", index)
        path = folder / f"sample-{index + 1}.png"
        render(draw_scene(rng, SCOPE), rng, SIZE_PX).save(path)
        paths.append(path)
    return paths
