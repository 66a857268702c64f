"""What the user sees while a run is going on."""

import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    track,
)

T = TypeVar("T")
MANY_IMAGES = 2000  # fewer are read before a bar would be seen


def reading_bar(items: Iterable[T], description: str, total: int) -> Iterable[T]:
    """A bar for reading image files, where that takes long and somebody watches."""
    console = Console(stderr=True)
    silent = total < MANY_IMAGES or not console.is_terminal
    return track(items, description, total, console=console, transient=True, disable=silent)


class RunProgress:
    """Two bars: the tasks of the run, and the phase that is running. Silent when quiet.

    With `titles` there is one task only, and its phases are called by these names.
    """

    def __init__(self, tasks: int, quiet: bool, titles: Mapping[str, str] | None = None) -> None:
        self.quiet, self.titles = quiet, titles
        self.console = Console(stderr=True, quiet=quiet)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=8),  # all of it should fit into 80 columns
            MofNCompleteColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[info]}"),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
        )
        self._run = self._bars.add_task("tasks", total=tasks, info="", visible=titles is None)
        self._phase = self._bars.add_task("", total=None, info="", visible=False)
        self._started = time.monotonic()
        self._counts_steps = False

    def __enter__(self) -> "RunProgress":
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def tasks_done(self, count: int) -> None:
        self._bars.update(self._run, completed=count)

    def phase(self, task: int, name: str, steps: int, done: int = 0) -> None:
        """A phase starts (or goes on at step `done`); with 0 steps it counts what it looks at."""
        self._started = time.monotonic()
        self._counts_steps = steps > 0
        title = f"task {task + 1} · {name}" if self.titles is None else self.titles.get(name, name)
        self._bars.remove_task(self._phase)  # a bar cannot lose its total
        self._phase = self._bars.add_task(title, total=steps or None, completed=done, info="")

    def step(self, done: int, images: int, epoch: str = "", loss: float | None = None) -> None:
        """`done` steps of the phase are over; `images` went through since it started."""
        rate = images / max(time.monotonic() - self._started, 1e-9)
        told = [f"epoch {epoch}"] if epoch else []
        told += [f"loss {loss:.2f}"] if loss is not None else []
        told += [f"{rate:,.0f} images/s"]
        self._bars.update(self._phase, completed=done, info=" · ".join(told))

    def looked(self, done: int, images: int) -> None:
        """`done` of so many images were looked at."""
        if not self._counts_steps:
            self._bars.update(self._phase, total=images, completed=done)

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, highlight=False)
