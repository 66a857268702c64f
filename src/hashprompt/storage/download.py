"""Large files from the web: resumed where they broke off, complete or not there at all.

httpx speaks HTTP; pooch, requests and the hub's client do not resume or trust a server's word. A
server may lie, drip or never end: a download costs bounded bytes and bounded seconds.
"""

import hashlib
import re
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2
from filelock import FileLock

from hashprompt.errors import UserError, shortened
from hashprompt.storage.files import (
    GIGABYTE,
    Target,
    append_to,
    as_given,
    inside,
    make_folder,
    open_file,
    remove_file,
    rename,
)
from hashprompt.texts import visible

TIMEOUT = 5.0  # seconds without a byte
MIN_PACE = 1000  # bytes a second, on average over
PACE_SECONDS = 60.0
MAX_REDIRECTS = 5
MAX_IDLE_TRIES = 4  # connections in a row that bring nothing new
PAUSE = 1.0  # seconds between them
MAX_SIZE = 20 * GIGABYTE  # of a file of which nobody knows how large it is
KEEP_FREE = GIGABYTE // 10  # bytes of the disk that are left to others

Watch = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all


class DownloadError(Exception):
    """What went wrong, in a few words; the caller knows what the user can do instead."""


class RefusedError(DownloadError):
    """Something that does not get better by trying again."""


def show_on_terminal(name: str, done: int, total: int | None) -> None:
    """Progress on one line, if somebody is looking."""
    if sys.stderr.isatty():
        whole = f" of {total / 1e6:.0f}" if total else ""
        end = "\n" if done == total else ""
        text = f"\r{visible(name)}: {done / 1e6:.0f}{whole} MB"
        print(text, end=end, file=sys.stderr, flush=True)


def file_hash(path: Path, kind: str = "sha256") -> str:
    """A checksum of a file's bytes."""
    with open_file(path) as file:
        return hashlib.file_digest(file, kind).hexdigest()  # type: ignore[arg-type]


def download(
    url: str, path: Path, watch: Watch = show_on_terminal, max_size: int = MAX_SIZE
) -> None:
    """Download a file unless it is there, trying again where a connection breaks.

    What came before a failure stays beside ``path``, and the next call resumes from there.

    Args:
        max_size: bytes that the file may have.

    Raises:
        DownloadError: within seconds where there is no connection.
    """
    try:
        make_folder(as_given(path.parent))
        with FileLock(inside(path.parent, f".{path.name}.lock")):  # two runs may want it at once
            if not path.exists():
                with _Client() as client:
                    _download(client, url, path, watch, max_size)
    except OSError as error:  # of the disk: those of the network became DownloadError below
        raise DownloadError(f"cannot write {path} ({error.strerror or error})") from error
    except UserError as error:  # a link in the place of a file of ours
        raise DownloadError(str(error)) from error


class _Client:
    """A web client whose connection is cut when too few bytes come.

    httpx limits the size of headers and the seconds without a byte, but not the seconds in all: a
    byte now and then, in the headers too, would be waited for without end.
    """

    def __init__(self) -> None:
        headers = {"User-Agent": "hashprompt", "Accept-Encoding": "identity"}
        self._http = httpx2.Client(timeout=TIMEOUT, headers=headers)
        self._socket: socket.socket | None = None
        self._left = threading.Event()
        self._too_slow = ""
        self.received = 0  # bytes since the pace was last looked at

    def __enter__(self) -> "_Client":
        threading.Thread(target=self._watch_pace, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._http.close()

    def _watch_pace(self) -> None:
        while not self._left.wait(PACE_SECONDS):
            if self.received < MIN_PACE * PACE_SECONDS:
                self._too_slow = f"only {self.received:,} bytes came in {PACE_SECONDS:g} seconds"
                if self._socket is not None:
                    with suppress(OSError):  # it is closed already
                        self._socket.shutdown(socket.SHUT_RDWR)
            self.received = 0

    def check_pace(self) -> None:
        """Raise if the connection was cut."""
        if self._too_slow:
            raise RefusedError(self._too_slow)

    def _trace(self, event: str, details: Mapping[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._socket = details["return_value"].get_extra_info("socket")

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx2.Response]:
        """The answer to a request, after redirects, whose bodies are not read."""
        extensions = {"trace": self._trace}
        try:
            request = self._http.build_request("GET", url, headers=headers, extensions=extensions)
            for _ in range(MAX_REDIRECTS + 1):
                with closing(self._http.send(request, stream=True)) as response:
                    following = response.next_request
                    if following is None:
                        yield response
                        return
                _check_redirect(request.url, following.url)
                request = following
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            self.check_pace()
            reason = shortened(error) or type(error).__name__
            raise DownloadError(f"the connection failed ({reason})") from error
        raise RefusedError(f"the server redirects more than {MAX_REDIRECTS} times")


def _check_redirect(old: httpx2.URL, new: httpx2.URL) -> None:
    if new.scheme != "https" and (new.scheme != "http" or old.scheme == "https"):
        raise RefusedError(
            f"the server leads from {old.scheme} to {shortened(new)}, which is not followed"
        )


def _content_length(response: httpx2.Response) -> int | None:
    """The announced size of what is sent, None if it is not announced."""
    announced = response.headers.get("Content-Length")
    if announced is None or "Transfer-Encoding" in response.headers:  # whose end is marked
        return None
    return int(announced)


def _check_answer(response: httpx2.Response, done: int) -> None:
    """Refuse an answer that does not begin where the file on disk ends."""
    if response.status_code not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        reason = shortened(f"{response.status_code} {response.reason_phrase}")
        raise DownloadError(f"the server answers {reason}")
    begins = response.headers.get("Content-Range", f"bytes {done}-")
    if response.status_code == HTTPStatus.PARTIAL_CONTENT and not begins.startswith(
        f"bytes {done}-"
    ):
        raise DownloadError("the server sends another part of the file than it was asked for")


def _check_size(part: Path, total: int | None, max_size: int) -> None:
    """Refuse a file that is larger than expected, or than the disk has room for."""
    if total is not None and total > max_size:
        raise RefusedError(
            f"the server announces {total:,} bytes, and at most {max_size:,} are expected"
        )
    needed = max(0, (total or 0) - _size_of(part)) + KEEP_FREE
    free = shutil.disk_usage(part.parent).free
    if free < needed:
        raise RefusedError(
            f"it needs {needed / GIGABYTE:.1f} GB on the disk of {part.parent}, and "
            f"{free / GIGABYTE:.1f} GB are free"
        )


def _size_of(path: Path) -> int:
    """Bytes of a file, 0 if it is not there."""
    return path.stat().st_size if path.exists() else 0


def _download(client: _Client, url: str, path: Path, watch: Watch, max_size: int) -> None:
    # Not a HEAD request: some stores refuse it. Closing the answer early costs next to nothing.
    with client.get(url, {}) as response:
        _check_answer(response, 0)
        size = _content_length(response)
        version = response.headers.get("ETag") or response.headers.get("Last-Modified", "")
    # The name holds the version, so that parts of two versions are never put together.
    key = hashlib.sha256(f"{url} {size} {version}".encode()).hexdigest()[:12]
    part = inside(path.parent, f".{path.name}.{key}.part")
    _check_size(part, size, max_size)
    if_range = {"If-Range": version} if version else {}
    idle = 0
    while size is None or size != _size_of(part):
        if _size_of(part) > (size or max_size):  # not of this file
            remove_file(part)
        before = _size_of(part)
        headers = {"Range": f"bytes={before}-", **if_range} if before else {}
        try:
            with client.get(url, headers) as response:
                _receive(client, response, part, size, partial(watch, path.name), max_size)
            break
        except RefusedError:
            raise
        except DownloadError:
            idle = 0 if _size_of(part) > before else idle + 1
            if idle == MAX_IDLE_TRIES:
                raise
            time.sleep(PAUSE)
    rename(part, inside(path.parent, path.name))
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}\.part")
    for other in path.parent.iterdir():  # of earlier versions
        if ours.fullmatch(other.name):
            remove_file(inside(path.parent, other.name))


def _receive(
    client: _Client,
    response: httpx2.Response,
    part: Target,
    size: int | None,
    watch: Callable[[int, int | None], None],
    max_size: int,
) -> None:
    """Append what comes to ``part``, or begin it again where the server cannot resume.

    Raises:
        DownloadError: if the connection fails or ends early; what came is kept.
    """
    end = max_size if size is None else size
    with append_to(part) as file:
        done = file.tell()
        if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and size is None:
            return  # nothing after what is there
        if response.status_code != HTTPStatus.PARTIAL_CONTENT:
            file.truncate(0)
            done = 0
        _check_answer(response, done)
        length = _content_length(response)
        if length is not None and done + length != size:
            raise DownloadError("the server sends another file than it announced")
        for chunk in response.iter_raw():
            done += len(chunk)
            client.received += len(chunk)
            if done > end:
                raise RefusedError(f"the server sends more than the {end:,} expected bytes")
            file.write(chunk)
            watch(done, size)
            _check_size(part, None, max_size)
    client.check_pace()  # a connection that was cut can look like one that ended
    if size is not None and done < size:
        raise DownloadError(
            f"the connection broke off after {done} of {size} bytes; they are kept, and the next "
            "try resumes from there"
        )
