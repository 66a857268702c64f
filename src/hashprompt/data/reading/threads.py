"""Threads that read and decode images."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Condition
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Item = TypeVar("Item")
Result = TypeVar("Result")
MIN_TRACKED = 2000  # fewer images are read at once


@cache
def reading_threads() -> ThreadPoolExecutor:
    """Threads for decoding: Pillow releases the interpreter lock while it works."""
    return ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1)), "decode")


def map_images(
    function: Callable[[Item], Result], items: Sequence[Item], description: str
) -> Iterable[Result]:
    """The results of a function for each item, in order; many get a bar on the terminal."""
    results, console = reading_threads().map(function, items), Console(stderr=True)
    hidden = len(items) < MIN_TRACKED or not console.is_terminal
    return track(results, description, len(items), console=console, transient=True, disable=hidden)


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
