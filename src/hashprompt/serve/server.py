"""The server: the application, its socket, and uvicorn with limits for idle connections."""

import asyncio
import secrets
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from hashprompt import __version__
from hashprompt.errors import UserError, shortened
from hashprompt.serve.http.guard import HEADER_BYTES, Guard
from hashprompt.serve.http.monitoring import log_to_stderr
from hashprompt.serve.http.problems import FAULT, Problem, Refusal, problem_response
from hashprompt.serve.routes import history, learn, pages, predict, review
from hashprompt.serve.service import Service
from hashprompt.serve.settings import ServeSettings

ROUTERS = (predict.router, learn.router, history.router, review.router, pages.router)
HEADER_SECONDS = 15.0  # to receive all headers
KEEP_ALIVE = 10  # seconds between two requests of a connection
GRACE = 3  # seconds to finish answers when the server stops


# The application. ----------------------------------------------------------------------------


def create_app(service: Service) -> Guard:
    """The ASGI application of a service, which has to be `running`."""
    app = FastAPI(
        title="hashprompt serve",
        version=__version__,
        summary="Teach and query an image classifier that keeps learning.",
        docs_url=None,  # FastAPI's own page loads scripts from another site
        redoc_url=None,
        responses={"4XX": {"model": Problem}, "503": {"model": Problem}},
    )
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router)
    app.mount("/static", StaticFiles(packages=[("hashprompt.serve", "page")]))
    for kind in (HTTPException, UserError, RequestValidationError, Exception):
        app.add_exception_handler(kind, _in_words)
    return Guard(app, service.settings, service.metrics)


async def _in_words(request: Request, error: Exception) -> Response:
    """Any error as a `Problem`."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        text = f"{where}: {first['msg']}" if where else str(first["msg"])
        error = Refusal(422, f"The request is not as expected: {shortened(text, 200)}.")
    elif isinstance(error, UserError):
        error = Refusal(400, str(error))
    elif not isinstance(error, HTTPException):  # the guard logs it
        error = Refusal(503, FAULT, 5)
    error.detail = request.app.state.service.settings.for_clients(error.detail)
    return problem_response(error, str(request.state.request_id))


# Connections. --------------------------------------------------------------------------------


class ImpatientProtocol(H11Protocol):
    """HTTP by uvicorn, which closes connections that do not send a complete request in time.

    If no place is left, the connection that has been idle longest is closed at once.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._make_room()
        self._wait_for_request()

    def _make_room(self) -> None:
        others = [one for one in self.connections if isinstance(one, ImpatientProtocol)]
        others = [one for one in others if not one.transport.is_closing()]
        if self.limit_concurrency is None or len(others) < self.limit_concurrency:
            return
        idle = [one for one in others if one is not self and one.is_idle]
        if idle:
            min(idle, key=lambda one: one.since).transport.close()

    @property
    def is_idle(self) -> bool:
        """No request of the connection is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_request()

    def _wait_for_request(self) -> None:
        before, self.since = self.cycle, self.loop.time()
        self.loop.call_later(HEADER_SECONDS, self._close_unless_asked, before)

    def _close_unless_asked(self, before: Any) -> None:
        if self.cycle is before and not self.transport.is_closing():
            self.transport.close()


def uvicorn_server(service: Service) -> uvicorn.Server:
    """The application over HTTP, with limits on everything that a client can delay."""
    config = uvicorn.Config(
        create_app(service),
        http=ImpatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=service.settings.limits.connections,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=HEADER_BYTES,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 stands for any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, dualstack_ipv6=both)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"Cannot listen at {host}, port {port}: {reason}. Choose another --port (0: any)."
        ) from error


def reachable(host: str) -> str:
    """An address or name to open on another machine."""
    if host not in ("0.0.0.0", "::"):  # all addresses
        return host
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing, but the system chooses an own address
        return str(probe.getsockname()[0])
    return socket.gethostname()


def serve(settings: ServeSettings, port: int, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C.

    Args:
        port: 0 for any free one.
        say: prints a line.

    Raises:
        UserError: if the folder is no classifier or in use, or the address is not available.
    """
    if settings.token is None and not settings.is_local:
        settings = replace(settings, token=secrets.token_urlsafe(24))
    listening = listen(settings.host, port)
    log_to_stderr()
    service = Service(settings)
    host = reachable(settings.host)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    # uvicorn sends itself the signal again when it has ended; the service must end, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with service.running():
        say(f"Serving {settings.folder} at {address} (Ctrl-C stops).")
        if settings.token:
            say(f"Open {address}?token={settings.token} (the token is shown only once).")
        uvicorn_server(service).run([listening])
