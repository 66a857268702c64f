"""Threads that read and decode images."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Condition


@cache
def reading_threads() -> ThreadPoolExecutor:
    """Threads for decoding: Pillow releases the interpreter lock while it works."""
    return ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1)), "decode")


class Budget:
    """An amount that threads share; a thread that needs more than is left waits for others."""

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit
        self._returned = Condition()

    @contextmanager
    def taken(self, amount: int) -> Iterator[None]:
        amount = min(amount, self.limit)  # a single thread may always proceed
        with self._returned:
            self._returned.wait_for(lambda: self.left >= amount)
            self.left -= amount
        try:
            yield
        finally:
            with self._returned:
                self.left += amount
                self._returned.notify_all()
