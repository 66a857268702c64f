"""Downloads of large files: resumed after an interruption, and complete or absent.

httpx speaks HTTP. Servers are not trusted: a download takes a limited number of bytes and seconds,
whatever the server sends. (pooch, requests and the client of the hub do not guarantee that.)
"""

import hashlib
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2
from filelock import FileLock
from rich import progress
from rich.console import Console

from hashprompt.errors import UserError, shortened
from hashprompt.storage import files
from hashprompt.texts import visible

TIMEOUT = 5.0  # seconds without a byte
MIN_PACE = 1000  # bytes per second, averaged over PACE_SECONDS
PACE_SECONDS = 60.0
MAX_REDIRECTS = 5
MAX_IDLE_TRIES = 4  # consecutive connections without new bytes
PAUSE = 1.0  # seconds between them
MAX_SIZE = 20 * files.GIGABYTE  # of a file of unknown size
KEEP_FREE = files.GIGABYTE // 10  # bytes of the disk that stay free


class DownloadError(Exception):
    """A short reason for a failed download; the caller adds what the user can do."""


class RefusedError(DownloadError):
    """An error that does not go away by trying again."""


def file_hash(path: Path, kind: str = "sha256") -> str:
    """The checksum of a file."""
    with files.open_file(path) as file:
        return hashlib.file_digest(file, kind).hexdigest()  # type: ignore[arg-type]


def download(url: str, path: Path, max_size: int = MAX_SIZE) -> None:
    """Download a file unless it exists, and try again when a connection breaks.

    After a failure, the received bytes are kept next to ``path``, and the next call resumes.

    Args:
        max_size: allowed size in bytes.

    Raises:
        DownloadError: within seconds if there is no connection.
    """
    try:
        files.make_folder(files.as_given(path.parent))
        # Two runs may need one file.
        with FileLock(files.inside(path.parent, f".{path.name}.lock")):
            if not path.exists():
                with closing(_Client()) as client:
                    _download(client, url, path, max_size)
    except OSError as error:  # of the disk: network errors became DownloadError below
        raise DownloadError(f"cannot write {path} ({error.strerror or error})") from error
    except UserError as error:  # a link in place of a file of ours
        raise DownloadError(str(error)) from error


class _Client:
    """A web client that cuts a connection that delivers too slowly.

    httpx limits the size of headers and the seconds without a byte, but not the total time. A
    server that sends single bytes, even in the headers, could otherwise hold us forever.
    """

    def __init__(self) -> None:
        headers = {"User-Agent": "hashprompt", "Accept-Encoding": "identity"}
        self._http = httpx2.Client(timeout=TIMEOUT, headers=headers)
        self._socket: socket.socket | None = None
        self._closed = threading.Event()
        self._too_slow = ""
        self.received = 0  # bytes since the last look at the pace
        threading.Thread(target=self._watch_pace, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._http.close()

    def _watch_pace(self) -> None:
        while not self._closed.wait(PACE_SECONDS):
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
        raise RefusedError(f"the server leads from {old.scheme} to {shortened(new)}: not followed")


def _content_length(response: httpx2.Response) -> int | None:
    """The announced size of the answer, if there is one."""
    announced = response.headers.get("Content-Length")
    if announced is None or "Transfer-Encoding" in response.headers:  # its end is marked
        return None
    return int(announced)


def _check_answer(response: httpx2.Response, done: int) -> None:
    """Refuse an answer that does not begin where the file on disk ends."""
    if response.status_code not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
        reason = shortened(f"{response.status_code} {response.reason_phrase}")
        raise DownloadError(f"the server answers {reason}")
    begin = f"bytes {done}-"
    if response.status_code == HTTPStatus.PARTIAL_CONTENT and not (
        response.headers.get("Content-Range", begin).startswith(begin)
    ):
        raise DownloadError("the server sends another part of the file than requested")


def _check_size(part: Path, total: int | None, max_size: int) -> None:
    """Refuse a file that is larger than expected, or than the disk has room for."""
    if total is not None and total > max_size:
        raise RefusedError(f"the server announces {total:,} bytes; at most {max_size:,} are taken")
    needed = max(0, (total or 0) - _size_of(part)) + KEEP_FREE
    free = shutil.disk_usage(part.parent).free
    if free < needed:
        sizes = f"needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
        raise RefusedError(f"the disk of {part.parent} is too full: the file {sizes}")


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _bar(name: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on the terminal; call the function with the number of bytes so far."""
    console = Console(stderr=True)
    text = progress.TextColumn("{task.description}", markup=False)
    numbers = (progress.DownloadColumn(), progress.TransferSpeedColumn())
    columns = (text, progress.BarColumn(), *numbers, progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task(visible(name), total=total)
        yield lambda done: bars.update(task, completed=done)


def _download(client: _Client, url: str, path: Path, max_size: int) -> None:
    # Not a HEAD request: some stores refuse it. Closing the answer early costs next to nothing.
    with client.get(url, {}) as response:
        _check_answer(response, 0)
        size = _content_length(response)
        version = response.headers.get("ETag") or response.headers.get("Last-Modified", "")
    # The name holds the version, so that parts of two versions are never joined.
    key = hashlib.sha256(f"{url} {size} {version}".encode()).hexdigest()[:12]
    part = files.inside(path.parent, f".{path.name}.{key}.part")
    _check_size(part, size, max_size)
    if_range = {"If-Range": version} if version else {}
    idle = 0
    with _bar(path.name, size) as show:
        while size is None or size != _size_of(part):
            if _size_of(part) > (size or max_size):  # not of this file
                files.remove_file(part)
            before = _size_of(part)
            headers = {"Range": f"bytes={before}-", **if_range} if before else {}
            try:
                with client.get(url, headers) as response:
                    for done in _receive(client, response, part, size, max_size):
                        show(done)
                break
            except RefusedError:
                raise
            except DownloadError:
                idle = 0 if _size_of(part) > before else idle + 1
                if idle == MAX_IDLE_TRIES:
                    raise
                time.sleep(PAUSE)
    files.rename(part, files.inside(path.parent, path.name))
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}\.part")
    for other in path.parent.iterdir():  # of earlier versions
        if ours.fullmatch(other.name):
            files.remove_file(files.inside(path.parent, other.name))


def _receive(
    client: _Client, response: httpx2.Response, part: files.Target, size: int | None, max_size: int
) -> Iterator[int]:
    """Append the answer to ``part``, or start again where the server cannot resume.

    Yields:
        The bytes so far.

    Raises:
        DownloadError: if the connection fails or ends early; received bytes are kept.
    """
    with files.append_to(part) as file:
        done = file.tell()
        if response.status_code in (HTTPStatus.OK, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
            file.truncate(0)
            done = 0
        _check_answer(response, done)
        length = _content_length(response)
        if length is not None and done + length != size:
            raise DownloadError("the server sends another file than it announced")
        for chunk in response.iter_raw():
            done += len(chunk)
            client.received += len(chunk)
            if done > (max_size if size is None else size):
                raise RefusedError(f"the server sends more than the {size or max_size:,} bytes")
            file.write(chunk)
            _check_size(part, None, max_size)
            yield done
    client.check_pace()  # a cut connection can look like one that ended
    if size is not None and done < size:
        raise DownloadError(f"the connection broke after {done:,} of {size:,} bytes")
