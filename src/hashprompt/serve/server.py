"""Runs the application: the socket, uvicorn, and clients that hold the line."""

import asyncio
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from hashprompt.errors import UserError
from hashprompt.serve.app import create_app
from hashprompt.serve.http.guard import HEADER_BYTES
from hashprompt.serve.http.request_log import log_to_stderr
from hashprompt.serve.service import Service
from hashprompt.serve.settings import ServeSettings

HEADER_SECONDS = 15.0  # in which they must have arrived
KEEP_ALIVE = 10  # seconds that a line may be idle between two requests
BACKLOG = 512  # lines that wait to be taken
EVERYWHERE = {  # hosts that stand for all addresses -> an address that nobody has
    "0.0.0.0": (socket.AF_INET, "192.0.2.1"),
    "::": (socket.AF_INET6, "2001:db8::1"),
}
GRACE = 3  # seconds for answers that are on their way when the server stops


class ImpatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, but who does not send a whole request in time is hung up on.

    Where all places are taken, the line that has asked nothing for longest goes at once: who only
    holds lines keeps nobody out.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._make_room()
        self._wait_for_request()

    def _make_room(self) -> None:
        lines = [line for line in self.connections if isinstance(line, ImpatientProtocol)]
        open_lines = [line for line in lines if not line.transport.is_closing()]
        if self.limit_concurrency is None or len(open_lines) < self.limit_concurrency:
            return
        silent = [line for line in open_lines if line is not self and line.is_silent]
        if silent:
            min(silent, key=lambda line: line.since).transport.close()

    @property
    def is_silent(self) -> bool:
        """Whether no request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_request()

    def _wait_for_request(self) -> None:
        before, self.since = self.cycle, self.loop.time()
        self.loop.call_later(HEADER_SECONDS, self._hang_up_unless_asked, before)

    def _hang_up_unless_asked(self, before: Any) -> None:
        if self.cycle is before and not self.transport.is_closing():
            self.transport.close()


def new_token() -> str:
    return secrets.token_urlsafe(24)


def serve(settings: ServeSettings, port: int, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C.

    Args:
        port: 0 for any that is free.
        say: prints a line.

    Raises:
        UserError: if the folder is no classifier or in use, or the address cannot be had.
    """
    if settings.token is None and not settings.is_local:
        settings = replace(settings, token=new_token())
    listening = listen(settings.host, port)
    log_to_stderr()
    service = Service(settings)
    service.start()  # here, since uvicorn would tell as a traceback what is wrong
    host = reachable(settings.host)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    say(f"Serving {settings.folder} at {address} (Ctrl-C stops).")
    if settings.token:
        say(f"Open {address}?token={settings.token} (the token is not shown again).")
    try:
        uvicorn_server(create_app(service), settings).run([listening])
    finally:
        service.stop()


def reachable(host: str) -> str:
    """An address or name to open on another machine; of all addresses, the one that leads out."""
    if host not in EVERYWHERE:
        return host
    family, elsewhere = EVERYWHERE[host]
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((elsewhere, 9))  # sends nothing: the system says which way it would go
        return str(probe.getsockname()[0])
    return socket.gethostname()


def uvicorn_server(app: ASGIApp, settings: ServeSettings) -> uvicorn.Server:
    """What speaks HTTP, with bounds on all that a client can make it wait for."""
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=settings.limits.connections,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=HEADER_BYTES,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; port 0 is any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)  # who is told the address may come at once
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"Cannot listen at {host}, port {port}: {reason}. Choose another --port (0: any)."
        ) from error
    return listening
