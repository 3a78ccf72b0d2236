"""What the API takes and gives, as its schema shows it."""

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from babelcap.coverage import Style
from babelcap.languages import Code
from babelcap.models import GeneratedText, GenerationResult

MAX_LANGUAGES = 64
MAX_NUM_TEXTS = 8
Languages = Annotated[list[Code], Field(min_length=1, max_length=MAX_LANGUAGES)]
Picture = Annotated[str, Field(min_length=1, description="A picture as base64 or as data:image/...;base64,...")]


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    languages: Languages = Field(description="Codes of the target languages.", examples=[["es", "zh"]])
    num_beams: int | None = Field(None, ge=1, description="Beams of the search; 4 where not given.")
    max_new_tokens: int = Field(64, ge=1, description="At most so many tokens a text.")
    num_texts: int = Field(1, ge=1, le=MAX_NUM_TEXTS, description="So many of the best texts of each language.")
    shortlist: bool = Field(False, description="Use each language's shortlist of tokens, where the model has them.")
    tokens: bool = Field(False, description="Tell the probability of each token.")


class CaptionAsked(Asked):
    image: Picture
    style: Style = Style.SHORT
    prefix: Literal["auto", "always", "none"] = Field(
        "auto", description="auto: the language's prefix where the model never learnt to caption in it."
    )


class TranslationAsked(Asked):
    text: str = Field(min_length=1, description="In the model's source language, English unless it was trained so.")
    image: Picture | None = Field(None, description="Tells which meaning is meant. None is allowed.")


class TokenGiven(BaseModel):
    text: str
    probability: float
    is_given: bool = Field(description="Part of the prefix.")


class TextGiven(BaseModel):
    text: str
    mean_log_probability: float | None
    tokens: list[TokenGiven] = []

    @classmethod
    def of(cls, text: GeneratedText) -> "TextGiven":
        tokens = [
            TokenGiven(text=token.text, probability=math.exp(token.log_probability), is_given=token.is_given)
            for token in text.tokens
        ]
        return cls(text=text.text, mean_log_probability=text.score and text.score.mean, tokens=tokens)


class ResultGiven(TextGiven):
    language: str
    prefix: str = Field(description="What the decoder was started with; part of the text.")
    language_found: str | None = Field(description="The language that the text is in, where that can be told.")
    is_in_language: bool | None = Field(description="Whether it is the one asked for; null: cannot be told.")
    num_tokens_cut: int = Field(description="Tokens of a long source text that the model did not read.")
    alternatives: list[TextGiven] = []

    @classmethod
    def of_result(cls, result: GenerationResult) -> "ResultGiven":
        return cls(
            **TextGiven.of(result.texts[0]).model_dump(),
            language=result.request.language,
            prefix=result.prefix,
            language_found=result.language_found,
            is_in_language=result.is_in_language,
            num_tokens_cut=result.num_tokens_cut,
            alternatives=[TextGiven.of(text) for text in result.alternatives],
        )


class Answer(BaseModel):
    model: str
    results: list[ResultGiven]


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    model: str
    languages: list[str]
    num_waiting: int = Field(description="Texts that wait for the model.")
    num_answered: int = Field(description="Texts since the start.")


class Problem(BaseModel):
    message: str
    type: str
    code: int


class ErrorGiven(BaseModel):
    """Every refusal, in the form that OpenAI's clients read too."""

    error: Problem
