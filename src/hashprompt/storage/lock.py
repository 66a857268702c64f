"""One writer at a time: a lock file that is free again when its holder dies."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from hashprompt.errors import UserError
from hashprompt.storage.files import as_given, in_words, inside, make_folder

LOCK = ".lock"  # of a folder, and in it


@contextmanager
def locked(folder: Path, in_use: Callable[[], str]) -> Iterator[None]:
    """Hold the lock of a folder.

    Args:
        folder: is made if it is not there.
        in_use: what to say to whoever comes second.

    Raises:
        UserError: at once, if another holds it or the disk does not take a lock.
    """
    # Of the process: a server takes it in one thread and lets go of it in another.
    lock = FileLock(inside(folder, LOCK), thread_local=False)
    with in_words(folder):
        make_folder(as_given(folder))
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise UserError(in_use()) from error
    try:
        yield
    finally:
        lock.release()
