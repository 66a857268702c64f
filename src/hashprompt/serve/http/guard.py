"""What every request passes before and after it is carried out."""

import asyncio
import hashlib
import ipaddress
import logging
import secrets
import socket
import time
from contextlib import suppress
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hashprompt.serve.http.metrics import Metrics
from hashprompt.serve.http.problems import FAULT, Refusal, problem_response, token_page
from hashprompt.serve.http.request_log import log
from hashprompt.serve.settings import ServeSettings, is_loopback

COOKIE = "hashprompt_token"
SAFE = ("GET", "HEAD")
METHODS = (*SAFE, "POST", "DELETE", "PUT", "PATCH", "OPTIONS")  # that are counted by their names
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
MOST_HEADERS, HEADER_BYTES = 100, 32_000  # of a request
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
        named = () if settings.is_local else (settings.host, socket.gethostname())
        self._names = {"localhost", *(name.lower() for name in (*named, *settings.hosts))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
                return
            await self.app(scope, receive, send)
            return
        await _Exchange(self, scope, receive, send).run()

    # Checks. -------------------------------------------------------------------------------

    def check(self, scope: Scope) -> None:
        """
        Raises:
            Refusal: if the request is not to be carried out.
        """
        headers = Headers(scope=scope)
        method, path = scope["method"], scope["path"]
        _check_headers(scope)
        self._check_host(headers)
        if method not in SAFE:
            _check_origin(headers)
        if path != OPEN_TO_ALL:
            self._check_token(scope, headers)
        if self.settings.read_only and method not in SAFE and path != ASKING:
            raise Refusal(403, "This server only answers (--read-only): nothing can be changed.")

    def _check_host(self, headers: Headers) -> None:
        """A name that leads here, but is not ours, is a trick to get around the browser's rules."""
        given = headers.getlist("host")
        host = _host_name(given[0]) if len(given) == 1 else ""
        if host in self._names or (is_loopback(host) and self.settings.is_local):
            return
        if not self.settings.is_local and _is_address(host):
            return
        raise Refusal(
            403,
            "The Host header does not name this server. Open it by the address that it printed, or "
            "start it with --allow-host NAME.",
        )

    def _check_token(self, scope: Scope, headers: Headers) -> None:
        if self.settings.token is None or self.is_known(_tokens(scope, headers)):
            return
        raise Refusal(
            401,
            "This server wants its token, which it printed when it started: open /?token=TOKEN, or "
            "send the header `Authorization: Bearer TOKEN`.",
        )

    def is_known(self, tokens: list[str]) -> bool:
        """Whether one of them is the token; how long this takes tells nothing about it."""
        expected = _digest(self.settings.token or "")
        found = [secrets.compare_digest(_digest(token), expected) for token in tokens]
        return any(found)

    def most_bytes(self, path: str) -> int:
        """That a body may have."""
        limits = self.settings.limits
        if path == ASKING:
            return limits.asked_bytes
        return limits.body_bytes if path in TEACHING else limits.json_bytes


class _Exchange:
    """One request and its answer."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self.guard, self.scope = guard, scope
        self._receive_next, self._send_next = receive, send
        self.id = secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = self.id
        self.is_head = scope["method"] == "HEAD"
        self.status = 0  # none was sent
        self.limits = guard.settings.limits
        self.started = time.monotonic()
        self.most = guard.most_bytes(scope["path"])
        self.received, self.is_received = 0, False

    async def run(self) -> None:
        guard = self.guard
        try:
            guard.check(self.scope)
            self._check_length()
            # What HEAD asks for is what GET would give, without the content.
            scope = {**self.scope, "method": "GET"} if self.is_head else self.scope
            await guard.app(scope, self.receive, self.send)
        except Refusal as refusal:
            await self._refuse(refusal)
        except (Gone, ClientDisconnect):
            log("client gone", request=self.id)
        except Exception:
            guard.metrics.count("faults_total")
            log("fault", logging.ERROR, fault=True, request=self.id, path=self.scope["path"])
            await self._refuse(Refusal(503, FAULT, 5))
        finally:
            self._log()

    async def _refuse(self, refusal: Refusal) -> None:
        if self.status == 0:
            response: Response = problem_response(refusal, self.id)
            by_person = "text/html" in Headers(scope=self.scope).get("accept", "")
            if refusal.status_code == 401 and self.scope["path"] == "/" and by_person:
                response = token_page()
            with suppress(Gone):
                await response(self.scope, self._receive_next, self.send)

    async def _drain(self) -> None:
        """Let a client send what it has begun: one that is cut off does not hear the answer."""
        if "expect" in Headers(scope=self.scope) and not self.received:
            return  # it waits for a word before it sends
        left = DRAINED_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAINED_SECONDS):
                while not self.is_received and left > 0:
                    message = await self._receive_next()
                    left -= len(message.get("body", b""))
                    self._note_end(message)

    def _log(self) -> None:
        method = self.scope["method"] if self.scope["method"] in METHODS else "?"
        labels = f'method="{method}",status="{self.status}"'
        self.guard.metrics.count("requests_total", labels)
        log(
            "request",
            request=self.id,
            method=method,
            path=self.scope["path"][:200],
            status=self.status,
            ms=round(1000 * (time.monotonic() - self.started), 1),
            bytes=self.received,
            client=(self.scope.get("client") or ("",))[0],
        )

    # What comes in. ------------------------------------------------------------------------

    def _check_length(self) -> None:
        length = Headers(scope=self.scope).get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > self.most:
            raise self._too_large()

    def _too_large(self) -> Refusal:
        return Refusal(
            413, f"The request is too large: at most {self.most / 1e6:,.0f} MB are taken at a time."
        )

    async def receive(self) -> Message:
        """The next part of the body, if it comes soon enough and is not too much."""
        if self.is_received:
            return await self._receive_next()  # waits until the client is gone
        try:
            message = await asyncio.wait_for(self._receive_next(), self.limits.silent_seconds)
        except TimeoutError:
            raise self._too_slow() from None
        self.received += len(message.get("body", b""))
        self._note_end(message)
        if self.received > self.most:
            raise self._too_large()
        seconds = time.monotonic() - self.started
        if seconds > self.limits.silent_seconds + self.received / self.limits.slowest_bytes:
            raise self._too_slow()
        return message

    def _note_end(self, message: Message) -> None:
        self.is_received = not message.get("more_body", False)

    def _too_slow(self) -> Refusal:
        return Refusal(408, "The request arrives too slowly. Send it again.")

    # What goes out. ------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            if self.status >= 400:
                await self._drain()
                if not self.is_received:
                    headers["Connection"] = "close"
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
            headers["X-Request-Id"] = self.id
        elif self.is_head:
            message = {**message, "body": b""}
        try:
            await asyncio.wait_for(self._send_next(message), self.limits.silent_seconds)
        except (TimeoutError, OSError) as error:
            raise Gone from error


class Gone(Exception):  # noqa: N818 (nobody is to blame)
    """The client does not read what it is sent."""


def _check_headers(scope: Scope) -> None:
    """Of a flood that came at once; one that comes bit by bit, uvicorn ends."""
    rows = scope["headers"]
    if len(rows) > MOST_HEADERS or sum(len(k) + len(v) for k, v in rows) > HEADER_BYTES:
        raise Refusal(431, "The request has too many headers, or too large ones.")


def _check_origin(headers: Headers) -> None:
    """A page of another site may not make its visitor's browser change something here."""
    refusal = Refusal(403, "The request comes from another site. Use the page of this server.")
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise refusal
    origin = headers.get("origin")
    if origin is None:  # no browser, or a page of ours
        return
    scheme, separator, host = origin.partition("://")
    if not separator or scheme not in ("http", "https") or host != headers.get("host"):
        raise refusal


def _tokens(scope: Scope, headers: Headers) -> list[str]:
    """Wherever a request may bring its token."""
    found = []
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        found.append(bearer.strip())
    # `SimpleCookie` stops at the first malformed one, which may be another program's.
    cookies = cookie_parser(headers.get("cookie", ""))
    found += [cookies[COOKIE]] if COOKIE in cookies else []
    return found + page_tokens(scope)


def page_tokens(scope: Scope) -> list[str]:
    """What `/?token=…` brings, of the page alone: other addresses are shared and logged."""
    if scope["path"] != "/":
        return []
    with suppress(ValueError):  # too many fields
        return parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=10).get("token", [])
    return []


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def _host_name(host: str) -> str:
    """Of `name:port`, `1.2.3.4:port` or `[::1]:port`, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
