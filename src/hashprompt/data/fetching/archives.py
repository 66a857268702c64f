"""Unpack archives that come from elsewhere: nothing lands outside, nothing is left half done."""

import gzip
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from hashprompt.errors import UserError

BROKEN = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, OSError)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .tar, .tar.gz, .tgz, .zip or single .gz file into a folder.

    The content appears in one step after all of it is there; what is in the folder already is
    never replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder))
    try:
        if zipfile.is_zipfile(archive):
            _unzip(archive, place)
        elif tarfile.is_tarfile(archive):
            _untar(archive, place)
        elif archive.suffix == ".gz":
            with gzip.open(archive) as packed, (place / archive.stem).open("wb") as out:
                shutil.copyfileobj(packed, out)
        else:
            raise UserError(f"{archive} is no archive, or only the beginning of one.")
        _publish(place, folder)
    except BROKEN as error:
        raise UserError(f"Cannot unpack {archive}: {error}. Fetch it again.") from error
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _untar(archive: Path, place: Path) -> None:
    with tarfile.open(archive) as packed:
        _check_room(sum(member.size for member in packed), archive, place)
        try:  # the filter refuses paths and links that leave the folder, and devices
            packed.extractall(place, filter="data")
        except tarfile.FilterError as error:
            raise _refused(archive, str(error)) from error


def _unzip(archive: Path, place: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        members = packed.infolist()
        _check_room(sum(member.file_size for member in members), archive, place)
        for member in members:
            path = PurePosixPath(member.filename.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or ":" in path.parts[0]:
                raise _refused(archive, f"{member.filename!r} would be outside of its folder")
            if stat.S_ISLNK(member.external_attr >> 16):
                raise _refused(archive, f"{member.filename!r} is a link")
        packed.extractall(place)


def _refused(archive: Path, reason: str) -> UserError:
    return UserError(f"{archive} is not unpacked: {reason}. Do not use this file.")


def _check_room(needed: int, archive: Path, place: Path) -> None:
    free = shutil.disk_usage(place).free
    if needed > free:
        raise UserError(
            f"{archive} takes {needed / 1e9:.1f} GB unpacked, but {place.parent} has "
            f"{free / 1e9:.1f} GB left. Make room, or choose another data_root."
        )


def _publish(place: Path, folder: Path) -> None:
    for path in sorted(place.iterdir()):
        target = folder / path.name
        if target.exists():
            raise UserError(f"{target} is there already and is not replaced. Move it away first.")
        os.replace(path, target)
