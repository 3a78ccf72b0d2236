"""Every refusal in one form, with the code that its reason has, and in words."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from babelcap.app.engine import mistakes_as_words
from babelcap.app.limits import Refused, TooLarge, TooSlow
from babelcap.app.serve.gate import problem
from babelcap.app.serve.schemas import ErrorGiven
from babelcap.errors import UserError, one_line

LOG = logging.getLogger("babelcap.serve")
CODES = {
    400: "What was sent cannot be used; the message says what and why.",
    413: "Too large: bytes, pixels, texts or tokens.",
    422: "A field is missing, of the wrong kind, or unknown.",
    429: "Busy: too many are waiting. Try again after Retry-After seconds.",
    504: "No answer within the time limit.",
}
REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorGiven, "description": words} for code, words in CODES.items()
}


def add_refusals(app: FastAPI) -> None:
    app.add_exception_handler(UserError, _of_user)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(Exception, _of_server)


async def _of_user(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, Refused):
        return problem(str(error), 429, "busy", Refused.seconds)
    if isinstance(error, TooSlow):
        return problem(str(error), 504, "timeout")
    return problem(str(error), 413 if isinstance(error, TooLarge) else 400)


async def _of_validation(request: Request, error: Exception) -> JSONResponse:
    """The first mistake, in one line; what was sent is not sent back."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part)[:60] for part in first["loc"] if part != "body") or "the body"
    code = 400 if first["type"] == "json_invalid" else 422
    return problem(one_line(f"{where}: {first['msg']}"), code)


async def _of_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    answer = problem(one_line(str(error.detail)), error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def _of_server(request: Request, error: Exception) -> JSONResponse:
    LOG.error("%s %s", request.method, request.url.path, exc_info=error)
    return problem(mistakes_as_words(error), 500, "server_error")
