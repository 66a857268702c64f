"""Downloads of data sets, on request only: resumable, and verified before use."""

from collections.abc import Callable
from pathlib import Path

from hashprompt.data.fetching.archives import unpack
from hashprompt.data.sets.base import DataSet, PublishedFile
from hashprompt.errors import UserError
from hashprompt.storage.download import (
    MAX_SIZE,
    DownloadError,
    Watch,
    download,
    file_hash,
    show_on_terminal,
)
from hashprompt.storage.files import inside, reason_of, remove_file


def fetch(
    data: DataSet, root: Path, say: Callable[[str], None], watch: Watch = show_on_terminal
) -> None:
    """Download the missing files of a data set into the data root, verify and unpack them.

    A file that the user put there is used instead of a download, after the same check. Archives
    are kept.
    """
    if not data.files:
        raise UserError(f"`{data.name}` cannot be fetched. Expected in {root}: {data.layout}.")
    for remote in data.files:
        if remote.result(root).exists() and remote.gives:
            say(f"{remote.result(root)} is there.")
            continue
        places = (root / remote.into / remote.name, root / remote.name)
        at_hand = next((place for place in places if place.is_file()), None)
        file = at_hand or _download(remote, root, watch)
        verify(file, remote)
        say(f"{file} is complete (checksum as published).")
        if remote.gives:
            unpack(file, root / remote.into)
            if not remote.result(root).exists():
                raise UserError(
                    f"{file} did not give {remote.result(root)}, though its checksum is right. "
                    f"Unpack it by hand as {data.layout}."
                )
            say(f"Unpacked to {remote.result(root)}.")


def verify(file: Path, remote: PublishedFile) -> None:
    """Compare with the published checksum; raises for another file."""
    kind, expected = ("sha256", remote.sha256) if remote.sha256 else ("md5", remote.md5)
    try:
        found, size = file_hash(file, kind), file.stat().st_size
    except OSError as error:
        raise UserError(f"Cannot read {file}: {reason_of(error)}.") from error
    if found == expected:
        return
    short = remote.size is not None and size < remote.size
    why = f"it has {size:,} of {remote.size:,} bytes" if short else f"it has {size:,} bytes"
    raise UserError(
        f"{file} is not the published file: {why}, {kind.upper()} {found} instead of {expected}. "
        f"It is not opened. Remove it and fetch it again from {remote.url}."
    )


def _download(remote: PublishedFile, root: Path, watch: Watch) -> Path:
    folder = root / remote.into
    target = inside(folder, remote.name)
    try:
        download(remote.url, target, watch, remote.size or MAX_SIZE)
    except DownloadError as error:
        raise UserError(
            f"Could not get {remote.url}: {error}. Run the command again to resume, or save "
            f"the file as {target} yourself."
        ) from error
    try:
        verify(target, remote)
    except UserError:
        remove_file(target)  # complete and wrong: nothing to resume
        raise
    return target
