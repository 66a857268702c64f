"""How images are read: values that are known before anything heavy is imported."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from hashprompt.options.stream import Labels, ReadOptions

__all__ = ["HOLD_OUT", "Labels", "ReadOptions", "Track", "untracked"]

T = TypeVar("T")
HOLD_OUT = "toolkit-v1"  # name of our split; changing how it draws means a new name


class Track(Protocol):
    """Shows how far a loop is, as `rich.progress.track` and `tqdm` do."""

    def __call__(self, items: Iterable[T], description: str, total: int) -> Iterable[T]: ...


def untracked(items: Iterable[T], description: str, total: int) -> Iterable[T]:
    """Shows nothing."""
    return items
