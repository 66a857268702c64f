"""A request to a web server that may lie, drip or never end: it costs bounded bytes and seconds.

Python's own client follows redirects to any scheme, reads the body of a redirect as long as it
goes on, and waits for ever where a byte comes now and then.
"""

import http.client
import io
import re
import time
import urllib.error
import urllib.request
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from hashprompt.errors import shortened

TIMEOUT = 5.0  # seconds without a byte
SLOWEST = 1000  # bytes a second, on average over
SLOW_SECONDS = 60.0
CHUNK = 1 << 20  # bytes at a time, and the most that headers and redirects may take
REDIRECTS = 5


class DownloadError(Exception):
    """What went wrong, in a few words; the caller knows what the user can do instead."""


class RefusedError(DownloadError):
    """Something that does not get better by trying again."""


class Pace:
    """Raises when less than ``SLOWEST`` bytes a second come, on average over ``SLOW_SECONDS``."""

    def __init__(self) -> None:
        self._since, self._bytes = time.monotonic(), 0

    def came(self, count: int) -> None:
        self._bytes += count
        seconds = time.monotonic() - self._since
        if seconds < SLOW_SECONDS:
            return
        if self._bytes < SLOWEST * seconds:
            raise RefusedError(f"only {self._bytes:,} bytes came in {seconds:.0f} seconds")
        self._since, self._bytes = time.monotonic(), 0


class _Wire(io.RawIOBase):
    """The bytes of a connection, counted below everything that interprets them."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw, self._pace = raw, Pace()
        self.allowed = CHUNK

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self._pace.came(count or 0)
        self.allowed -= count or 0
        if self.allowed < 0:
            raise RefusedError("the server sends more than it may, and no end is in sight")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class Response(http.client.HTTPResponse):
    """The answer of a server, of which ``CHUNK`` bytes are read until more are allowed."""

    def __init__(self, sock: Any, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self._wire = _Wire(self.fp.detach())
        self.fp = io.BufferedReader(self._wire)

    def allow(self, count: int) -> None:
        """Let so many more bytes come."""
        self._wire.allowed += count

    def content_length(self) -> int | None:
        """The announced size of what is sent, None if it is not announced."""
        announced = {text.strip() for text in self.headers.get_all("Content-Length", [])}
        if not announced or self.chunked:  # whose end is marked otherwise
            return None
        text = announced.pop()
        if announced or not re.fullmatch(r"[0-9]{1,18}", text):
            raise RefusedError(f"the server announces no size but `{shortened(text)}`")
        return int(text)

    def next_bytes(self, most: int) -> bytes:
        """What comes next, as soon as something comes; empty at the end."""
        try:
            return self.read1(min(most, CHUNK))
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = shortened(error) or type(error).__name__
            raise DownloadError(f"the connection broke off ({reason})") from error


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = REDIRECTS

    def redirect_request(self, request: Any, *details: Any) -> urllib.request.Request | None:
        old, new = urlsplit(request.full_url).scheme, urlsplit(details[-1]).scheme
        if new != "https" and (new != "http" or old == "https"):
            raise RefusedError(
                f"the server leads from {old} to {shortened(details[-1])}, which is not followed"
            )
        return super().redirect_request(request, *details)


class _Handler(urllib.request.AbstractHTTPHandler):
    """Opens connections whose answers are read at a pace."""

    def _connect(self, kind: type[http.client.HTTPConnection], *args: Any, **options: Any) -> Any:
        connection = kind(*args, **options)
        connection.response_class = Response
        return connection

    def http_open(self, request: Any) -> Any:
        return self.do_open(partial(self._connect, http.client.HTTPConnection), request)

    def https_open(self, request: Any) -> Any:
        return self.do_open(partial(self._connect, http.client.HTTPSConnection), request)

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_


def ask(url: str, headers: dict[str, str], timeout: float) -> Response | None:
    """The server's answer; None if it has nothing after the range that was asked for.

    Raises:
        DownloadError: if there is none that can be used.
    """
    opener = urllib.request.OpenerDirector()  # not `build_opener`: that knows ftp, file and data
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
        _Handler(),
    ):
        opener.add_handler(handler)
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "hashprompt", **headers})
        answer: Response = opener.open(request, timeout=timeout)
        return answer
    except urllib.error.HTTPError as error:
        error.close()
        if headers and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return None
        reason = shortened(error.reason)
        raise DownloadError(f"the server answers {error.code} {reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", None) or error
        reason = shortened(cause) or type(cause).__name__
        raise DownloadError(f"no connection ({reason})") from error
