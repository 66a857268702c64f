"""How images are read: values that are known before anything heavy is imported."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

T = TypeVar("T")
Labels = Literal["fine", "coarse"]
HOLD_OUT = "toolkit-v1"  # name of our split; changing how it draws means a new name


@dataclass(frozen=True)
class ReadOptions:
    """How image files are read.

    Args:
        short_side: reduce larger images to this when they are read.
        memory_gb: decoded images are kept in memory up to so many GB.
        unreadable: `stop` with the names of files that cannot be read, or `skip` and count them.
        upright: turn photos as the camera was held. Off for the published benchmarks, whose
            code did not.
    """

    short_side: int | None = None
    memory_gb: float = 4.0
    unreadable: Literal["stop", "skip"] = "stop"
    upright: bool = True


class Track(Protocol):
    """Shows how far a loop is, as `rich.progress.track` and `tqdm` do."""

    def __call__(self, items: Iterable[T], description: str, total: int) -> Iterable[T]: ...


def untracked(items: Iterable[T], description: str, total: int) -> Iterable[T]:
    """Shows nothing."""
    return items
