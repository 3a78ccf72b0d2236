"""Starts a server on a socket of its own, on this machine alone unless told otherwise, and says where it is."""

import errno
import socket
from collections.abc import Callable

import uvicorn

from babelcap.app.limits import Limits
from babelcap.app.serve.gate import LOCAL_HOSTS, Asgi, Gate
from babelcap.errors import UserError

LOCAL = ("127.0.0.1", "localhost", "::1")
KEEP_ALIVE_SECONDS = 5
SHUTDOWN_SECONDS = 5


def open_socket(host: str, port: int) -> socket.socket:
    """Bound before a model is loaded, so that a port in use is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(512)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is in use; choose another with --port, or 0 for any that is free") from None
        raise UserError(f"{host}:{port} cannot be used ({error.strerror or error})") from None
    except OverflowError:
        bound.close()
        raise UserError(f"port is {port}; it must be from 0 to 65535") from None
    return bound


def address_of(bound: socket.socket, host: str) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{bound.getsockname()[1]}"


def known_hosts(host: str, more: list[str]) -> tuple[str, ...] | None:
    """The names that requests may call the server by; any where it is open to others and no name is given."""
    if host in LOCAL or more:
        return (*LOCAL_HOSTS, *(name.lower() for name in more))
    return None


def run_server(
    app: Asgi, bound: socket.socket, limits: Limits, hosts: tuple[str, ...] | None, at_end: Callable[[], None]
) -> None:
    config = uvicorn.Config(
        Gate(app, limits, hosts),
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        server_header=False,
    )
    try:
        uvicorn.Server(config).run(sockets=[bound])
    except KeyboardInterrupt:
        pass  # asked to leave, and leaving
    finally:
        at_end()
