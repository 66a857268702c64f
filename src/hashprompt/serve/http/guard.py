"""Checks and limits of every request, before and after the application answers it.

Starlette and uvicorn limit neither slow clients nor the memory of all uploads together. Starlette's
TrustedHostMiddleware cannot allow addresses in general, which phones in a network need.
"""

import asyncio
import hashlib
import logging
import secrets
import socket
import time
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hashprompt.serve.http.monitoring import Metrics, log
from hashprompt.serve.http.problems import FAULT, Refusal, problem_response, token_page, too_large
from hashprompt.serve.settings import ServeSettings, address_of, is_loopback

COOKIE = "hashprompt_token"
SAFE = ("GET", "HEAD")
METHODS = (*SAFE, "POST", "DELETE", "PUT", "PATCH", "OPTIONS")  # counted by name, others as "?"
ASKING = "/api/ask"
TEACHING = ("/api/teach", "/api/plan")
OPEN_TO_ALL = "/api/health"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob: data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}
MAX_HEADERS, HEADER_BYTES = 100, 32_000  # of a request
DRAINED_BYTES, DRAINED_SECONDS = 8 * 10**6, 2.0


class Guard:
    """An ASGI application around the one that carries requests out.

    Args:
        app: the application.
        settings: of the server.
        metrics: counts requests.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.memory_left = settings.limits.memory_bytes
        own = () if settings.is_local else (settings.host, socket.gethostname())
        self._names = {"localhost", *(name.lower() for name in (*own, *settings.hosts))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()
        else:  # no route takes a websocket
            await self.app(scope, receive, send)

    def check(self, request: HTTPConnection) -> None:
        """
        Raises:
            Refusal: if the request must not be carried out.
        """
        method, path = request.scope["method"], request.scope["path"]
        _check_headers(request.scope)
        self._check_host(request.headers)
        if method not in SAFE:
            _check_origin(request.headers)
        if path != OPEN_TO_ALL and self.settings.token is not None:
            _check_token(request, self.settings.token)
        if self.settings.read_only and method not in SAFE and path != ASKING:
            raise Refusal(403, "This server is read-only (--read-only): no teaching, no edits.")

    def _check_host(self, headers: Headers) -> None:
        """Refuse other names of this address: they get a page around the same-origin policy."""
        given = headers.getlist("host")
        host = _host_name(given[0]) if len(given) == 1 else ""
        is_served = is_loopback(host) if self.settings.is_local else address_of(host) is not None
        if host not in self._names and not is_served:
            raise Refusal(
                403,
                "The Host header does not name this server. Open the address that the server "
                "printed, or start it with --allow-host NAME.",
            )

    def max_bytes(self, path: str) -> int:
        """Size limit of a request's body."""
        limits = self.settings.limits
        if path == ASKING:
            return limits.asked_bytes
        return limits.body_bytes if path in TEACHING else limits.json_bytes


class _Exchange:
    """One request and its answer."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self.guard, self.limits = guard, guard.settings.limits
        self.method, self.path, self.id = scope["method"], scope["path"], secrets.token_hex(8)
        # The answer to HEAD is that to GET; uvicorn leaves out the content.
        state = {**scope.get("state", {}), "request_id": self.id}
        self.scope = {**scope, "state": state, "method": self.method.replace("HEAD", "GET")}
        self.request = HTTPConnection(scope)
        self._receive_next, self._send_next = receive, send
        self.status = 0  # none was sent
        self.started = time.monotonic()
        self.max_bytes = guard.max_bytes(self.path)
        self.received, self.is_received = 0, False
        self.memory = 0  # reserved for photos of a question until it is answered

    async def run(self) -> None:
        guard = self.guard
        try:
            guard.check(self.request)
            self._check_length()
            await guard.app(self.scope, self.receive, self.send)
        except Refusal as refusal:
            await self._refuse(refusal)
        except (Gone, ClientDisconnect):
            log("client gone", request=self.id)
        except asyncio.CancelledError:  # uvicorn stops, and has waited long enough
            self.is_received = True  # as far as it will be
            await self._refuse(Refusal(503, "The server is stopping. Send this again later.", 5))
        except Exception:
            guard.metrics.faults.inc()
            log("fault", logging.ERROR, fault=True, request=self.id, path=self.path)
            await self._refuse(Refusal(503, FAULT, 5))
        finally:
            guard.memory_left += self.memory
            self._log()

    async def _refuse(self, refusal: Refusal) -> None:
        if self.status != 0:
            return
        by_person = "text/html" in self.request.headers.get("accept", "")
        wants_page = refusal.status_code == 401 and self.path == "/" and by_person
        response = token_page() if wants_page else problem_response(refusal, self.id)
        with suppress(Gone):
            await response(self.scope, self._receive_next, self.send)

    def _log(self) -> None:
        method = self.method if self.method in METHODS else "?"
        self.guard.metrics.requests.labels(method, self.status).inc()
        fields: dict[str, Any] = {"request": self.id, "method": method, "path": self.path[:200]}
        fields |= {"status": self.status, "bytes": self.received}
        fields["ms"] = round(1000 * (time.monotonic() - self.started), 1)
        log("request", **fields, client=(self.scope.get("client") or ("",))[0])

    # The body. -----------------------------------------------------------------------------

    def _check_length(self) -> None:
        length = self.request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self.max_bytes:
            raise too_large("The request", self.max_bytes)

    async def receive(self) -> Message:
        """The next part of the body, unless it comes too late or is too much."""
        if self.is_received:
            return await self._receive_next()  # returns when the client is gone
        slow = Refusal(408, "The request arrives too slowly. Send it again.")
        try:
            message = await asyncio.wait_for(self._next(), self.limits.silent_seconds)
        except TimeoutError:
            raise slow from None
        size = len(message.get("body", b""))
        self.received += size
        if self.received > self.max_bytes:
            raise too_large("The request", self.max_bytes)
        if self.path == ASKING:
            self._reserve(size)
        seconds = time.monotonic() - self.started
        if seconds > self.limits.silent_seconds + self.received / self.limits.slowest_bytes:
            raise slow
        return message

    async def _next(self) -> Message:
        message = await self._receive_next()
        self.is_received = not message.get("more_body", False)
        return message

    def _reserve(self, size: int) -> None:
        """Memory for a part of the body."""
        if size > self.guard.memory_left:
            raise Refusal(503, "Too many photos are being answered. Try again soon.", 2)
        self.guard.memory_left -= size
        self.memory += size

    async def _drain(self) -> None:
        """Read what the client still sends: one that is cut off does not see the answer."""
        if "expect" in self.request.headers and not self.received:
            return  # it sends nothing before an answer
        left = DRAINED_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAINED_SECONDS):
                while not self.is_received and left > 0:
                    left -= len((await self._next()).get("body", b""))

    # The answer. ---------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            if self.status >= 400:
                await self._drain()
                if not self.is_received:
                    headers["Connection"] = "close"
            for name, value in {**HEADERS, "Cache-Control": "no-store"}.items():
                headers.setdefault(name, value)
            headers["X-Request-Id"] = self.id
        try:
            await asyncio.wait_for(self._send_next(message), self.limits.silent_seconds)
        except (TimeoutError, OSError) as error:
            raise Gone from error


class Gone(Exception):  # noqa: N818 (nobody is to blame)
    """The client does not read what it is sent."""


def _check_headers(scope: Scope) -> None:
    """Headers that arrive at once; uvicorn limits those that arrive bit by bit."""
    rows = scope["headers"]
    if len(rows) > MAX_HEADERS or sum(len(k) + len(v) for k, v in rows) > HEADER_BYTES:
        raise Refusal(431, "The request has too many headers, or too large ones.")


def _check_origin(headers: Headers) -> None:
    """A page of another site may not make its visitor's browser change something here."""
    is_own = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is not None:  # else it is no browser, or a page of this server
        scheme, _, host = origin.partition("://")
        is_own &= scheme in ("http", "https") and host == headers.get("host")
    if not is_own:
        raise Refusal(403, "The request comes from another site. Use the page of this server.")


def _check_token(request: HTTPConnection, expected: str) -> None:
    kind, _, bearer = request.headers.get("authorization", "").partition(" ")
    tokens = [bearer.strip()] if kind.lower() == "bearer" else []
    tokens += [request.cookies[COOKIE]] if COOKIE in request.cookies else []
    # All of them, and digests of one length: the time this takes reveals nothing of the token.
    digests = [_digest(token) for token in (*tokens, *page_tokens(request))]
    if not any([secrets.compare_digest(digest, _digest(expected)) for digest in digests]):
        raise Refusal(
            401,
            "This server requires its token, which it printed when it started: open "
            "/?token=TOKEN, or send the header `Authorization: Bearer TOKEN`.",
        )


def page_tokens(request: HTTPConnection) -> list[str]:
    """Tokens of `/?token=…`; only of the page, since other addresses are shared and logged."""
    return request.query_params.getlist("token") if request.scope["path"] == "/" else []


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def _host_name(host: str) -> str:
    """Of `name:port`, `1.2.3.4:port` or `[::1]:port`, without the port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower()
