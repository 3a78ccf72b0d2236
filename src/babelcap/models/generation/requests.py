"""What is asked of a captioner and what it answers: values that command line, evaluation, benchmarks and app share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TypedDict

from torch import Tensor

from babelcap.coverage import CAPTION, Style, check_style
from babelcap.errors import UserError
from babelcap.languages import PrefixMode, check_prefix_mode
from babelcap.models.checkpoints.processor import ImageSource

OWN_SHORTLIST = "language"  # as allowed tokens: those of the request's language
DEFAULT_BEAMS = 4
MAX_TOP_P = 1.0


@dataclass(frozen=True)
class GenerationSettings:
    """How to search, and what to tell of the result. Requests with equal settings can share a batch."""

    num_beams: int | None = None  # by default 4, or as many as texts are returned; 1 when sampling
    max_new_tokens: int = 128
    num_return_sequences: int = 1  # the best of the search
    temperature: float | None = None  # with this or `top_p`, tokens are drawn
    top_p: float | None = None
    seed: int = 0  # of the draws: same seed, requests and batch size, same texts
    guidance_scale: float | None = None  # by default a caption has the model's own; 1 is none (guidance.py)
    scores: bool = True  # log-probabilities of texts: one more pass over what was generated, all tokens at once
    tokens: bool = False  # the same for each token
    attention: bool = False  # where in the image each token looked

    def __post_init__(self) -> None:
        for name in ("num_beams", "max_new_tokens", "num_return_sequences"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise UserError(f"{name} is {value!r}; it must be a whole number of at least 1")
        if self.temperature is not None and not (math.isfinite(self.temperature) and self.temperature > 0):
            raise UserError(f"temperature is {self.temperature}; it must be greater than 0")
        if self.top_p is not None and not 0 < self.top_p <= MAX_TOP_P:
            raise UserError(f"top_p is {self.top_p}; it must be greater than 0 and at most 1")
        if self.guidance_scale is not None:
            if not (math.isfinite(self.guidance_scale) and self.guidance_scale > 0):
                raise UserError(f"guidance_scale is {self.guidance_scale}; it must be greater than 0, and 1 is none")
            if self.is_sampled and self.guidance_scale != 1:
                raise UserError("guidance_scale leads a search; it cannot be combined with temperature or top_p")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed is {self.seed}; it must be a whole number from 0 to 2**63 - 1")
        if self.num_return_sequences > self.beams and not (self.is_sampled and self.beams == 1):
            raise UserError(
                f"num_return_sequences is {self.num_return_sequences}, num_beams {self.beams}; a search returns at "
                "most one text for each beam"
            )

    @property
    def is_sampled(self) -> bool:
        return self.temperature is not None or self.top_p is not None

    @property
    def beams(self) -> int:
        return self.num_beams or (1 if self.is_sampled else max(DEFAULT_BEAMS, self.num_return_sequences))

    def arguments(self) -> dict[str, int | float | bool]:
        """What transformers' generate calls them."""
        found: dict[str, int | float | bool] = {"num_beams": self.beams, "max_new_tokens": self.max_new_tokens}
        if self.num_return_sequences > 1:
            found["num_return_sequences"] = self.num_return_sequences
        if self.is_sampled:
            found |= {"do_sample": True, "temperature": self.temperature or 1.0, "top_p": self.top_p or 1.0, "top_k": 0}
        return found


@dataclass(frozen=True, eq=False)
class GenerationRequest:
    """One text that is wanted of one image, or of none."""

    language: str
    task: str = CAPTION
    image: ImageSource | None = None
    image_features: Tensor | None = None  # [image tokens, width], as `encode_images` gives them, in the image's place
    source: str | None = None  # the text that the task needs beside the image
    style: Style | str = Style.SHORT
    prefix: PrefixMode = "auto"  # auto: where the model was never trained on this task in this language
    prefix_text: str | None = None  # a text of one's own to continue, whatever `prefix` says
    allowed_tokens: str | Sequence[int] | Tensor | None = None  # "language", a language's code, or token ids
    settings: GenerationSettings = GenerationSettings()
    key: str = ""  # the caller's own name for it, handed back

    def __post_init__(self) -> None:
        check_prefix_mode(self.prefix)
        check_style(self.style)
        if self.image is not None and self.image_features is not None:
            raise UserError("image and image_features are both given; one stands in the other's place")
        if self.source is not None and not self.source.strip():
            raise UserError("the text is empty; there is nothing to translate")


class RequestOptions(TypedDict, total=False):
    """What `caption` and `translate` take beside images, texts and languages: fields of the two above."""

    style: Style | str
    prefix: PrefixMode
    prefix_text: str | None
    allowed_tokens: str | Sequence[int] | Tensor | None
    num_beams: int | None
    max_new_tokens: int
    num_return_sequences: int
    temperature: float | None
    top_p: float | None
    seed: int
    guidance_scale: float | None
    scores: bool
    tokens: bool
    attention: bool


SETTING_NAMES = frozenset(field.name for field in fields(GenerationSettings))


@dataclass(frozen=True)
class Score:
    """Log-probability of the tokens that the model chose, the end among them; what it was given does not count."""

    total: float
    mean: float
    num_tokens: int


@dataclass(frozen=True)
class Token:
    token_id: int
    text: str  # the texts of all tokens, joined, are the whole text
    log_probability: float
    is_given: bool  # part of the prefix


@dataclass(frozen=True, eq=False)
class GeneratedText:
    text: str  # the whole text, prefix included unless it is a label that ends with a colon
    without_prefix: str  # what follows the prefix, which may end inside a word: for scoring only
    score: Score | None = None
    tokens: tuple[Token, ...] = ()
    attention: Tensor | None = None  # [tokens, rows, columns]: of each token's attention, the share at each place


@dataclass(frozen=True, eq=False)
class GenerationResult:
    request: GenerationRequest
    prefix: str  # what the decoder was started with
    texts: tuple[GeneratedText, ...]  # as many as were asked for, best first
    language_found: str | None = None  # the code of the language that the text is in, where that can be told
    is_in_language: bool | None = None  # whether that is the one asked for; None: cannot be told
    num_tokens_cut: int = 0  # of a source that is longer than the model reads, the tokens that it did not read

    @property
    def text(self) -> str:
        return self.texts[0].text

    @property
    def without_prefix(self) -> str:
        return self.texts[0].without_prefix

    @property
    def score(self) -> Score | None:
        return self.texts[0].score

    @property
    def tokens(self) -> tuple[Token, ...]:
        return self.texts[0].tokens

    @property
    def attention(self) -> Tensor | None:
        return self.texts[0].attention

    @property
    def alternatives(self) -> tuple[GeneratedText, ...]:
        return self.texts[1:]


NumberedRequest = tuple[int, GenerationRequest]
OnBadImage = Callable[[GenerationRequest, UserError], None]
Found = dict[int, GenerationResult | None]  # by the requests' numbers; None for one whose image cannot be used
