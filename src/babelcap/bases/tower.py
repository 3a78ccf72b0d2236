"""The vision tower of the base models in small: a DaViT that is taught what lies in each cell of its map.

Every cell of the 4 x 4 map names the noun, colour, size and count of the thing that covers most of it, and the mean of
all cells names the ground. Captioning alone does not teach a tower this small to see; afterwards it stays frozen.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from transformers import Florence2VisionConfig
from transformers.models.florence2.modeling_florence2 import Florence2VisionBackbone

from babelcap.bases.config import BaseConfig
from babelcap.data.feed.images import square_pixels
from babelcap.jobs.progress import progress
from babelcap.models.sizing.sizes import get_size
from babelcap.world.render import render
from babelcap.world.scenes import COLOURS, COUNTS, GROUNDS, NOUNS, SIZES, Scene, draw_scene, generator

ATTRIBUTES: dict[str, tuple] = {"noun": NOUNS, "colour": COLOURS, "size": SIZES, "count": COUNTS}
IMAGE_SIZE_PX = 64
NUM_CELLS = 4  # a side
MIN_COVERED = 0.08  # of a cell, for a thing to be said to lie in it
WEIGHT_DECAY = 0.05
NOUN_WEIGHT = 2.0  # nouns are much harder to see than anything else
INIT_STD = 0.08  # the default suits widths ten times these
MAX_SHIFT_PX = 2
NOTHING = -100  # the label of a cell without a thing; the noun's own class "nothing" is the last


@dataclass
class Pictures:
    """Pixels [n, 3, 64, 64] as bytes, a label for each attribute and cell [n, 4, 4], and the ground [n]."""

    pixels: Tensor
    cells: dict[str, Tensor]
    grounds: Tensor


def picture_scene(seed: int, purpose: str, number: int) -> Scene:
    """Scenes of training only: no noun is shown in its held-out colour."""
    return draw_scene(generator(seed, f"{purpose}/scene", number))


def labelled_pictures(num_images: int, seed: int, purpose: str = "tower", with_cells: bool = True) -> Pictures:
    pixels = torch.empty(num_images, 3, IMAGE_SIZE_PX, IMAGE_SIZE_PX, dtype=torch.uint8)
    cells = {name: torch.full((num_images, NUM_CELLS, NUM_CELLS), NOTHING) for name in ATTRIBUTES}
    grounds = torch.empty(num_images, dtype=torch.long)
    with progress("drawing for the tower", num_images) as advance:
        for number in range(num_images):
            scene = picture_scene(seed, purpose, number)
            image = render(scene, generator(seed, f"{purpose}/picture", number), IMAGE_SIZE_PX)
            pixels[number] = torch.from_numpy(np.array(image)).permute(2, 0, 1)
            grounds[number] = GROUNDS.index(scene.ground)
            if with_cells:
                covered = cover(scene, image, seed, f"{purpose}/picture", number)
                most = covered.argmax(axis=0)
                for index, thing in enumerate(scene.things):
                    where = torch.from_numpy((most == index) & (covered[index] >= MIN_COVERED))
                    for name, values in ATTRIBUTES.items():
                        cells[name][number][where] = values.index(getattr(thing, name))
            advance(1)
    cells["noun"][cells["noun"] == NOTHING] = len(NOUNS)
    return Pictures(pixels, cells, grounds)


def cover(scene: Scene, image: Image.Image, seed: int, purpose: str, number: int) -> np.ndarray:
    """The share of each cell of the scene's picture that each thing covers [things, 4, 4].

    A thing is where the picture changes when it alone changes its colour: drawing takes the same random numbers.
    """
    shown = np.asarray(image, dtype=np.int16)
    covered = []
    for index, thing in enumerate(scene.things):
        colour = COLOURS[(COLOURS.index(thing.colour) + 1) % len(COLOURS)]
        things = list(scene.things)
        things[index] = thing.model_copy(update={"colour": colour})
        changed = render(
            scene.model_copy(update={"things": tuple(things)}), generator(seed, purpose, number), IMAGE_SIZE_PX
        )
        mask = np.abs(shown - np.asarray(changed, dtype=np.int16)).max(axis=2) > 8
        side = IMAGE_SIZE_PX // NUM_CELLS
        covered.append(mask.reshape(NUM_CELLS, side, NUM_CELLS, side).mean(axis=(1, 3)))
    return np.stack(covered)


class CellHeads(nn.Module):
    """Linear readings of the map, thrown away after training: what they can read, a projection can use."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = {name: len(values) + (name == "noun") for name, values in ATTRIBUTES.items()}
        self.cells = nn.ModuleDict({name: nn.Linear(width, number) for name, number in sizes.items()})
        self.ground = nn.Linear(width, len(GROUNDS))

    def forward(self, maps: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        rows = maps.permute(0, 2, 3, 1)
        return {name: head(rows) for name, head in self.cells.items()}, self.ground(rows.mean(dim=(1, 2)))


def make_tower() -> Florence2VisionBackbone:
    """Untrained; the same for all micro sizes, as they differ in the projection only."""
    vision = dict(get_size("micro-florence-s").vision)
    return Florence2VisionBackbone(Florence2VisionConfig(**vision, initializer_range=INIT_STD))


def train_tower(config: BaseConfig) -> tuple[Florence2VisionBackbone, dict[str, float]]:
    """The tower, and the share of cells read right on pictures it has not seen."""
    pictures = labelled_pictures(config.num_pictures, config.seed)
    torch.manual_seed(config.seed)
    tower = make_tower()
    heads = CellHeads(tower.config.embed_dim[-1])
    parameters = [*tower.parameters(), *heads.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=config.tower_learning_rate, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, config.tower_learning_rate, config.tower_steps, pct_start=0.05
    )
    with progress("training the tower", config.tower_steps) as advance:
        for pixels, cells, grounds in _batches(pictures, config):
            found, ground = heads(tower(pixels).last_hidden_state)
            loss = functional.cross_entropy(ground, grounds)
            for name, logits in found.items():
                weight = NOUN_WEIGHT if name == "noun" else 1.0
                loss = loss + weight * functional.cross_entropy(logits.flatten(0, 2), cells[name].flatten())
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            schedule.step()
            advance(1)
    unseen = labelled_pictures(max(4, config.num_pictures // 10), config.seed, "tower check")
    return tower.eval(), read_cells(tower, heads, unseen)


def _batches(pictures: Pictures, config: BaseConfig) -> Iterator[tuple[Tensor, dict[str, Tensor], Tensor]]:
    """Half of the pictures mirrored, and all shifted a little: a thing stays what it is."""
    draw = torch.Generator().manual_seed(config.seed)
    for _ in range(config.tower_steps):
        chosen = torch.randint(len(pictures.pixels), (config.tower_batch_size,), generator=draw)
        mirrored = torch.rand(config.tower_batch_size, generator=draw) < 0.5
        pixels, cells = normalise(pictures.pixels[chosen]), {n: c[chosen] for n, c in pictures.cells.items()}
        pixels[mirrored] = pixels[mirrored].flip(-1)
        for labels in cells.values():
            labels[mirrored] = labels[mirrored].flip(-1)
        down, right = torch.randint(0, 2 * MAX_SHIFT_PX + 1, (2,), generator=draw).tolist()
        wide = functional.pad(pixels, [MAX_SHIFT_PX] * 4, mode="replicate")
        pixels = wide[:, :, down : down + IMAGE_SIZE_PX, right : right + IMAGE_SIZE_PX].contiguous()
        yield pixels, cells, pictures.grounds[chosen]


def normalise(pixels: Tensor) -> Tensor:
    """As the processor does it for an image of this size."""
    rows = [Image.fromarray(row) for row in pixels.permute(0, 2, 3, 1).numpy()]
    return torch.stack([torch.from_numpy(square_pixels(row, IMAGE_SIZE_PX)) for row in rows])


@torch.inference_mode()
def tower_maps(tower: Florence2VisionBackbone, pixels: Tensor, batch_size: int = 256) -> Tensor:
    """[n, width, 4, 4] of bytes [n, 3, 64, 64]."""
    return torch.cat([tower(normalise(part)).last_hidden_state for part in pixels.split(batch_size)]).clone()


@torch.inference_mode()
def read_cells(tower: Florence2VisionBackbone, heads: CellHeads, pictures: Pictures) -> dict[str, float]:
    tower.eval()
    found, ground = heads(tower_maps(tower, pictures.pixels))
    right = {"ground": float((ground.argmax(-1) == pictures.grounds).float().mean())}
    covered = pictures.cells["colour"] != NOTHING
    for name, logits in found.items():
        right[name] = float((logits.argmax(-1) == pictures.cells[name])[covered].float().mean())
    return right
