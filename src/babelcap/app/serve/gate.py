"""What stands before the routes: bodies bounded one by one and together, hosts known, nothing loaded from elsewhere."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from babelcap.app.limits import MIB, Limits, Refused

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
POLICY = (
    b"default-src 'self' 'unsafe-inline' data: blob:; frame-ancestors 'self'; object-src 'none'; base-uri 'self'; "
    b"script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; form-action 'self'"
)
HEADERS = [
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


def problem(message: str, code: int, kind: str = "invalid_request_error", seconds: int | None = None) -> JSONResponse:
    headers = {} if seconds is None else {"Retry-After": str(seconds)}
    return JSONResponse({"error": {"message": message, "type": kind, "code": code}}, code, headers)


class BodyTooLarge(HTTPException):
    """An HTTP error, which a framework that reads a body lets through."""

    def __init__(self, limits: Limits) -> None:
        limit = f"{limits.max_upload_bytes / MIB:g} MiB"
        super().__init__(413, f"the request is too large: a picture may have {limit}; give a smaller one")


class Gate:
    """An ASGI layer. A body is counted as it comes, whatever its header says."""

    def __init__(self, app: Asgi, limits: Limits, hosts: tuple[str, ...] | None = LOCAL_HOSTS) -> None:
        """`hosts` are the names that this server answers to: pages elsewhere must not reach it under another name
        that they made point here. None: any."""
        self.app, self.limits, self.hosts = app, limits, hosts
        self.num_bytes_held = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refusal = self._refusal(headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        held, started = 0, False

        async def counted() -> Message:
            nonlocal held
            message = await receive()
            size = len(message.get("body", b""))
            held += size
            self.num_bytes_held += size
            if held > self.limits.max_body_bytes:
                raise BodyTooLarge(self.limits)
            return message

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        try:
            await self.app(scope, counted, with_headers)
        except BodyTooLarge as error:
            if not started:
                await problem(error.detail, 413)(scope, receive, with_headers)
        finally:
            self.num_bytes_held -= held

    def _refusal(self, headers: dict[bytes, bytes]) -> JSONResponse | None:
        if self.hosts is not None and _host_name(headers.get(b"host", b"")) not in self.hosts:
            return problem("this server answers to its own name only; see --allow-host", 403)
        length = headers.get(b"content-length", b"0")
        announced = int(length) if length.isdigit() else 0
        if announced > self.limits.max_body_bytes:
            return problem(BodyTooLarge(self.limits).detail, 413)
        if self.num_bytes_held + announced > self.limits.max_bytes_in_flight and self.num_bytes_held:
            return problem("busy: too much is being sent at once; try again in a moment", 429, "busy", Refused.seconds)
        return None


def _host_name(host: bytes) -> str:
    name = host.decode("latin-1").lower()
    return name.rpartition("]")[0] + "]" if name.startswith("[") else name.partition(":")[0]
