"""Downloads of data sets, on request only: resumable, verified before they are unpacked."""

import gzip
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from hashprompt.data.sets.base import DataSet, PublishedFile
from hashprompt.errors import UserError
from hashprompt.storage import download, files


def fetch(data: DataSet, root: Path, say: Callable[[str], None]) -> None:
    """Download the missing files of a data set into the data root, verify and unpack them.

    A file that the user put there is used instead of a download, after the same check. Archives
    are kept.
    """
    if not data.files:
        raise UserError(f"`{data.name}` cannot be fetched. Expected in {root}: {data.layout}.")
    for remote in data.files:
        result = remote.result(root)
        if result.exists() and remote.gives:
            say(f"{result} is there.")
            continue
        file = _published_file(remote, root)
        say(f"{file} is complete (checksum as published).")
        if remote.gives:
            _unpack(file, root / remote.into)
            if not result.exists():
                raise UserError(
                    f"{file} did not give {result}, though its checksum is right. "
                    f"Unpack it by hand as {data.layout}."
                )
            say(f"Unpacked to {result}.")


def verify(file: Path, remote: PublishedFile) -> None:
    """Compare with the published checksum; raises for another file."""
    kind, expected = ("sha256", remote.sha256) if remote.sha256 else ("md5", remote.md5)
    try:
        found, size = download.file_hash(file, kind), file.stat().st_size
    except OSError as error:
        raise UserError(f"Cannot read {file}: {files.reason_of(error)}.") from error
    if found == expected:
        return
    short = remote.size is not None and size < remote.size
    why = f"it has {size:,} of {remote.size:,} bytes" if short else f"it has {size:,} bytes"
    raise UserError(
        f"{file} is not the published file: {why}, {kind.upper()} {found} instead of {expected}. "
        f"It is not opened. Remove it and fetch it again from {remote.url}."
    )


def _published_file(remote: PublishedFile, root: Path) -> Path:
    """The verified file: one that is there, or a download."""
    target = files.inside(root / remote.into, remote.name)
    for place in (target, root / remote.name):
        if place.is_file():
            verify(place, remote)
            return place
    try:
        download.download(remote.url, target, remote.size or download.MAX_SIZE)
    except download.DownloadError as error:
        raise UserError(
            f"Could not get {remote.url}: {error}. Run the command again to resume, or save "
            f"the file as {target} yourself."
        ) from error
    try:
        verify(target, remote)
    except UserError:
        files.remove_file(target)  # complete and wrong: nothing to resume
        raise
    return target


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack a verified file: .tar, .tar.gz, .tgz, .zip, or a single .gz.

    The content appears in the folder when all of it is unpacked. Existing files are not replaced.
    """
    place = files.temporary_name(files.as_given(folder / "unpacking"))
    with files.explain_write_errors(folder), files.open_file(archive) as packed:
        try:
            files.make_folder(place)
            for name, content in _contents(packed, archive.name):
                target = files.inside(place, *PurePosixPath(name).parts)
                files.make_folder(files.as_given(target.parent))
                with content, files.create_file(target) as out:
                    shutil.copyfileobj(content, out)
            names = os.listdir(place)
            for name in names:
                if os.path.lexists(folder / name):
                    raise UserError(f"{folder / name} exists and is not replaced. Move it away.")
            for name in names:
                files.rename(files.inside(place, name), files.inside(folder, name))
        finally:
            files.remove_new(place)


def _contents(file: BinaryIO, archive: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and contents of the files of an archive, without links and devices."""
    if archive.endswith(".zip"):
        with zipfile.ZipFile(file) as packed:
            for info in packed.infolist():
                if not info.is_dir():
                    yield info.filename, packed.open(info)
    elif archive.endswith((".tar", ".tar.gz", ".tgz")):
        with tarfile.open(fileobj=file) as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isreg() else None
                if content is not None:
                    yield member.name, content
    else:
        yield archive.removesuffix(".gz"), cast(IO[bytes], gzip.GzipFile(fileobj=file))
