"""All access to files: every file of a user or of unknown origin is opened, written, removed here.

People send each other runs, classifiers, photos and weights. Therefore only regular files are read
(a pipe would block, a device never ends), nothing is written or removed through a link, and only
files with names of this package are removed. A path can be written or removed only as a `Target`:
`inside` a folder of ours, or `as_given` by the user.
"""

import errno
import fnmatch
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import BinaryIO, NewType, cast

from hashprompt.errors import UserError

Target = NewType("Target", Path)  # a path that may be written or removed
GIGABYTE = 10**9
NO_WAITING, NO_LINKS = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_NOFOLLOW", 0)
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")  # see `temporary_name`


class LinkError(UserError):
    """A link where only a file or folder of ours can be."""


# Paths that may be changed. ------------------------------------------------------------------


def inside(folder: Path, *names: str) -> Target:
    """`folder/names…`, of which none is a link; the folder itself may be one.

    Raises:
        LinkError: if one is.
    """
    path = folder
    for name in names:
        if name in ("", ".", "..") or PurePath(name).name != name:
            raise ValueError(f"{name!r} is not the name of a file in a folder.")
        path = path / name
        if path.is_symlink():
            raise LinkError(f"{path} is a link and not followed here. Put its target in its place.")
    return Target(path)


def as_given(path: Path) -> Target:
    """A path that the user typed: links in it are meant."""
    return Target(path)


# Reading. ------------------------------------------------------------------------------------


def open_file(path: Path, max_bytes: int | None = None) -> BinaryIO:
    """Open a file to read its bytes.

    Args:
        path: may be a link, if it leads to a regular file.
        max_bytes: allowed size.

    Raises:
        OSError: as `open` does, and if the file is not regular or too large.
    """
    _check_regular(path, os.stat(path), max_bytes)  # opening a device can already have effects
    return _open_regular(path, "rb", NO_WAITING, max_bytes)


def _open_regular(path: Path, mode: str, flags: int, max_bytes: int | None = None) -> BinaryIO:
    def opener(name: str, own_flags: int) -> int:
        return os.open(name, own_flags | flags, 0o666)

    file = open(path, mode, opener=opener)  # noqa: SIM115 (the caller closes it)
    try:
        _check_regular(path, os.fstat(file.fileno()), max_bytes)
    except OSError:
        file.close()
        raise
    return cast(BinaryIO, file)


def _check_regular(path: Path, status: os.stat_result, max_bytes: int | None = None) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(kind, "it is not a regular file", str(path))
    if max_bytes is not None and status.st_size > max_bytes:
        size, allowed = status.st_size / 1e6, max_bytes / 1e6
        raise OSError(errno.EFBIG, f"it has {size:,.0f} MB; at most {allowed:,.0f}", str(path))


def read_file(path: Path, max_bytes: int | None = None) -> bytes:
    """All bytes of a file.

    Args:
        max_bytes: allowed size; `memory_budget()` by default.

    Raises:
        FileNotFoundError: the caller knows what a missing file means.
        UserError: for every other error of the disk, and if the file is not regular or too large.
    """
    try:
        with open_file(path, memory_budget() if max_bytes is None else max_bytes) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
    except OSError as error:
        raise UserError(
            f"Could not read {path}: {reason_of(error)}. Nothing was changed or deleted."
        ) from error


def listed(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder, sorted by name."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise UserError(f"Cannot read the folder {folder}: {error.strerror or error}.") from error


def memory_budget() -> int:
    """Bytes that one file may take in memory: half of what this machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):  # not on this system
        return 4 * GIGABYTE


def check_memory(size: int, what: str) -> None:
    """Refuse what takes more bytes than `memory_budget`."""
    if size > memory_budget():
        raise UserError(
            f"{what} would take {size / 1e9:,.1f} GB. At most half of this machine's memory is "
            f"used, {memory_budget() / 1e9:,.1f} GB."
        )


# Writing. ------------------------------------------------------------------------------------


def write_atomically(target: Target, content: bytes) -> None:
    """Write a file so that a reader sees the old content or all of the new."""
    with explain_write_errors(target):
        make_folder(Target(target.parent))
        with suppress(FileNotFoundError):
            _check_regular(target, os.stat(target))  # `--csv /dev/stdout`
        temporary = temporary_name(target)
        try:
            # Exclusive: an existing link or file is not written through.
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        remove_left_overs(target.parent, (target.name,))


def append_to(target: Target) -> BinaryIO:
    """Open a file, new or old, to write at its end.

    Raises:
        OSError: as `open` does, and for a link or a file that is not regular.
    """
    return _open_regular(target, "ab", NO_LINKS | NO_WAITING)


def create_file(target: Target) -> BinaryIO:
    """Open a new file for writing; a name that exists, even as a link, is an error."""
    return open(target, "xb")


def copy_file(source: Path, target: Target) -> None:
    """Copy a regular file to a new name."""
    make_folder(Target(target.parent))
    with open_file(source) as old, open(target, "xb") as new:
        shutil.copyfileobj(old, new)
        new.flush()
        os.fsync(new.fileno())


def place_file(source: Path, target: Target, copy: bool = False) -> None:
    """Give a regular file a second name, as a hard link or a complete copy.

    Args:
        source: is not changed; a link is resolved.
        copy: copy even where a hard link is possible.

    Raises:
        OSError: also if the target exists.
    """
    make_folder(Target(target.parent))
    _check_regular(source, os.stat(source))
    if not copy:
        with suppress(OSError):  # on another disk, or one that knows no links
            os.link(os.path.realpath(source), target)
            return
    temporary = temporary_name(target)
    try:
        copy_file(source, temporary)
        status = os.stat(source)
        os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "the name exists", str(target))
        os.rename(temporary, target)
    finally:
        remove_file(temporary)


def rename(old: Target, new: Target) -> None:
    """Rename a file or folder; an existing file of that name is replaced."""
    os.replace(old, new)


@contextmanager
def new_folder(target: Path) -> Iterator[Target]:
    """A folder to fill that becomes `target` only when it is complete.

    Raises:
        UserError: if `target` exists and is not an empty folder.
    """
    with explain_write_errors(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise UserError(f"{target} exists already. Export to a new or an empty folder.")
        place = temporary_name(as_given(target.absolute()))
        remove_left_overs(place.parent, (target.name,))
        try:
            yield place
            sync_folder(place)
            rename(place, as_given(target))
        finally:
            remove_new(place)


def make_folder(target: Target) -> None:
    """Make a folder and its parents unless they exist."""
    target.mkdir(parents=True, exist_ok=True)


def make_private_folder(target: Target) -> None:
    """Make a folder that only its owner can read."""
    with explain_write_errors(target):
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(target, 0o700)


def temporary_name(target: Target) -> Target:
    """A hidden random name next to `target`, ending in `.tmp`."""
    return Target(target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp"))


def sync_folder(folder: Path) -> None:
    """Flush new names in a folder to disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# Removing. -----------------------------------------------------------------------------------


def remove_file(target: Target) -> None:
    """Remove a file or a link if it exists."""
    target.unlink(missing_ok=True)


def remove_ours(target: Target, patterns: Sequence[str]) -> None:
    """Remove the files of this package from a folder, and the folder if it is then empty.

    Args:
        target: ignored if it is not a folder or a link to one.
        patterns: paths below it, e.g. `checkpoints/state-*.json`; temporary names included.
    """
    if target.is_symlink() or not target.is_dir():
        return
    folders = {str(folder) for pattern in patterns for folder in PurePosixPath(pattern).parents}
    for place, _, names in os.walk(target, topdown=False):  # does not go through links
        folder = Path(place).relative_to(target)
        for name in names:
            final = re.sub(TEMPORARY, r"\1", name)
            if _matches(folder / final, patterns):
                with suppress(OSError):
                    os.unlink(Path(place) / name)
        if _matches(folder, folders):
            with suppress(OSError):  # it is not empty
                os.rmdir(place)


def _matches(path: Path, patterns: Iterable[str]) -> bool:
    """Whether a path matches name by name; `*` does not match `/`."""
    names = path.as_posix().split("/")
    split = (pattern.split("/") for pattern in patterns)
    return any(len(s) == len(names) and all(map(fnmatch.fnmatchcase, names, s)) for s in split)


def remove_left_overs(folder: Path, names: Collection[str] | None = None) -> None:
    """Remove what interrupted writes left in a folder, as far as possible.

    Args:
        names: of the files and folders that were to be written; None: of any.
    """
    with suppress(OSError):
        for name in os.listdir(folder):
            match = TEMPORARY.fullmatch(name)
            if match and (names is None or match[1] in names):
                remove_new(Target(folder / name))


def remove_new(target: Target) -> None:
    """Remove a file, or a folder with its content, as far as that is possible."""
    if target.is_dir():
        shutil.rmtree(target, ignore_errors=True)
    else:
        with suppress(OSError):
            remove_file(target)


# Errors. -------------------------------------------------------------------------------------


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn errors of the disk while `path` is written into a `UserError`."""
    try:
        yield
    except (OSError, NotImplementedError) as error:  # the latter: no locks on this file system
        raise UserError(
            f"Could not write {path}: {reason_of(error)}. Free some space or make the folder "
            "writable. Earlier files are intact."
        ) from error


def reason_of(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
