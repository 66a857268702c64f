"""Progress and the hold-out split of readers. Imports nothing heavy."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")
HOLD_OUT = "toolkit-v1"  # name of our split; another way of drawing needs a new name


class Track(Protocol):
    """Shows the progress of a loop, as `rich.progress.track` and `tqdm` do."""

    def __call__(self, items: Iterable[T], description: str, total: int) -> Iterable[T]: ...


def untracked(items: Iterable[T], description: str, total: int) -> Iterable[T]:
    """Shows nothing."""
    return items
