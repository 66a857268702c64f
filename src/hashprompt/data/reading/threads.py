"""Threads that read and decode images."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


@cache
def reading_threads() -> ThreadPoolExecutor:
    """Threads for decoding: Pillow lets go of the interpreter while it works."""
    return ThreadPoolExecutor(max(1, min(8, os.cpu_count() or 1)), "decode")


def in_threads(function: Callable[[S], T], items: Iterable[S]) -> Iterable[T]:
    """`function` of each item, in order."""
    return reading_threads().map(function, items)
