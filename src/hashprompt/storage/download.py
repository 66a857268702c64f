"""Large files from the web: resumed where they broke off, complete or not there at all.

Not `pooch`: it begins every download anew, and weights have up to 1.7 GB. A server is not trusted:
`storage/web.py` bounds what it may say, and no more is written than it or the caller announced.
"""

import hashlib
import http.client
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock

from hashprompt.errors import UserError
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
from hashprompt.storage.web import CHUNK, TIMEOUT, DownloadError, Pace, RefusedError, Response, ask
from hashprompt.texts import visible

IDLE_TRIES = 4  # connections in a row that bring nothing new
PAUSE = 1.0  # seconds between them
MOST = 20 * GIGABYTE  # of a file of which nobody knows how large it is
KEEP_FREE = GIGABYTE // 10  # bytes of the disk that are left to others

Watch = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all


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


def download(url: str, path: Path, watch: Watch = show_on_terminal, most: int = MOST) -> None:
    """Download a file unless it is there, trying again where a connection breaks.

    What came before a failure stays beside ``path``, and the next call goes on from there.

    Args:
        most: bytes that it may have.

    Raises:
        DownloadError: in seconds where there is no connection.
    """
    try:
        make_folder(as_given(path.parent))
        with FileLock(inside(path.parent, f".{path.name}.lock")):  # two runs may want it at once
            if not path.exists():
                _download(url, path, watch, most)
    except OSError as error:  # of the disk: those of the network became DownloadError below
        raise DownloadError(f"cannot write {path} ({error.strerror or error})") from error
    except UserError as error:  # a link in the place of a file of ours
        raise DownloadError(str(error)) from error


def transfer(
    source: Source,
    part: Target,
    tell: Callable[[int, int | None], None],
    timeout: float = TIMEOUT,
    most: int = MOST,
) -> None:
    """Append to ``part`` what is missing, over one connection; else begin anew.

    Args:
        tell: told bytes so far and bytes in all.
        most: bytes that the file may have, if its size is not known.

    Raises:
        DownloadError: if the connection fails or ends early; what came is kept.
    """
    have = file_size(part)
    if have and have == source.size:
        return
    if have > (source.size or most):  # not of this file
        remove_file(part)
        have = 0
    headers = {"Range": f"bytes={have}-", "If-Range": source.version} if have else {}
    headers = {k: v for k, v in headers.items() if v}
    response = ask(source.url, headers, timeout)
    if response is None:
        return  # nothing after what is there
    with response, append_to(part) as file:
        if have and response.status != http.client.PARTIAL_CONTENT:
            file.truncate(file.seek(0))  # a server that cannot resume sends the whole
        done = file.tell()
        if not _goes_on(response, done):
            file.truncate(file.seek(0))
            raise DownloadError("the server sends another part of the file than it was asked for")
        length = response.content_length()
        total = source.size if length is None else done + length
        _check_size(part, total, done, source.size or most)
        _receive(response, file, tell, total, source.size or most)
        done = file.tell()
    if total is not None and done < total:
        raise DownloadError(
            f"the connection broke off after {done} of {total} bytes; they are kept, and the next "
            "try goes on from there"
        )


def _goes_on(response: Response, done: int) -> bool:
    """Whether the answer begins where the file on disk ends."""
    if response.status != http.client.PARTIAL_CONTENT:
        return done == 0
    return (response.headers["Content-Range"] or f"bytes {done}-").startswith(f"bytes {done}-")


def _check_size(part: Path, total: int | None, done: int, most: int) -> None:
    """Refuse a file that is larger than expected, or than the disk has room for."""
    if total is not None and total > most:
        raise RefusedError(
            f"the server announces {total:,} bytes, and at most {most:,} are expected"
        )
    needed = max(0, (total or 0) - done) + KEEP_FREE
    free = shutil.disk_usage(part.parent).free
    if free < needed:
        raise RefusedError(
            f"it needs {needed / GIGABYTE:.1f} GB on the disk of {part.parent}, and "
            f"{free / GIGABYTE:.1f} GB are free"
        )


def _receive(
    response: Response,
    file: BinaryIO,
    tell: Callable[[int, int | None], None],
    total: int | None,
    most: int,
) -> None:
    """Write what comes, but no byte more than was announced."""
    end = most if total is None else total
    response.allow(end + CHUNK)
    while (done := file.tell()) < end and (chunk := response.next_bytes(end - done)):
        file.write(chunk)
        tell(file.tell(), total)
        _check_size(Path(file.name), None, 0, most)
    if total is None and file.tell() == most and response.next_bytes(1):
        raise RefusedError(f"the server sends more than the {most:,} bytes that are expected")


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def file_size(path: Path) -> int:
    """Bytes of a file, 0 if it is not there."""
    return path.stat().st_size if path.exists() else 0


def _look(url: str) -> Source:
    # Not a HEAD request: some stores refuse it. Closing the answer early costs next to nothing.
    response = ask(url, {}, TIMEOUT)
    assert response is not None  # no range was asked for
    with response:
        version = response.headers["ETag"] or response.headers["Last-Modified"] or ""
        return Source(url, response.content_length(), version)


def _download(url: str, path: Path, watch: Watch, most: int) -> None:
    source = _look(url)
    # The name holds the version, so that parts of two versions are never put together.
    key = hashlib.sha256(f"{source}".encode()).hexdigest()[:12]
    part = inside(path.parent, f".{path.name}.{key}.part")
    _check_size(part, source.size, file_size(part), most)
    idle, longest = 0, file_size(part)
    pace = Pace()  # of all connections together: each may bring a byte and break off
    while True:
        try:
            transfer(source, part, partial(watch, path.name), most=most)
            if source.size not in (None, file_size(part)):
                raise DownloadError("the server sends another file than it announced")
            break
        except RefusedError:
            raise
        except DownloadError:
            idle = 0 if file_size(part) > longest else idle + 1
            if idle == IDLE_TRIES:
                raise
            pace.came(max(0, file_size(part) - longest))
            longest = max(longest, file_size(part))
            time.sleep(PAUSE)
    rename(part, inside(path.parent, path.name))
    parts = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}\.part")
    for other in path.parent.iterdir():  # of versions that are gone
        if parts.fullmatch(other.name):
            remove_file(inside(path.parent, other.name))
