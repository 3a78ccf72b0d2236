"""The routes: captions and translations as JSON or as a form, OpenAI's dialect, health, and a page that explains them.

Every refusal has the same form, `{"error": {"message", "type", "code"}}`, and says in words what to do.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, File, Form, UploadFile
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from PIL import Image
from pydantic import BaseModel, ValidationError

from babelcap.app.engine import Engine
from babelcap.app.limits import TooLarge, TooSlow
from babelcap.app.pictures import from_base64, model_square
from babelcap.app.serve.chat import ChatAnswer, ChatAsked, chat_answer, chat_events, chat_request, read_wish
from babelcap.app.serve.reference import reference_page
from babelcap.app.serve.refusals import REFUSALS, add_refusals
from babelcap.app.serve.schemas import (
    Answer,
    Asked,
    CaptionAsked,
    Health,
    ResultGiven,
    TranslationAsked,
)
from babelcap.data.feed.image_sources import fetch_image, is_url
from babelcap.errors import BadSample, UserError
from babelcap.models import GenerationRequest, GenerationResult, GenerationSettings
from babelcap.models.inference import languages_of, translation_requests
from babelcap.version import VERSION

Kind = TypeVar("Kind", bound=BaseModel)
ABOUT = (
    "Captions of pictures and translations of texts beside their picture, in the languages of one captioner. "
    "Requests that arrive together run together."
)


@dataclass(frozen=True)
class ServeOptions:
    model_name: str = "babelcap"
    allow_urls: bool = False  # whether the server may fetch pictures from addresses that a client names


class Served:
    """What the routes share: the engine, and how a picture and a request come to it."""

    def __init__(self, engine: Engine, options: ServeOptions) -> None:
        self.engine, self.options = engine, options

    async def picture(self, image: str | bytes) -> Image.Image:
        limits, size_px = self.engine.limits, self.engine.size_px

        def opened() -> Image.Image:
            return model_square(image if isinstance(image, bytes) else self._content(image), limits, size_px)

        return await run_in_threadpool(opened)

    def _content(self, image: str) -> bytes:
        if not is_url(image):
            return from_base64(image)
        if not self.options.allow_urls:
            raise UserError("image: this server fetches nothing; send the picture itself, as base64 or a data address")
        try:
            return fetch_image(image, self.engine.limits.max_upload_bytes, self.engine.limits.timeout_seconds)
        except BadSample as error:
            raise UserError(f"image: {error}") from None

    async def results(self, requests: list[GenerationRequest]) -> list[GenerationResult]:
        limits = self.engine.limits
        for request in requests:
            settings = request.settings
            if settings.max_new_tokens > limits.max_new_tokens or settings.beams > limits.max_beams:
                raise TooLarge(
                    f"at most {limits.max_new_tokens} new tokens and {limits.max_beams} beams are allowed here"
                )
            if len(request.source or "") > limits.max_text_characters:
                raise TooLarge(f"text: more than {limits.max_text_characters} characters; send it in pieces")
        try:
            answer = asyncio.wrap_future(self.engine.submit(requests))
            return await asyncio.wait_for(answer, limits.timeout_seconds)
        except TimeoutError:
            raise TooSlow(f"no answer within {limits.timeout_seconds:g} s, which is the limit") from None

    async def answer(self, requests: list[GenerationRequest]) -> Answer:
        results = await self.results(requests)
        return Answer(model=self.options.model_name, results=[ResultGiven.of_result(result) for result in results])

    async def caption(self, asked: CaptionAsked, image: str | bytes) -> Answer:
        template = GenerationRequest(
            language="",
            style=asked.style,
            prefix=asked.prefix,
            settings=_settings(asked),
            allowed_tokens=_allowed(asked),
        )
        picture = await self.picture(image)
        return await self.answer(
            [replace(template, image=picture, language=code) for code in languages_of(asked.languages)]
        )

    async def translate(self, asked: TranslationAsked, image: str | bytes | None) -> Answer:
        picture = None if not image else await self.picture(image)
        requests = translation_requests(
            None if picture is None else [picture], asked.text, asked.languages, allowed_tokens=_allowed(asked)
        )
        return await self.answer([replace(request, settings=_settings(asked)) for request in requests])

    async def chat(self, asked: ChatAsked) -> ChatAnswer:
        wanted, address = read_wish(asked, self.engine.pipeline.coverage)
        picture = None if address is None else await self.picture(address)
        request = replace(chat_request(asked, wanted), image=picture)
        return chat_answer((await self.results([request]))[0], self.options.model_name)


def _settings(asked: Asked) -> GenerationSettings:
    return GenerationSettings(
        num_beams=asked.num_beams,
        max_new_tokens=asked.max_new_tokens,
        num_return_sequences=asked.num_texts,
        tokens=asked.tokens,
    )


def _allowed(asked: Asked) -> str | None:
    return "language" if asked.shortlist else None


def make_api(engine: Engine, options: ServeOptions) -> FastAPI:
    app = FastAPI(
        title="babelcap",
        version=VERSION,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    served = Served(engine, options)
    add_refusals(app)
    _add_texts(app, served)
    _add_chat(app, served)

    @app.get("/health", summary="Whether the server answers, and how much waits")
    async def health() -> Health:
        codes = [language.code for language in engine.pipeline.coverage.languages]
        return Health(
            model=options.model_name, languages=codes, num_waiting=engine.num_waiting, num_answered=engine.num_answered
        )

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(reference_page(app.openapi(), options.model_name))

    return app


def _add_texts(app: FastAPI, served: Served) -> None:
    @app.post("/caption", responses=REFUSALS, summary="Caption a picture in several languages")
    async def caption(asked: CaptionAsked) -> Answer:
        return await served.caption(asked, asked.image)

    @app.post("/translate", responses=REFUSALS, summary="Translate a text, with its picture where there is one")
    async def translate(asked: TranslationAsked) -> Answer:
        return await served.translate(asked, asked.image)

    @app.post("/caption/upload", responses=REFUSALS, summary="The same as a form, with the picture as a file")
    async def caption_upload(
        image: Annotated[UploadFile, File(description="The picture's file.")],
        language: Annotated[str, Form(description="Codes, as es,zh.", max_length=400)],
        style: Annotated[str, Form(max_length=40)] = "short",
        prefix: Annotated[str, Form(max_length=40)] = "auto",
    ) -> Answer:
        values = {"languages": _codes(language), "style": style, "prefix": prefix, "image": "-"}
        return await served.caption(_validated(CaptionAsked, values), await image.read())

    @app.post("/translate/upload", responses=REFUSALS, summary="The same as a form, with the picture as a file")
    async def translate_upload(
        text: Annotated[str, Form(description="In English.", min_length=1)],
        language: Annotated[str, Form(description="Codes, as de,fr.", max_length=400)],
        image: Annotated[UploadFile | None, File(description="The picture's file; may be left out.")] = None,
    ) -> Answer:
        asked = _validated(TranslationAsked, {"languages": _codes(language), "text": text})
        return await served.translate(asked, None if image is None else await image.read())


def _add_chat(app: FastAPI, served: Served) -> None:
    @app.post(
        "/v1/chat/completions", responses=REFUSALS, response_model=ChatAnswer, summary="As OpenAI's clients speak"
    )
    async def chat(asked: ChatAsked) -> Response | ChatAnswer:
        answer = await served.chat(asked)
        if asked.stream:
            with_usage = asked.stream_options is not None and asked.stream_options.include_usage
            return StreamingResponse(chat_events(answer, with_usage), media_type="text/event-stream")
        return answer

    @app.get("/v1/models", summary="The one model that is served")
    async def models() -> dict[str, Any]:
        entry = {"id": served.options.model_name, "object": "model", "created": 0, "owned_by": "babelcap"}
        return {"object": "list", "data": [entry]}


def _codes(language: str) -> list[str]:
    return [code.strip() for code in language.split(",") if code.strip()]


def _validated(kind: type[Kind], values: dict[str, Any]) -> Kind:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None
