"""One writer at a time: a lock file that is released when its process ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from hashprompt.errors import UserError
from hashprompt.storage.files import as_given, explain_write_errors, inside, make_folder

LOCK = ".lock"  # of a folder, and in it


class InUseError(UserError):
    """Another process holds the lock."""


@contextmanager
def locked(folder: Path, in_use: Callable[[], str]) -> Iterator[None]:
    """Hold the lock of a folder.

    Args:
        folder: created if it is missing.
        in_use: the message if another process holds the lock.

    Raises:
        InUseError: at once, if it is held.
        UserError: if the disk is full, or its file system has no locks.
    """
    # Per process: a server acquires it in one thread and releases it in another.
    lock = FileLock(inside(folder, LOCK), thread_local=False)
    with explain_write_errors(folder):
        make_folder(as_given(folder))
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise InUseError(in_use()) from error
    try:
        yield
    finally:
        lock.release()
