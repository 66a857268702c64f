"""Events of a run, for progress bars, loggers and servers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StepEnd:
    """A step of training is over.

    Args:
        task, epoch, step: from 0.
        epochs, steps: of the phase, and of each epoch.
        images: that went through since the phase started or was resumed.
        loss: the sum that was minimised.
        rates: of each parameter group.
        total: steps since the run began, this one included; goes on where a run is resumed.
    """

    task: int
    phase: str
    epoch: int
    epochs: int
    step: int
    steps: int
    images: int
    loss: float
    rates: tuple[float, ...]
    total: int

    @property
    def done(self) -> int:
        """Steps of the phase that are over."""
        return self.epoch * self.steps + self.step + 1


class Callback:
    """Override the events that you need. Tasks are counted from 0."""

    def on_run_start(self, folder: Path, config: Mapping[str, Any]) -> None:
        """A run of `benchmark` begins, or goes on: its run directory and its plan."""

    def on_start(self, tasks: int, done: int) -> None:
        """Work begins on a stream of so many tasks, or goes on after some of them."""

    def on_phase_start(self, task: int, phase: str, steps: int, done: int) -> None:
        """A phase begins, or goes on; with 0 steps it is a computation over images.

        Of an evaluation the steps are the images to be tested.
        """

    def on_step_end(self, step: StepEnd) -> None:
        """A step of training is over."""

    def on_images_seen(self, done: int, total: int) -> None:
        """So many images of a pass without gradients were seen."""

    def on_images_tested(self, done: int) -> None:
        """So many images of an evaluation were tested."""

    def on_evaluation_end(self, entry: Mapping[str, Any], stages: int) -> None:
        """The learner was tested: an entry of `after_task`, and how many there will be.

        Beside it the entry has `accuracy`, in percent on each task so far.
        """

    def on_task_end(self, task: int) -> None:
        """A task is learned, tested and saved."""

    def on_message(self, text: str) -> None:
        """Something the user should know."""

    def on_stop(self) -> None:
        """Work ends, or is cut off by an error."""

    def on_run_end(self, result: Mapping[str, Any] | None) -> None:
        """A run of `benchmark` ends, with the content of its `result.json`; None if it was cut off.

        The result is not on disk yet: who is killed here is told again.
        """


class Callbacks(Callback):
    """Several callbacks as one."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self._all = list(callbacks)

    def add(self, callback: Callback) -> None:
        """One more is told."""
        self._all.append(callback)

    @contextmanager
    def running(self, tasks: int, done: int) -> Iterator[None]:
        """From start to stop, whatever happens in between."""
        self.on_start(tasks, done)
        try:
            yield
        finally:
            self.on_stop()


def _forwarded(event: str) -> Callable[..., None]:
    def call_all(self: Callbacks, *args: Any, **named: Any) -> None:
        for callback in self._all:
            getattr(callback, event)(*args, **named)

    return call_all


for _event in [name for name in vars(Callback) if name.startswith("on_")]:
    setattr(Callbacks, _event, _forwarded(_event))
