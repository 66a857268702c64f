"""Large files from the web: resumed where they broke off, complete or not there at all.

Not `pooch`: it begins every download anew, and weights have up to 1.7 GB.
"""

import hashlib
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock

from hashprompt.texts import visible

TIMEOUT = 5.0  # seconds without a byte
IDLE_TRIES = 4  # connections in a row that bring nothing new
PAUSE = 1.0  # seconds between them
CHUNK = 1 << 20

Watch = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all


class DownloadError(Exception):
    """What went wrong, in a few words; the caller knows what the user can do instead."""


@dataclass(frozen=True)
class Source:
    """A file on a server: its address, its size in bytes, the mark of its present version."""

    url: str
    size: int | None = None
    version: str = ""  # "" where the server does not tell


def show_on_terminal(name: str, done: int, total: int | None) -> None:
    """Progress on one line, if somebody is looking."""
    if sys.stderr.isatty():
        whole = f" of {total / 1e6:.0f}" if total else ""
        end = "\n" if done == total else ""
        print(
            f"\r{visible(name)}: {done / 1e6:.0f}{whole} MB", end=end, file=sys.stderr, flush=True
        )


def download(url: str, path: Path, watch: Watch = show_on_terminal) -> None:
    """Download a file unless it is there, trying again where a connection breaks.

    What came before a failure stays beside ``path``, and the next call goes on from there.

    Raises:
        DownloadError: in seconds where there is no connection.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):  # two runs may want it at once
            if not path.exists():
                _download(_look(url), path, watch)
    except OSError as error:  # of the disk: those of the network became DownloadError below
        raise DownloadError(f"cannot write {path} ({error.strerror or error})") from error


def transfer(
    source: Source,
    part: Path,
    tell: Callable[[int, int | None], None],
    timeout: float = TIMEOUT,
) -> None:
    """Append to ``part`` what is missing, over one connection; else begin anew.

    Args:
        tell: told bytes so far and bytes in all.

    Raises:
        DownloadError: if the connection fails or ends early; what came is kept.
    """
    have = file_size(part)
    if have and have == source.size:
        return
    headers = {"Range": f"bytes={have}-", "If-Range": source.version} if have else {}
    response = _open(source.url, {k: v for k, v in headers.items() if v}, timeout)
    if response is None:
        return  # nothing after what is there
    with response, open(part, "ab") as file:
        if have and not _goes_on(response, have):
            file.truncate(0)  # a server that cannot resume sends the whole
        length = response.headers["Content-Length"]
        total = file.tell() + int(length) if length else source.size
        while chunk := _read(response):
            file.write(chunk)
            tell(file.tell(), total)
        done = file.tell()
    if total is not None and done < total:
        raise DownloadError(
            f"the connection broke off after {done} of {total} bytes; they are kept, and the next "
            "try goes on from there"
        )


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_size(path: Path) -> int:
    """Bytes of a file, 0 if it is not there."""
    return path.stat().st_size if path.exists() else 0


def _look(url: str) -> Source:
    # Not a HEAD request: some stores refuse it. Closing the answer early costs next to nothing.
    with _open(url, {}, TIMEOUT) as response:
        length = response.headers["Content-Length"]
        version = response.headers["ETag"] or response.headers["Last-Modified"] or ""
        return Source(url, int(length) if length else None, version)


def _download(source: Source, path: Path, watch: Watch) -> None:
    # The name holds the version, so that parts of two versions are never put together.
    key = hashlib.sha256(f"{source}".encode()).hexdigest()[:12]
    part = path.with_name(f".{path.name}.{key}.part")
    idle = 0
    while True:
        before = file_size(part)
        try:
            transfer(source, part, partial(watch, path.name))
            if source.size not in (None, file_size(part)):
                raise DownloadError("the server sends another file than it announced")
            break
        except DownloadError:
            idle = 0 if file_size(part) > before else idle + 1
            if idle == IDLE_TRIES:
                raise
            time.sleep(PAUSE)
    os.replace(part, path)
    for left_over in path.parent.glob(f".{path.name}.*.part"):  # of versions that are gone
        left_over.unlink()


def _open(url: str, headers: dict[str, str], timeout: float) -> Any:
    """The server's answer; None if it has nothing after the range that was asked for."""
    request = urllib.request.Request(url, headers={"User-Agent": "hashprompt", **headers})
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if headers and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return None
        raise DownloadError(f"the server answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"no connection ({reason})") from error


def _goes_on(response: Any, have: int) -> bool:
    """Whether the answer begins where the file on disk ends."""
    sent = response.headers["Content-Range"] or f"bytes {have}-"
    return response.status == http.client.PARTIAL_CONTENT and sent.startswith(f"bytes {have}-")


def _read(response: Any) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(
            f"the connection broke off ({error or type(error).__name__})"
        ) from error
