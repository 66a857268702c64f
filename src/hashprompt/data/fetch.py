"""Get data sets from the internet, on request only: resumable, and verified before any use."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from hashprompt.data.fetching.archives import unpack
from hashprompt.data.sets.base import DataSet, PublishedFile
from hashprompt.errors import UserError

BLOCK = 1 << 20
TIMEOUT = 60.0  # seconds without a byte
AGAIN = "Run the command again to go on from there."
Watch = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all


def fetch(
    data: DataSet, root: Path, say: Callable[[str], None], watch: Watch | None = None
) -> None:
    """Bring all files of a data set into the data root, as far as they are not there yet.

    A file that somebody put there is used instead of a download, after the same check. Archives
    stay where they are.
    """
    if not data.remotes:
        raise UserError(f"`{data.name}` cannot be fetched. Expected in {root}: {data.layout}.")
    for remote in data.remotes:
        if remote.result(root).exists() and remote.gives:
            say(f"{remote.result(root)} is there.")
            continue
        file = _at_hand(remote, root) or _download(remote, root, watch)
        verify(file, remote)
        say(f"{file} is whole (checksum as published).")
        if remote.gives:
            unpack(file, root / remote.into)
            if not remote.result(root).exists():
                raise UserError(
                    f"{file} did not give {remote.result(root)}, though its checksum is right. "
                    f"Unpack it by hand as {data.layout}."
                )
            say(f"Unpacked to {remote.result(root)}.")


def verify(file: Path, remote: PublishedFile) -> None:
    """Compare with the published checksum; raises for a file that must not be opened."""
    kind, expected = ("SHA-256", remote.sha256) if remote.sha256 else ("MD5", remote.md5)
    digest = hashlib.sha256() if remote.sha256 else hashlib.md5(usedforsecurity=False)
    with file.open("rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
    if digest.hexdigest() == expected:
        return
    size = file.stat().st_size
    short = remote.size is not None and size < remote.size
    why = f"it has {size:,} of {remote.size:,} bytes" if short else f"it has {size:,} bytes"
    raise UserError(
        f"{file} is not the published file: {why}, {kind} {digest.hexdigest()} instead of "
        f"{expected}. It is not opened. Remove it and fetch it again from {remote.url}."
    )


def _at_hand(remote: PublishedFile, root: Path) -> Path | None:
    """The file, where somebody put it: in the root, or where we would."""
    places = (root / remote.into / remote.name, root / remote.name)
    return next((place for place in places if place.is_file()), None)


def _download(remote: PublishedFile, root: Path, watch: Watch | None) -> Path:
    target = root / remote.into / remote.name
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _continue(remote, part, watch)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        kept = part.stat().st_size if part.is_file() else 0
        raise UserError(
            f"Could not get {remote.url}: {reason}. {kept:,} bytes are in {part}. {AGAIN} Or get "
            f"the file in another way and put it there as {target}."
        ) from error
    try:
        verify(part, remote)
    except UserError:
        part.unlink()  # ours, whole and wrong: nothing to go on with
        raise
    part.replace(target)
    return target


def _continue(remote: PublishedFile, part: Path, watch: Watch | None) -> None:
    """Append to what is there already, if the server can; else begin anew."""
    have = part.stat().st_size if part.is_file() else 0
    if have and have == remote.size:
        return
    request = urllib.request.Request(remote.url, headers={"User-Agent": "hashprompt"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # all of it is there; the checksum will tell
        raise
    with response:
        resumed = response.status == http.client.PARTIAL_CONTENT
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else remote.size
        with part.open("ab" if resumed else "wb") as out:
            while block := response.read(BLOCK):
                out.write(block)
                have += len(block)
                if watch:
                    watch(remote.name, have, total)
    if total is not None and have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")
