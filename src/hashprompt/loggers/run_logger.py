"""Turns the events of a run into rows of a log."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hashprompt.engine.callbacks import Callback, StepEnd
from hashprompt.errors import shortened
from hashprompt.loggers.log import Log, Row

STEP_SECONDS = 1.0  # between two logged steps; the last step of a phase is always logged
OF_TASK = ("average", "new_classes", "task_inference")


class RunLogger(Callback):
    """Logs a run. A log that fails warns once and ends; the run continues.

    Args:
        name: of the log, for messages.
        make: the log, from the run directory and the options.
    """

    def __init__(self, name: str, make: Callable[[Path, Mapping[str, Any]], Log]) -> None:
        self._name, self._make = name, make
        self._log: Log | None = None
        self._logged_at = -STEP_SECONDS

    def on_run_start(self, folder: Path, config: Mapping[str, Any]) -> None:
        names = {k: v for k, v in config.items() if k != "options"}
        with self._never_failing():
            self._log = self._make(folder, {**names, **config["options"]})

    def on_step_end(self, step: StepEnd) -> None:
        now = time.monotonic()
        is_last = step.done == step.epochs * step.steps
        if now - self._logged_at < STEP_SECONDS and not is_last:
            return
        self._logged_at = now
        about = {"task": step.task + 1, "phase": step.phase, "epoch": step.epoch + 1}
        rates = {f"rate_{number}": rate for number, rate in enumerate(step.rates, 1)}
        self._write(Row("steps", step.total, about, {"loss": step.loss, **rates}))

    def on_evaluation_end(self, entry: Mapping[str, Any], stages: int) -> None:
        known = [*entry["accuracy"], *[None] * stages][:stages]
        accuracy = {f"accuracy_{number}": percent for number, percent in enumerate(known, 1)}
        values = {**{name: entry[name] for name in OF_TASK}, **accuracy}
        self._write(Row("tasks", entry["task"] + 1, {}, values))

    def on_run_end(self, result: Mapping[str, Any] | None) -> None:
        if result is not None:
            self._write(Row("final", len(result["accuracy"]), {}, result["metrics"]))
        with self._never_failing():
            if self._log is not None:
                self._log.close(finished=result is not None)

    def _write(self, row: Row) -> None:
        with self._never_failing():
            if self._log is not None:
                self._log.write(row)

    @contextmanager
    def _never_failing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a full disk, a server that is gone, any error of a package
            self._log = None
            warnings.warn(
                f"The {self._name} log ends here: {shortened(error, 200)} The run continues.",
                stacklevel=2,
            )
