"""Unpack archives that come from elsewhere: nothing lands outside, nothing is left half done.

Only files and folders are unpacked, by our own hands: what Python's `tarfile` makes of links could
be led out of the folder until 3.11.13, 3.12.11 and 3.13.4, whatever the filter.
"""

import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, NamedTuple

from hashprompt.errors import UserError, shortened
from hashprompt.storage.files import (
    Target,
    as_given,
    create_file,
    inside,
    make_folder,
    open_file,
    remove_new,
    rename,
    temporary_name,
)

BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    EOFError,
    zlib.error,
    OSError,
    ValueError,
    RuntimeError,
    NotImplementedError,
)
MAX_MEMBERS = 1_000_000  # DomainNet, the largest set of its kind, has 600,000 files
MAX_BYTES = 100 * 10**9  # ImageNet has 150 GB, but none of the sets here has more than 20
MAX_RATIO, SMALL = 100, 64 * 10**6  # unpacked over packed; MNIST, the best, shrinks to a fifth
MAX_DEEP = 50  # folders inside each other
BLOCK = 1 << 20
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 0x1
ENTRY = b"PK\x01\x02"  # before every line of the list of files in a zip


class Member(NamedTuple):
    """A file in an archive, or a folder, which cannot be opened."""

    name: str
    size: int
    open: Callable[[], IO[bytes] | None] | None


class Refused(Exception):  # noqa: N818 (a finding, which becomes a UserError)
    """Why an archive is not unpacked."""


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .tar, .tar.gz, .tgz, .zip or single .gz file into a folder.

    The content appears in one step after all of it is there; what is in the folder already is
    never replaced.
    """
    make_folder(as_given(folder))
    place = temporary_name(as_given(folder / "unpacking"))
    make_folder(place)
    try:
        with open_file(archive) as file:
            if zipfile.is_zipfile(file):
                _unzip(file, place)
            elif not _untar(file, place) and not _gunzip(file, place, archive):
                raise UserError(f"{archive} is no archive, or only the beginning of one.")
        _publish(place, folder)
    except Refused as error:
        raise UserError(f"{archive} is not unpacked: {error}. Do not use this file.") from error
    except BROKEN as error:
        reason = shortened(error) or type(error).__name__
        raise UserError(f"Cannot unpack {archive}: {reason}. Fetch it again.") from error
    finally:
        remove_new(place)


def _unzip(file: BinaryIO, place: Target) -> None:
    with zipfile.ZipFile(file) as packed:
        members = [_zip_member(packed, info) for info in packed.infolist()]
        _check(members, file, place)
        _write(members, place)


def zip_files(
    file: BinaryIO, most_members: int, most_bytes: int
) -> Iterator[tuple[tuple[str, ...], Iterator[bytes]]]:
    """The files of a zip: folders and name of each, and its content in blocks; nothing is written.

    All names, kinds and sizes are checked before the first is given.

    Raises:
        Refused: for what is no plain file in a folder of the zip, and for what is too much.
        BROKEN: one of these, for what is no zip.
    """
    # Before they are listed, which takes half a kilobyte of memory each.
    if sum(block.count(ENTRY) for block in iter(lambda: file.read(BLOCK), b"")) > most_members:
        raise Refused(f"it holds more than {most_members:,} files and folders")
    with zipfile.ZipFile(file) as packed:
        members = [_zip_member(packed, info) for info in packed.infolist()]
        for member in members:
            _parts(member.name)
        total, size = sum(member.size for member in members), os.fstat(file.fileno()).st_size
        if total > min(most_bytes, max(SMALL, MAX_RATIO * size)):
            raise Refused(f"its {size / 1e6:,.1f} MB would take {total / 1e6:,.0f} MB unpacked")
        for member in members:
            if member.open is not None:
                yield _parts(member.name), _blocks(member)


def _blocks(member: Member) -> Iterator[bytes]:
    """What is in a member, if it is as much as it says."""
    left = member.size
    with _content(member) as content:
        while block := content.read(BLOCK):
            left -= len(block)
            if left < 0:
                break
            yield block
    if left:
        raise Refused(f"{member.name!r} has another size than it says")


def _zip_member(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = "a link" if kind == stat.S_IFLNK else "neither a file nor a folder"
        raise Refused(f"{info.filename!r} is {what}")
    if info.flag_bits & ENCRYPTED or info.compress_type not in METHODS:
        raise Refused(f"{info.filename!r} is encrypted or packed in an unusual way")
    content = None if info.filename.endswith("/") else lambda: packed.open(info)
    return Member(info.filename, info.file_size, content)


def _untar(file: BinaryIO, place: Target) -> bool:
    """Whether it was a tar file, which then is unpacked."""
    file.seek(0)
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    content = SmallReads(gzip.GzipFile(fileobj=file) if is_packed else file)
    try:
        tar = tarfile.TarFile(fileobj=content)  # type: ignore[arg-type]
    except tarfile.ReadError:
        return False
    with tar:
        if next(iter(tar), None) is None:  # zeros, which end a tar file
            return False
        _check((_tar_member(tar, info) for info in tar), file, place)
        _write((_tar_member(tar, info) for info in tar), place)
    return True


class SmallReads:
    """A file to read from in pieces: headers of a tar file can ask for all memory at once."""

    def __init__(self, file: gzip.GzipFile | BinaryIO) -> None:
        self.file, self.seek, self.tell = file, file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= BLOCK:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self.file.read(size)


def _tar_member(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    if not (info.isreg() or info.isdir()):
        what = "a link" if info.issym() or info.islnk() else "neither a file nor a folder"
        raise Refused(f"{info.name!r} is {what}")
    return Member(info.name, info.size, None if info.isdir() else lambda: tar.extractfile(info))


def _gunzip(file: BinaryIO, place: Target, archive: Path) -> bool:
    """Whether it was a single packed file, which then is unpacked."""
    if archive.suffix != ".gz":
        return False
    file.seek(0)
    most = _room(file, place)  # nothing in it tells how much there is
    with gzip.GzipFile(fileobj=file) as packed, create_file(inside(place, archive.stem)) as out:
        while block := packed.read(BLOCK):
            most -= len(block)
            if most < 0:
                raise Refused(f"it unpacks to more than {_room(file, place) / 1e9:.1f} GB")
            out.write(block)
    return True


def _room(file: BinaryIO, place: Path) -> int:
    """Bytes that an archive may take unpacked."""
    packed = os.fstat(file.fileno()).st_size
    return min(MAX_BYTES, max(SMALL, MAX_RATIO * packed), shutil.disk_usage(place).free)


def _check(members: Iterable[Member], file: BinaryIO, place: Path) -> None:
    """Refuse what should not or cannot be unpacked, as soon as it is seen."""
    packed, free = os.fstat(file.fileno()).st_size, shutil.disk_usage(place).free
    total, names = 0, set()
    for count, member in enumerate(members, start=1):
        total += member.size
        parts = _parts(member.name)
        if member.open is not None and not parts:
            raise Refused("a file in it has no name")
        if count > MAX_MEMBERS:
            raise Refused(f"it holds more than {MAX_MEMBERS:,} files")
        if member.open is not None and parts in names:
            raise Refused(f"it holds {member.name!r} twice")
        names.add(parts)
        if total > MAX_BYTES or total > max(SMALL, MAX_RATIO * packed):
            raise Refused(
                f"its {packed / 1e6:,.1f} MB would take {total / 1e9:,.1f} GB or more unpacked; no "
                "data set is like that"
            )
        if total > free:
            raise UserError(
                f"{getattr(file, 'name', 'The archive')} takes {total / 1e9:.1f} GB or more "
                f"unpacked, but {place.parent} has {free / 1e9:.1f} GB left. Make room, or choose "
                "another data_root."
            )


def _parts(name: str) -> tuple[str, ...]:
    """The folders and the name of a member, of which none leads out; none at all for `./`."""
    path = PurePosixPath(name.replace("\\", "/"))
    parts = path.parts
    if path.is_absolute() or ".." in parts or (parts and ":" in parts[0]):
        raise Refused(f"{name!r} would be outside of its folder")
    if len(parts) > MAX_DEEP:
        raise Refused(f"{shortened(name)!r} lies in {len(parts):,} folders")
    return parts


def _write(members: Iterable[Member], place: Target) -> None:
    for member in members:
        target = inside(place, *_parts(member.name))
        if member.open is None:
            make_folder(target)
            continue
        make_folder(as_given(target.parent))
        with create_file(target) as out:
            for block in _blocks(member):
                out.write(block)


def _content(member: Member) -> IO[bytes]:
    content = member.open() if member.open else None
    if content is None:
        raise Refused(f"{member.name!r} cannot be opened")
    return content


def _publish(place: Target, folder: Path) -> None:
    names = sorted(os.listdir(place))
    for name in names:
        if os.path.lexists(folder / name):
            raise UserError(
                f"{folder / name} is there already and is not replaced. Move it away first."
            )
    for name in names:
        rename(inside(place, name), inside(folder, name))
