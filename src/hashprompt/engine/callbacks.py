"""Events of a run, for progress bars, loggers and servers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StepEnd:
    """A finished training step.

    Args:
        task, epoch, step: counted from 0.
        epochs, steps: of the phase, and of each epoch.
        images: since the phase started or resumed.
        loss: the sum of all losses.
        rates: learning rate of each parameter group.
        total: steps of the run so far, over all its parts.
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
        """Finished steps of the phase."""
        return self.epoch * self.steps + self.step + 1


class Callback:
    """Override the events that you need. Tasks are counted from 0."""

    def on_run_start(self, folder: Path, config: Mapping[str, Any]) -> None:
        """A run starts or resumes, with its run directory and its plan."""

    def on_start(self, tasks: int, done: int) -> None:
        """Training on a stream starts or resumes, after `done` of its tasks."""

    def on_phase_start(self, task: int, phase: str, steps: int, done: int) -> None:
        """A phase starts or resumes. With 0 steps it is a computation over images.

        The steps of an evaluation are images.
        """

    def on_step_end(self, step: StepEnd) -> None:
        """A training step is finished."""

    def on_images_seen(self, done: int, total: int) -> None:
        """`done` of `total` images of a forward pass without gradients are done."""

    def on_images_tested(self, done: int) -> None:
        """`done` images of an evaluation are tested."""

    def on_evaluation_end(self, entry: Mapping[str, Any], stages: int) -> None:
        """The model was tested.

        Args:
            entry: of `after_task`, with `accuracy` in percent on each task so far.
            stages: number of such entries at the end of the run.
        """

    def on_task_end(self, task: int) -> None:
        """A task is trained, tested and saved."""

    def on_message(self, text: str) -> None:
        """A message for the user."""

    def on_stop(self) -> None:
        """Training ends, or is interrupted by an error."""

    def on_run_end(self, result: Mapping[str, Any] | None) -> None:
        """A run ends, with the content of its `result.json`; None if it was interrupted.

        The result is not on disk yet: after a kill at this point, the event is repeated.
        """


class Callbacks(Callback):
    """Several callbacks in one."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self._all = list(callbacks)

    def add(self, callback: Callback) -> None:
        """Add a callback."""
        self._all.append(callback)

    @contextmanager
    def running(self, tasks: int, done: int) -> Iterator[None]:
        """Calls `on_start`, and `on_stop` at the end, also after an error."""
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
