"""What a training step cannot do without, at whatever speed: its multiplications, and the memory of what it trains."""

from babelcap.models import Captioner, CaptionerConfig
from babelcap.models.sizing.flops import count_forward, meta_captioner
from babelcap.models.sizing.freezing import apply_policy

POLICY = "pretraining"  # of all training that is measured: the vision tower is frozen
FROZEN = ("vision tower", "projector")


def operations_of_a_step(
    config: CaptionerConfig,
    num_samples: int,
    num_prompt_tokens: int,
    num_target_tokens: int,
    *,
    image_size_px: int | None = None,
    cached: bool = False,
) -> float:
    """Forward once, and twice more for all but what is frozen, which is left out where its features are cached."""
    size_px = image_size_px or config.image_size_px
    macs = count_forward(meta_captioner(config), size_px, num_prompt_tokens, num_target_tokens).macs
    frozen = sum(count for part, count in macs.items() if part in FROZEN)
    return 2.0 * num_samples * (3 * macs["total"] - (3 if cached else 2) * frozen)


def state_bytes(model: Captioner, bytes_of_moments: int = 8) -> int:
    """Weights, of those that train a gradient, and AdamW's two moments; all but moments in float32."""
    trained = apply_policy(model, POLICY)
    return sum(
        parameter.numel() * (4 + (4 + bytes_of_moments if parameter.requires_grad else 0))
        for parameter in trained.parameters()
    )
