"""Archives of unknown origin: nothing is written outside the folder, nothing is left half done.

Only regular files and folders are unpacked, and written by this package: `tarfile` could be led
out of the folder by links until Python 3.11.13, 3.12.11 and 3.13.4, whatever its filter.
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
from typing import IO, BinaryIO, NamedTuple, cast

from hashprompt.errors import UserError, shortened
from hashprompt.storage.files import (
    GIGABYTE,
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
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError),
    *(OSError, ValueError, RuntimeError),
)
MAX_MEMBERS = 1_000_000  # DomainNet, the largest set of its kind, has 600,000 files
MAX_BYTES = 100 * GIGABYTE  # no set here has more than 20
MAX_RATIO, SMALL = 100, 64 * 10**6  # unpacked over packed; MNIST, the best, shrinks to a fifth
MAX_DEPTH = 50  # of nested folders
BLOCK = 1 << 20
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 0x1
ENTRY = b"PK\x01\x02"  # before every line of the list of files in a zip


class ArchiveError(Exception):
    """Why an archive is not unpacked."""


class Member(NamedTuple):
    """A file in an archive, or a folder, which has no content."""

    name: str
    size: int
    open: Callable[[], IO[bytes] | None] | None

    @property
    def parts(self) -> tuple[str, ...]:
        """Folders and name, none of which leads out; empty for `./`."""
        path = PurePosixPath(self.name.replace("\\", "/"))
        parts = path.parts
        if path.is_absolute() or ".." in parts or (parts and ":" in parts[0]):
            raise ArchiveError(f"{self.name!r} would be outside of its folder")
        if len(parts) > MAX_DEPTH:
            raise ArchiveError(f"{shortened(self.name)!r} lies in {len(parts):,} folders")
        return parts

    def blocks(self) -> Iterator[bytes]:
        """The content, if it is as long as announced."""
        left = self.size
        content = self.open() if self.open else None
        if content is None:
            raise ArchiveError(f"{self.name!r} cannot be opened")
        with content:
            while left >= 0 and (block := content.read(BLOCK)):
                left -= len(block)
                yield block
        if left:
            raise ArchiveError(f"{self.name!r} has another size than it says")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .tar, .tar.gz, .tgz, .zip or single .gz file into a folder.

    The content appears in the folder when all of it is unpacked. Existing files are not replaced.
    """
    make_folder(as_given(folder))
    place = temporary_name(as_given(folder / "unpacking"))
    make_folder(place)
    try:
        with open_file(archive) as file:
            if zipfile.is_zipfile(file):
                with zipfile.ZipFile(file) as packed:
                    _write(_zip_members(packed), place, file)
            elif not _untar(file, place) and not _gunzip(file, place, archive):
                raise UserError(f"{archive} is no archive, or only the beginning of one.")
        _publish(place, folder)
    except ArchiveError as error:
        raise UserError(f"{archive} is not unpacked: {error}. Do not use this file.") from error
    except BROKEN as error:
        reason = shortened(error) or type(error).__name__
        raise UserError(f"Cannot unpack {archive}: {reason}. Fetch it again.") from error
    finally:
        remove_new(place)


def zip_files(
    file: BinaryIO, max_members: int, max_bytes: int
) -> Iterator[tuple[tuple[str, ...], Iterator[bytes]]]:
    """The files of a zip: folders and name of each, and its content in blocks; nothing is written.

    All names, kinds and sizes are checked before the first file is returned.

    Raises:
        ArchiveError: for a member that is not a plain file in a folder, or too much content.
        BROKEN: one of these, if the file is not a zip.
    """
    # Counted before they are listed, which takes half a kilobyte of memory each.
    if sum(block.count(ENTRY) for block in iter(lambda: file.read(BLOCK), b"")) > max_members:
        raise ArchiveError(f"it holds more than {max_members:,} files and folders")
    with zipfile.ZipFile(file) as packed:
        members = [(member.parts, member) for member in _zip_members(packed)]
        total = sum(member.size for _, member in members)
        if total > _allowed(file, max_bytes):
            raise ArchiveError(f"it would take {total / 1e6:,.0f} MB unpacked")
        for parts, member in members:
            if member.open is not None:
                yield parts, member.blocks()


def _size_of(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _zip_members(packed: zipfile.ZipFile) -> Iterator[Member]:
    for info in packed.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise ArchiveError(f"{info.filename!r} is {_kind(kind == stat.S_IFLNK)}")
        if info.flag_bits & ENCRYPTED or info.compress_type not in METHODS:
            raise ArchiveError(f"{info.filename!r} is encrypted or packed in an unusual way")
        content = None if info.filename.endswith("/") else lambda info=info: packed.open(info)
        yield Member(info.filename, info.file_size, content)


def _tar_members(tar: tarfile.TarFile) -> Iterator[Member]:
    for info in tar:
        if not (info.isreg() or info.isdir()):
            raise ArchiveError(f"{info.name!r} is {_kind(info.issym() or info.islnk())}")
        content = None if info.isdir() else lambda info=info: tar.extractfile(info)
        yield Member(info.name, info.size, content)


def _kind(is_link: bool) -> str:
    return "a link" if is_link else "neither a file nor a folder"


def _untar(file: BinaryIO, place: Target) -> bool:
    """Whether the file was a tar archive, which then is unpacked."""
    file.seek(0)
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    content = SmallReads(gzip.GzipFile(fileobj=file) if is_packed else file)
    try:
        tar = tarfile.TarFile(fileobj=cast(BinaryIO, content))
    except tarfile.ReadError:
        return False
    with tar:
        if next(iter(tar), None) is None:  # zeros, which end a tar file
            return False
        _write(_tar_members(tar), place, file)
    return True


class SmallReads:
    """A file that is read in pieces: headers of a tar file can request all memory at once."""

    def __init__(self, file: gzip.GzipFile | BinaryIO) -> None:
        self.file, self.seek, self.tell = file, file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= BLOCK:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self.file.read(size)


def _gunzip(file: BinaryIO, place: Target, archive: Path) -> bool:
    """Whether the file was a single compressed file, which then is unpacked."""
    if archive.suffix != ".gz":
        return False
    file.seek(0)
    # Its header does not announce the size.
    room = min(_allowed(file), shutil.disk_usage(place).free)
    with gzip.GzipFile(fileobj=file) as packed, create_file(inside(place, archive.stem)) as out:
        while block := packed.read(BLOCK):
            if out.tell() + len(block) > room:
                raise ArchiveError(f"it unpacks to more than {room / 1e9:.1f} GB")
            out.write(block)
    return True


def _allowed(file: BinaryIO, max_bytes: int = MAX_BYTES) -> int:
    """Bytes that an archive may have unpacked."""
    return min(max_bytes, max(SMALL, MAX_RATIO * _size_of(file)))


def _write(members: Iterable[Member], place: Target, file: BinaryIO) -> None:
    """Write members one by one, until one is refused or all together are too large."""
    allowed, free = _allowed(file), shutil.disk_usage(place).free
    total = 0
    for count, member in enumerate(members, start=1):
        total += member.size
        if count > MAX_MEMBERS:
            raise ArchiveError(f"it holds more than {MAX_MEMBERS:,} files")
        if total > allowed:
            packed = f"its {_size_of(file) / 1e6:,.1f} MB"
            raise ArchiveError(f"{packed} would take {total / 1e9:,.1f} GB or more unpacked")
        if total > free:
            raise UserError(
                f"The archive takes {total / 1e9:.1f} GB or more unpacked, but {place.parent} has "
                f"{free / 1e9:.1f} GB left. Make room, or choose another data_root."
            )
        target = inside(place, *member.parts)
        if member.open is None:
            make_folder(target)
            continue
        if target == place:
            raise ArchiveError("a file in it has no name")
        if target.is_file():
            raise ArchiveError(f"it holds {member.name!r} twice")
        make_folder(as_given(target.parent))
        with create_file(target) as out:
            for block in member.blocks():
                out.write(block)


def _publish(place: Target, folder: Path) -> None:
    names = sorted(os.listdir(place))
    for name in names:
        if os.path.lexists(folder / name):
            raise UserError(f"{folder / name} exists already and is not replaced. Move it away.")
    for name in names:
        rename(inside(place, name), inside(folder, name))
