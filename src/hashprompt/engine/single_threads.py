"""Work on a CPU shared among threads, each of which computes alone."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

S = TypeVar("S")
T = TypeVar("T")


def map_in_single_threads(function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """`function` of each item, in order, on as many threads as torch would use for one item.

    Where several threads share one matrix product, the last bits of a row depend on where in the
    batch it stands, because the library cuts the matrix between them. A thread that computes
    alone gives a row the same bits in every place of every batch (measured, from four rows on).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for us, and for the threads that begin now
    waiting: deque[Future[T]] = deque()
    try:
        with ThreadPoolExecutor(threads, "features") as pool:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads:  # no more images in memory than are worked on
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        torch.set_num_threads(threads)
