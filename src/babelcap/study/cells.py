"""The trainings that a study's grid names: what differs between two of them, and what each is called."""

from dataclasses import dataclass
from itertools import product

from babelcap.study.blocks import GridBlock
from babelcap.study.config import StudyConfig

MAIN = "main"


@dataclass(frozen=True)
class Cell:
    """A training of the grid."""

    kind: str
    size: str
    base: str
    seed: int
    trial: str = ""
    world_seed: int | None = None  # None: the study's own

    @property
    def slug(self) -> str:
        others = [] if self.world_seed is None or self.trial else [f"w{self.world_seed}"]
        others += [self.trial.replace("=", "-")] if self.trial else [] if self.kind == MAIN else [self.kind]
        return ".".join([self.size, self.base, f"s{self.seed}", *others])


def grid_cells(config: StudyConfig) -> dict[Cell, tuple[int, ...]]:
    """Each training with its budgets; blocks that name the same training add their budgets to it."""
    budgets: dict[Cell, set[int]] = {}
    for block in config.grid:
        for cell in cells_of(block):
            budgets.setdefault(cell, set()).update(block.budgets)
    return {cell: tuple(sorted(found)) for cell, found in budgets.items()}


def cells_of(block: GridBlock) -> list[Cell]:
    return [
        Cell(block.kind, size, base, seed, block.trial, block.world.get("seed"))
        for size, base, seed in product(block.sizes, block.bases, block.seeds)
    ]
