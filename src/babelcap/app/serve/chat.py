"""`/v1/chat/completions` as OpenAI's clients speak it: an instruction and a picture in, one text out.

A captioner is no chat model. Of the last user message it reads the picture, and of the words three things: the target
language by its English name or code in the field `language`, "translate" with the text behind a colon or in quotation
marks, and "detail" or "paragraph" for longer captions. Everything else in the words is ignored.
"""

import json
import re
import time
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from babelcap.coverage import CAPTION, TRANSLATION, Coverage, Style
from babelcap.errors import UserError
from babelcap.models import GenerationRequest, GenerationResult, GenerationSettings

QUOTED = re.compile(r"[\"“„«](.+?)[\"”“»]", re.DOTALL)
DEFAULT_MAX_TOKENS = 64


class Open(BaseModel):
    """Clients send more than is read here; what is not known is ignored, as OpenAI does."""

    model_config = ConfigDict(extra="ignore")


class TextPart(Open):
    type: Literal["text"]
    text: str


class ImageAddress(Open):
    url: str = Field(min_length=1, description="data:image/...;base64,..., or an http address where it is allowed.")


class ImagePart(Open):
    type: Literal["image_url"]
    image_url: ImageAddress


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class ChatMessage(Open):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None


class StreamOptions(Open):
    include_usage: bool = False


class ChatAsked(Open):
    model: str = ""
    messages: list[ChatMessage] = Field(min_length=1, max_length=256)
    language: str | None = Field(None, max_length=40, description="Not OpenAI's: the code of the target language.")
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    n: int = Field(1, ge=1, le=8)
    temperature: float | None = Field(None, ge=0, le=2, description="0 or none: beam search.")
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    stream: bool = False
    stream_options: StreamOptions | None = None


class ChatAnswerMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


class ChatChoice(BaseModel):
    index: int
    message: ChatAnswerMessage
    finish_reason: Literal["stop", "length"] = "stop"


class Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int
    total_tokens: int


class ChatAnswer(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class Wanted(BaseModel):
    """What the words ask for."""

    task: str
    language: str
    source: str | None = None
    style: Style = Style.SHORT


def read_wish(asked: ChatAsked, coverage: Coverage) -> tuple[Wanted, str | None]:
    """What is wanted of the last message that a user sent, and the address of the last picture of the conversation."""
    messages = [message for message in asked.messages if message.role == "user"]
    if not messages:
        raise UserError("messages: none is of the role 'user'")
    words = _words(messages[-1])
    addresses = [part.image_url.url for message in messages for part in _parts(message) if part.type == "image_url"]
    address = addresses[-1] if addresses else None
    instruction = QUOTED.sub(" ", words)  # a language that a text speaks of is not the one that is asked for
    if re.search(r"\btranslat", instruction, re.IGNORECASE):
        source = _source(words)
        head = words.replace(source, " ")
        return Wanted(task=TRANSLATION, language=_language(asked, head, coverage), source=source), address
    if address is None:
        raise UserError("messages: no picture; send one as a part of type image_url, or a text to translate")
    style = (
        Style.MORE_DETAILED
        if re.search(r"\bparagraph", instruction, re.IGNORECASE)
        else Style.DETAILED
        if re.search(r"\bdetail", instruction, re.IGNORECASE)
        else Style.SHORT
    )
    return Wanted(task=CAPTION, language=_language(asked, instruction, coverage), style=style), address


def _parts(message: ChatMessage) -> list[TextPart | ImagePart]:
    return message.content if isinstance(message.content, list) else []


def _words(message: ChatMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.text for part in _parts(message) if isinstance(part, TextPart))


def _source(words: str) -> str:
    quoted = QUOTED.search(words)
    found = quoted.group(1) if quoted else words.partition(":")[2]
    if not found.strip():
        raise UserError('messages: no text to translate; write it behind a colon, or in "quotation marks"')
    return found.strip()


def _language(asked: ChatAsked, words: str, coverage: Coverage) -> str:
    if asked.language is not None:
        return coverage.language(asked.language).code
    found = [
        (match.start(), language.code)
        for language in coverage.languages
        if (match := re.search(rf"\b{re.escape(language.name.split()[-1])}\b", words, re.IGNORECASE))
    ]
    return max(found)[1] if found else coverage.source_language  # "from English into German"


def chat_settings(asked: ChatAsked) -> GenerationSettings:
    num_tokens = asked.max_completion_tokens or asked.max_tokens or DEFAULT_MAX_TOKENS
    if not asked.temperature:
        return GenerationSettings(max_new_tokens=num_tokens, num_return_sequences=asked.n)
    return GenerationSettings(
        max_new_tokens=num_tokens,
        num_return_sequences=asked.n,
        temperature=asked.temperature,
        top_p=asked.top_p,
        seed=asked.seed or 0,
    )


def chat_answer(result: GenerationResult, model: str) -> ChatAnswer:
    counts = [text.score.num_tokens for text in result.texts if text.score is not None]
    longest = result.request.settings.max_new_tokens
    choices = [
        ChatChoice(
            index=place,
            message=ChatAnswerMessage(content=text.text),
            finish_reason="length" if text.score is not None and text.score.num_tokens >= longest else "stop",
        )
        for place, text in enumerate(result.texts)
    ]
    usage = Usage(completion_tokens=sum(counts), total_tokens=sum(counts))
    created, name = int(time.time()), f"chatcmpl-{uuid.uuid4().hex}"
    return ChatAnswer(id=name, created=created, model=model, choices=choices, usage=usage)


def chat_events(answer: ChatAnswer, with_usage: bool = False) -> Iterator[str]:
    """The same answer as a stream: a text comes whole, for a beam search knows it only at its end."""
    head: dict[str, Any] = {
        "id": answer.id,
        "object": "chat.completion.chunk",
        "created": answer.created,
        "model": answer.model,
    }
    for choice in answer.choices:
        steps: list[tuple[dict[str, str], str | None]] = [
            ({"role": "assistant", "content": choice.message.content}, None),
            ({}, choice.finish_reason),
        ]
        for delta, reason in steps:
            values = head | {"choices": [{"index": choice.index, "delta": delta, "finish_reason": reason}]}
            yield _event(values)
    if with_usage:
        yield _event(head | {"choices": [], "usage": answer.usage.model_dump()})
    yield "data: [DONE]\n\n"


def _event(values: dict[str, Any]) -> str:
    return f"data: {json.dumps(values, ensure_ascii=False)}\n\n"


def chat_request(asked: ChatAsked, wanted: Wanted) -> GenerationRequest:
    return GenerationRequest(
        language=wanted.language,
        task=wanted.task,
        source=wanted.source,
        style=wanted.style,
        prefix="auto" if wanted.task == CAPTION else "none",
        settings=chat_settings(asked),
    )
