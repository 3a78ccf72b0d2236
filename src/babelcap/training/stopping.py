"""Early stopping: budgets that branch off one trunk are trained in turn, until longer ones are no better.

loss of a budget = mean over the seen caption languages of the raw cross-entropy on the held-out split
"""

from collections.abc import Sequence

from babelcap.coverage import CAPTION, Coverage
from babelcap.errors import UserError
from babelcap.measures import LOSS
from babelcap.records import EvalResult
from babelcap.storage import write_json
from babelcap.training.config import StoppingConfig, TrainConfig
from babelcap.training.progress import say
from babelcap.training.schedule import Leg

BEST = "best.json"


def in_turn(legs: Sequence[Leg]) -> list[Leg]:
    """Each budget as soon as it can be trained: before it, of the trunk, only what it branches off."""
    turns = []
    for leg in legs:
        if leg.parent is not None:
            parent = next(other for other in legs if other.name == leg.parent)
            turns.append(parent._replace(end=leg.start))
        if leg.budget is not None:
            turns.append(leg)
    return turns


def seen_caption_loss(results: Sequence[EvalResult], coverage: Coverage, split: str) -> float:
    found = next((result for result in results if (result.measure, result.split) == (LOSS, split)), None)
    pairs = [str(pair) for pair in coverage.pairs_of(CAPTION, seen=True)]
    losses = [found.per_pair[pair] for pair in pairs if pair in found.per_pair] if found is not None else []
    if not losses:
        raise UserError(f"stopping: no loss of {', '.join(pairs) or 'seen captions'} on split '{split}' was measured")
    return sum(losses) / len(losses)


def best_budget(losses: dict[int, float]) -> int:
    return min(losses, key=lambda budget: (losses[budget], budget))


def is_over(losses: dict[int, float], patience: int) -> bool:
    """Whether so many budgets behind the best were no better."""
    return sum(budget > best_budget(losses) for budget in losses) >= patience


def tell_best(config: TrainConfig, stopping: StoppingConfig, losses: dict[int, float]) -> None:
    best, left = best_budget(losses), [budget for budget in config.budgets if budget not in losses]
    by_budget = {str(budget): loss for budget, loss in losses.items()}
    write_json(config.output / BEST, {"split": stopping.split, "best": best, "losses": by_budget})
    shown = ", ".join(f"{budget}: {loss:.4f}" for budget, loss in losses.items())
    say(f"{config.output}: best are {best} steps ({shown})" + (f"; left out: {left}" if left else ""))
