"""Get data sets from the internet, on request only: resumable, and verified before any use."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hashprompt.data.fetching.archives import unpack
from hashprompt.data.sets.base import DataSet, PublishedFile
from hashprompt.errors import UserError
from hashprompt.storage.download import Source, Watch, file_size, show_on_terminal, transfer
from hashprompt.storage.files import (
    as_given,
    inside,
    make_folder,
    open_file,
    reason_of,
    remove_file,
    rename,
)
from hashprompt.storage.web import DownloadError

BLOCK = 1 << 20
TIMEOUT = 60.0  # seconds without a byte
AGAIN = "Run the command again to go on from there."


def fetch(
    data: DataSet, root: Path, say: Callable[[str], None], watch: Watch = show_on_terminal
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
    try:
        with open_file(file) as opened:
            while block := opened.read(BLOCK):
                digest.update(block)
    except OSError as error:
        raise UserError(f"Cannot read {file}: {reason_of(error)}.") from error
    if digest.hexdigest() == expected:
        return
    size = file_size(file)
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


def _download(remote: PublishedFile, root: Path, watch: Watch) -> Path:
    folder = root / remote.into
    target, part = inside(folder, remote.name), inside(folder, f"{remote.name}.part")
    try:
        make_folder(as_given(folder))
        transfer(Source(remote.url, remote.size), part, partial(watch, remote.name), TIMEOUT)
    except (OSError, DownloadError) as error:
        raise UserError(
            f"Could not get {remote.url}: {error}. {file_size(part):,} bytes are in {part}. "
            f"{AGAIN} Or get the file in another way and put it there as {target}."
        ) from error
    try:
        verify(part, remote)
    except UserError:
        remove_file(part)  # ours, whole and wrong: nothing to go on with
        raise
    rename(part, target)
    return target
