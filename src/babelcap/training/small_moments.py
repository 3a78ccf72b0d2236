"""AdamW whose two moments are kept in bfloat16: 4 bytes a weight in place of 8.

    m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2,
    w = (1 - lr decay) w - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

is computed in float32, some weights at a time. A step changes v by a thousandth, which is less than bfloat16 can tell,
so that v would stand still if it were rounded to the nearest; it is rounded up or down by chance, as likely as it is
near, and is right in the mean. The chance is drawn from (step, number of the parameter), so that a resumed run draws
the same.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

MOMENTS = ("exp_avg", "exp_avg_sq")
NUM_AT_ONCE = {"cpu": 2**18}  # weights: what lies between them stays in the processor's cache
NUM_AT_ONCE_ELSEWHERE = 2**24
NUM_OFFSETS = 2**16
BITS_CUT = 16  # of float32, to be bfloat16


class SmallMomentsAdamW(torch.optim.Optimizer):
    def __init__(
        self, parameters: Iterable[Any], *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float = 0.0
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._chances: dict[torch.device, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        if closure is not None:
            raise ValueError("this optimiser takes no closure")
        number = -1
        for group in self.param_groups:
            for parameter in group["params"]:
                number += 1
                if parameter.grad is not None:
                    self._update(parameter, group, number)

    def _update(self, parameter: Tensor, group: dict[str, Any], number: int) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            for name in MOMENTS:
                state[name] = torch.zeros_like(parameter, dtype=torch.bfloat16)
        state["step"] += 1
        step = int(state["step"])
        beta1, beta2 = group["betas"]
        root = math.sqrt(1 - beta2**step)  # eps moves under it, so that v is not divided
        rate, decay = group["lr"] * root / (1 - beta1**step), 1 - group["lr"] * group["weight_decay"]
        weights, gradients, means, squares = (
            _local(values) for values in (parameter, parameter.grad, *(state[name] for name in MOMENTS))
        )
        flat, gradients, means, squares = weights.view(-1), gradients.reshape(-1), means.view(-1), squares.view(-1)
        size = NUM_AT_ONCE.get(flat.device.type, NUM_AT_ONCE_ELSEWHERE)
        chances = self._drawn(flat.device, size)
        starts = range(0, flat.numel(), size)
        generator = torch.Generator().manual_seed(step * 2**20 + number)
        offsets = torch.randint(NUM_OFFSETS, (len(starts),), generator=generator).tolist()
        for start, offset in zip(starts, offsets, strict=True):
            part = slice(start, min(start + size, flat.numel()))
            gradient = gradients[part].float()
            mean = means[part].float().lerp_(gradient, 1 - beta1)
            square = squares[part].float().mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            if decay != 1:
                flat[part].mul_(decay)
            flat[part].addcdiv_(mean, square.sqrt().add_(group["eps"] * root), value=-rate)
            means[part] = mean
            squares[part] = round_by_chance_(square, chances[offset : offset + len(square)])

    def _drawn(self, device: torch.device, size: int) -> Tensor:
        """The same numbers for all, read from another place each time: drawing them anew takes longer than the step."""
        if device not in self._chances:
            generator = torch.Generator().manual_seed(0)
            drawn = torch.randint(2**BITS_CUT, (size + NUM_OFFSETS,), generator=generator, dtype=torch.int32)
            self._chances[device] = drawn.to(device)
        return self._chances[device]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """torch gives what is loaded the type of the weights; the values are bfloat16's all the same."""
        super().load_state_dict(state_dict)
        for values in self.state.values():
            for name in MOMENTS:
                values[name] = values[name].to(torch.bfloat16)


def round_by_chance_(values: Tensor, chances: Tensor) -> Tensor:
    """float32, in place, to numbers that bfloat16 has: up or down, as likely as it is near. Whole numbers under 2^16
    are added to the bits that are then cut off."""
    values.view(torch.int32).add_(chances).bitwise_and_(-(2**BITS_CUT))
    return values


def _local(values: Tensor) -> Tensor:
    return values.to_local() if isinstance(values, DTensor) else values
