"""Large files from the web: resumed where they broke off, complete or not there at all."""

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

TIMEOUT = 5.0  # seconds without a byte
IDLE_TRIES = 4  # connections in a row that bring nothing new
PAUSE = 1.0  # seconds between them
CHUNK = 1 << 20


class DownloadError(Exception):
    """What went wrong, in a few words; the caller knows what the user can do instead."""


@dataclass(frozen=True)
class Remote:
    """A file on a server: its address, the mark of its present version, its size in bytes."""

    url: str
    version: str  # "" where the server does not tell
    size: int | None


def fetch(url: str, path: Path) -> None:
    """Download a file unless it is there.

    What came before a failure stays beside ``path``, and the next call goes on from there.

    Raises:
        DownloadError: in seconds where there is no connection.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):  # two runs may want it at once
            if not path.exists():
                _download(_look(url), path)
    except OSError as error:  # of the disk: those of the network became DownloadError below
        raise DownloadError(f"cannot write {path} ({error.strerror or error})") from error


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _look(url: str) -> Remote:
    # Not a HEAD request: some stores refuse it. Closing the answer early costs next to nothing.
    with _open(url, {}) as response:
        length = response.headers["Content-Length"]
        version = response.headers["ETag"] or response.headers["Last-Modified"] or ""
        return Remote(url, version, int(length) if length else None)


def _download(remote: Remote, path: Path) -> None:
    # The name holds the version, so that parts of two versions are never put together.
    key = hashlib.sha256(f"{remote}".encode()).hexdigest()[:12]
    part = path.with_name(f".{path.name}.{key}.part")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    bars = Progress(
        *columns, TransferSpeedColumn(), console=console, disable=not console.is_terminal
    )
    with bars:
        bar = bars.add_task(path.name, total=remote.size)
        idle, ended = 0, False
        while not ended:
            before = _size(part)
            try:
                ended = _transfer(remote, part, lambda done: bars.update(bar, completed=done))
            except DownloadError:
                idle = 0 if _size(part) > before else idle + 1
                if idle == IDLE_TRIES:
                    raise
                time.sleep(PAUSE)
    os.replace(part, path)
    for left_over in path.parent.glob(f".{path.name}.*.part"):  # of versions that are gone
        left_over.unlink()


def _transfer(remote: Remote, part: Path, tell: Callable[[int], None]) -> bool:
    """Append what is missing, as far as one connection brings it; True when all is there."""
    have = _size(part)
    if remote.size is not None and have == remote.size:
        return True
    headers = {"Range": f"bytes={have}-", "If-Range": remote.version} if have else {}
    with (
        _open(remote.url, {k: v for k, v in headers.items() if v}) as response,
        open(part, "ab") as file,
    ):
        sent = response.headers["Content-Range"] or ""
        if have and not sent.startswith(f"bytes {have}-"):
            file.truncate(0)  # a server that cannot resume sends the whole
        while chunk := _read(response):
            file.write(chunk)
            tell(file.tell())
        done = file.tell()
    if remote.size is not None and done != remote.size:
        raise DownloadError(
            f"the connection broke off after {done} of {remote.size} bytes; they are kept, and "
            "the next try goes on from there"
        )
    return True


def _open(url: str, headers: dict[str, str]) -> Any:
    request = urllib.request.Request(url, headers={"User-Agent": "hashprompt", **headers})
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        raise DownloadError(f"the server answers {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"no connection ({reason})") from error


def _read(response: Any) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadError(
            f"the connection broke off ({error or type(error).__name__})"
        ) from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
