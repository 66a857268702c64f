"""Zips of clients: names, kinds and sizes of all members are checked before one is read."""

import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import BinaryIO

from hashprompt.errors import shortened

BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError)
MAX_RATIO, SMALL = 100, 64 * 10**6  # unpacked over packed; photos hardly shrink
MAX_DEPTH = 50  # of nested folders
BLOCK = 1 << 20
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 0x1
ENTRY = b"PK\x01\x02"  # before every line of the list of files in a zip


class ZipError(Exception):
    """Why a zip is not unpacked."""


def zip_files(
    file: BinaryIO, max_members: int, max_bytes: int
) -> Iterator[tuple[tuple[str, ...], Iterator[bytes]]]:
    """The files of a zip: folders and name of each, and its content in blocks.

    Raises:
        ZipError: for a member that is not a plain file in a folder, or too much content.
        BROKEN: one of these, if the file is not a zip, or damaged.
    """
    # Counted before they are listed, which takes half a kilobyte of memory each.
    if sum(block.count(ENTRY) for block in iter(lambda: file.read(BLOCK), b"")) > max_members:
        raise ZipError(f"it holds more than {max_members:,} files and folders")
    size = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as packed:
        members = [(_parts(info), info) for info in packed.infolist()]
        total = sum(info.file_size for _, info in members)
        if total > min(max_bytes, max(SMALL, MAX_RATIO * size)):
            raise ZipError(f"it would take {total / 1e6:,.0f} MB unpacked")
        for parts, info in members:
            if not info.is_dir():
                with packed.open(info) as content:  # reads no more than the announced size
                    yield parts, iter(partial(content.read, BLOCK), b"")


def _parts(info: zipfile.ZipInfo) -> tuple[str, ...]:
    """Folders and name of a member, none of which leads out."""
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ZipError(f"{info.filename!r} is neither a file nor a folder")
    if info.flag_bits & ENCRYPTED or info.compress_type not in METHODS:
        raise ZipError(f"{info.filename!r} is encrypted or packed in an unusual way")
    path = PurePosixPath(info.filename.replace("\\", "/"))
    parts = path.parts
    if path.is_absolute() or ".." in parts or (parts and ":" in parts[0]):
        raise ZipError(f"{info.filename!r} would be outside of its folder")
    if len(parts) > MAX_DEPTH:
        raise ZipError(f"{shortened(info.filename)!r} lies in {len(parts):,} folders")
    return parts
