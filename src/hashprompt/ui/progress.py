"""Progress of runs and of own photos, on the terminal."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich import progress
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from hashprompt.engine.callbacks import Callback, StepEnd
from hashprompt.ui.terminal import Terminal, styled


class LineColumn(progress.TextColumn):
    """Text next to a bar: one line, without markup."""

    def render(self, task: progress.Task) -> Text:
        return styled(self.text_format.format(task=task))


@contextmanager
def photo_bar(description: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar that counts photos; call the function with the number of further photos."""
    console = Terminal(stderr=True)
    with progress.Progress(
        LineColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        LineColumn("ETA"),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    ) as bars:
        task = bars.add_task(description, total=total)
        yield lambda count: bars.advance(task, count)


@contextmanager
def live_view(quiet: bool = False) -> Iterator[Callable[[Callable[[], RenderableType]], None]]:
    """A view that is redrawn in place on a terminal, and removed at the end."""
    console = Terminal(stderr=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(make: Callable[[], RenderableType]) -> None:
            if not quiet and console.is_terminal:
                live.update(make(), refresh=True)

        yield show


class ProgressBars(Callback):
    """Two bars: the tasks of the run, and the current phase.

    Args:
        titles: names of the phases of a run of one task, which has no separate bar then.
    """

    def __init__(self, titles: Mapping[str, str] | None = None) -> None:
        self.titles = titles
        self.console = Terminal(stderr=True)
        self._bars = progress.Progress(
            LineColumn("{task.description}"),
            progress.BarColumn(bar_width=8),  # to fit into 80 columns
            progress.MofNCompleteColumn(),
            LineColumn("ETA"),
            progress.TimeRemainingColumn(),
            LineColumn("{task.fields[info]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._run = self._bars.add_task("tasks", total=None, info="", visible=titles is None)
        self._phase = self._bars.add_task("", total=None, info="", visible=False)
        self._started = time.monotonic()
        self._counts_images = False  # else steps, or tested images

    def on_start(self, tasks: int, done: int) -> None:
        self._bars.update(self._run, total=tasks, completed=done)
        self._bars.start()

    def on_stop(self) -> None:
        self._bars.stop()

    def on_task_end(self, task: int) -> None:
        self._bars.update(self._run, completed=task + 1)

    def on_phase_start(self, task: int, phase: str, steps: int, done: int) -> None:
        self._started, self._counts_images = time.monotonic(), steps == 0
        named = self.titles.get(phase, phase) if self.titles else f"task {task + 1} · {phase}"
        self._bars.remove_task(self._phase)  # a bar cannot lose its total
        self._phase = self._bars.add_task(named, total=steps or None, completed=done, info="")

    def on_step_end(self, step: StepEnd) -> None:
        epoch = f"epoch {step.epoch + 1}/{step.epochs} · loss {step.loss:.2f} · "
        self._bars.update(self._phase, completed=step.done, info=epoch + self._speed(step.images))

    def on_images_seen(self, done: int, total: int) -> None:
        if self._counts_images:
            self._bars.update(self._phase, total=total, completed=done)

    def on_images_tested(self, done: int) -> None:
        self._bars.update(self._phase, completed=done, info=self._speed(done))

    def _speed(self, images: int) -> str:
        return f"{images / max(time.monotonic() - self._started, 1e-9):,.0f} images/s"

    def on_evaluation_end(self, entry: Mapping[str, Any], stages: int) -> None:
        parts = [f"average {entry['average']:.2f} %"]
        if entry["new_classes"] is not None:
            parts.append(f"new classes {entry['new_classes']:.2f} %")
        if entry["task_inference"] is not None:
            parts.append(f"task inference {entry['task_inference']:.1f} %")
        self.on_message(f"task {entry['task'] + 1}/{stages}: {', '.join(parts)}")

    def on_message(self, text: str) -> None:
        self.console.print(styled(text))
