"""How base models are made: a vision tower, an English captioner (Florence-like), language models (Gemma-like)."""

from typing import Self

from pydantic import Field, model_validator

from babelcap.config import ConfigModel, resource

EVEN = {"en": 1.0, "de": 1.0, "fr": 1.0, "es": 1.0, "ru": 1.0, "zh": 1.0}
# Little of the other languages: enough that their words are not noise, as in a model said to be English.
ENGLISH = {"en": 0.9, "de": 0.02, "fr": 0.02, "es": 0.02, "ru": 0.02, "zh": 0.02}
EUROPEAN = {"en": 0.5, "de": 0.15, "fr": 0.125, "es": 0.125, "ru": 0.05, "zh": 0.05}


class BaseConfig(ConfigModel):
    """`variants` give each language's share of the language model's text. All variants are trained for the same number
    of steps, so that they differ in T and in nothing else.
    """

    seed: int = 1000  # far from a corpus' seeds: bases never see its pictures
    variants: dict[str, dict[str, float]] = Field({"english": ENGLISH, "european": EUROPEAN, "balanced": EVEN})
    num_encoder_tokens: int = Field(1000, ge=300)
    num_decoder_tokens: int = Field(4000, ge=700)
    num_pictures: int = Field(10000, ge=1)  # of the tower and of the English captioner
    tower_steps: int = Field(1800, ge=1)
    tower_batch_size: int = Field(64, ge=1)
    tower_learning_rate: float = Field(2e-3, gt=0)
    caption_steps: int = Field(2400, ge=1)  # of the English captioner
    caption_batch_size: int = Field(32, ge=1)
    caption_learning_rate: float = Field(2e-3, gt=0)
    caption_learning_rate_of: dict[str, float] = Field({"xl": 1e-3})  # by letter; at 2e-3 xl does not learn to see
    language_steps: int = Field(2000, ge=1)  # of each language model
    language_batch_size: int = Field(32, ge=1)
    language_learning_rate: float = Field(3e-3, gt=0)
    use_shipped: bool = resource(True)  # take what comes with the package where it was made by the same recipe

    @model_validator(mode="after")
    def _shares_make_sense(self) -> Self:
        for name, shares in self.variants.items():
            if not shares or min(shares.values()) < 0 or sum(shares.values()) <= 0:
                raise ValueError(f"variants.{name}: shares are numbers from 0 on, and not all 0; found {shares}")
            unknown = set(shares) - set(EVEN)
            if unknown:
                raise ValueError(f"variants.{name}: the world speaks {', '.join(EVEN)}, not {', '.join(unknown)}")
        return self

    def for_letter(self, letter: str) -> Self:
        """As a base of this letter is made: with a rate of its own, where it has one."""
        rate = self.caption_learning_rate_of.get(letter, self.caption_learning_rate)
        return self.model_copy(update={"caption_learning_rate": rate})
