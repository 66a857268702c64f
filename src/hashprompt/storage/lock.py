"""One writer at a time: a lock file that is free again when its holder dies."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from hashprompt.errors import UserError
from hashprompt.storage.files import in_words


@contextmanager
def locked(folder: Path, in_use: Callable[[], str]) -> Iterator[None]:
    """Hold the lock of a folder.

    Args:
        folder: is made if it is not there.
        in_use: what to say to whoever comes second.

    Raises:
        UserError: at once, if another holds it or the disk does not take a lock.
    """
    lock = FileLock(folder / ".lock")
    with in_words(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise UserError(in_use()) from error
    try:
        yield
    finally:
        lock.release()
