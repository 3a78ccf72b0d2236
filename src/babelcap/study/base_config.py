"""How base models are made: a vision tower, an English captioner (Florence-like), language models (Gemma-like)."""

from typing import Self

from pydantic import Field, model_validator

from babelcap.config import ConfigModel


class BaseConfig(ConfigModel):
    """`variants` give each language's share of the base's text. All variants are trained for the same number of steps,
    so that they differ in T and in nothing else.
    """

    seed: int = 0
    variants: dict[str, dict[str, float]] = Field(
        {"english": {"en": 1.0}, "balanced": {"en": 1, "de": 1, "fr": 1, "es": 1, "ru": 1, "zh": 1}}
    )
    tower_steps: int = Field(1500, ge=0)
    tower_batch_size: int = Field(64, ge=1)
    tower_learning_rate: float = Field(2e-3, gt=0)
    language_steps: int = Field(600, ge=0)  # of the language model, and of the English captioner's text
    language_batch_size: int = Field(32, ge=1)
    language_learning_rate: float = Field(2e-3, gt=0)
    caption_steps: int = Field(300, ge=0)  # of the English captioner

    @model_validator(mode="after")
    def _shares_make_sense(self) -> Self:
        for name, shares in self.variants.items():
            if not shares or min(shares.values()) < 0 or sum(shares.values()) <= 0:
                raise ValueError(f"variants.{name}: shares are numbers from 0 on, and not all 0; found {shares}")
        return self
