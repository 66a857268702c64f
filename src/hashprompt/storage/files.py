"""The door to files: what a user or a stranger gave us is opened, written and removed here alone.

Folders of runs and classifiers, photos and weights are things that people send each other. So
nothing but a regular file is read (a pipe would be waited for, a device never ends), nothing is
written or removed through a link, and nothing is removed that has a name we do not give. A path may
be written or removed only as a `Target`: `inside` a folder of ours, or just `as_given` by the user.
"""

import errno
import fnmatch
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import BinaryIO, NewType

from hashprompt.errors import UserError

Target = NewType("Target", Path)  # a path that may be written or removed
GIGABYTE = 10**9
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")  # see `temporary_name`


class LinkError(UserError):
    """A link where only a file or folder of ours can be."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is a link. It might lead out of the folder it is in, so nothing is read, "
            "written or removed there. Put the file or folder itself in its place."
        )


# Which paths may be changed. -----------------------------------------------------------------


def inside(folder: Path, *names: str) -> Target:
    """`folder/names…`, of which none is a link; the folder itself may be one.

    Raises:
        LinkError: if one is.
    """
    path = folder
    for name in names:
        if name in ("", ".", "..") or PurePath(name).name != name:
            raise ValueError(f"{name!r} is no name of a file in a folder.")
        path = path / name
        if path.is_symlink():
            raise LinkError(path)
    return Target(path)


def as_given(path: Path) -> Target:
    """A path that the user typed: links in it are meant."""
    return Target(path)


# Reading. ------------------------------------------------------------------------------------


def open_file(path: Path, most: int | None = None) -> BinaryIO:
    """Open a file to read its bytes.

    Args:
        path: may be a link, if it leads to a regular file.
        most: bytes it may have.

    Raises:
        OSError: as `open` does, and for what is no regular file or too large.
    """
    _check_regular(path, os.stat(path), most)  # before opening, which may already do something

    def without_waiting(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    file = open(path, "rb", opener=without_waiting)  # noqa: SIM115 (the caller closes it)
    try:
        _check_regular(path, os.fstat(file.fileno()), most)
    except OSError:
        file.close()
        raise
    return file


def _check_regular(path: Path, status: os.stat_result, most: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(kind, "it is not a regular file", str(path))
    if most is not None and status.st_size > most:
        problem = f"it has {status.st_size / 1e6:,.0f} MB, and at most {most / 1e6:,.0f} are read"
        raise OSError(errno.EFBIG, problem, str(path))


def read_file(path: Path, most: int | None = None) -> bytes:
    """All bytes of a file; `most` of them by default as many as `memory_budget`.

    Raises:
        FileNotFoundError: what this means, the caller knows.
        UserError: for every other error of the disk, for what is no file and what is too large.
    """
    try:
        with open_file(path, memory_budget() if most is None else most) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
    except OSError as error:
        raise UserError(
            f"Could not read {path}: {reason_of(error)}. Nothing was changed or deleted; try again "
            "when the file can be read."
        ) from error


def listed(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder, in the order of names."""
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


# Writing. ------------------------------------------------------------------------------------


def write_atomically(target: Target, content: bytes) -> None:
    """Write a file so that a reader sees the old content or all of the new."""
    with in_words(target):
        make_folder(Target(target.parent))
        with suppress(FileNotFoundError):
            _check_regular(target, os.stat(target), None)  # `--csv /dev/stdout`
        temporary = temporary_name(target)
        try:
            # Exclusive: neither a link nor a file that somebody put there is written through.
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise


def append_to(target: Target) -> BinaryIO:
    """Open a file, new or old, to write at its end.

    Raises:
        OSError: as `open` does, and for a link or what is no regular file.
    """
    no_follow = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

    def without_following(name: str, flags: int) -> int:
        return os.open(name, flags | no_follow, 0o666)

    file = open(target, "ab", opener=without_following)  # noqa: SIM115 (the caller closes it)
    try:
        _check_regular(target, os.fstat(file.fileno()), None)
    except OSError:
        file.close()
        raise
    return file


def create_file(target: Target) -> BinaryIO:
    """Open a new file to write it bit by bit; a name that is taken, even by a link, is an error."""
    return open(target, "xb")


def copy_file(source: Path, target: Target) -> None:
    """Copy a regular file to a name that is not taken yet."""
    make_folder(Target(target.parent))
    with open_file(source) as old, open(target, "xb") as new:
        shutil.copyfileobj(old, new)
        new.flush()
        os.fsync(new.fileno())


def place_file(source: Path, target: Target, copy: bool = False) -> None:
    """Put a regular file under a second name, complete or not at all: a link to it, or a copy.

    Args:
        source: stays as it is; of a link, the file behind it is meant.
        copy: make a copy also where a hard link is possible.

    Raises:
        OSError: also if the name is taken.
    """
    make_folder(Target(target.parent))
    _check_regular(source, os.stat(source), None)
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
            raise FileExistsError(errno.EEXIST, "the name is taken", str(target))
        os.rename(temporary, target)
    finally:
        remove_file(temporary)


def rename(old: Target, new: Target) -> None:
    """Give a file or folder another name; a file that has it is replaced."""
    os.replace(old, new)


@contextmanager
def new_folder(target: Path) -> Iterator[Target]:
    """A folder to fill, which becomes `target` at the end: complete, or not there at all.

    Raises:
        UserError: if `target` is there already and not an empty folder.
    """
    with in_words(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise UserError(f"{target} exists already. Export to a new or an empty folder.")
        place = temporary_name(as_given(target.absolute()))
        try:
            yield place
            sync_folder(place)
            rename(place, as_given(target))
        finally:
            remove_new(place)


def make_folder(target: Target) -> None:
    """Make a folder, and those above it, unless it is there."""
    target.mkdir(parents=True, exist_ok=True)


def make_private_folder(target: Target) -> None:
    """Make a folder, unless it is there, that nobody but its owner can look into."""
    with in_words(target):
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(target, 0o700)


def temporary_name(target: Target) -> Target:
    """A name beside `target` that nobody can guess or have taken: hidden, ending in `.tmp`."""
    return Target(target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp"))


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# Removing. -----------------------------------------------------------------------------------


def remove_file(target: Target) -> None:
    """Remove a file, or a link, if it is there."""
    target.unlink(missing_ok=True)


def remove_ours(target: Target, patterns: Sequence[str]) -> None:
    """Remove from a folder the files that we write there, and the folder if nothing else is in it.

    Args:
        target: what is no folder, or a link to one, is left alone.
        patterns: of paths below it, e.g. `checkpoints/state-*.json`; their temporary names are
            meant too.
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
    """Name by name: `*` does not stand for a path."""
    names = path.as_posix().split("/")
    split = (pattern.split("/") for pattern in patterns)
    return any(len(s) == len(names) and all(map(fnmatch.fnmatchcase, names, s)) for s in split)


def remove_left_overs(folder: Path, names: Iterable[str]) -> None:
    """Remove what killed writes of these files left."""
    for name in os.listdir(folder):
        match = TEMPORARY.fullmatch(name)
        if match and match[1] in names:
            with suppress(OSError):
                remove_file(inside(folder, name))


def remove_new(target: Target) -> None:
    """Remove a folder that this process made under a temporary name, with all that is in it."""
    shutil.rmtree(target, ignore_errors=True)


# Words. --------------------------------------------------------------------------------------


@contextmanager
def in_words(path: Path) -> Iterator[None]:
    """Errors of the disk while `path` is written, as a `UserError`."""
    try:
        yield
    except (OSError, NotImplementedError) as error:  # the latter: no locks on this file system
        raise UserError(
            f"Could not write {path}: {reason_of(error)}. Free some space or make the folder "
            "writable; what was saved before is intact."
        ) from error


def reason_of(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
