"""From the events of a run to the rows of a log."""

import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hashprompt.engine.callbacks import Callback, StepEnd
from hashprompt.errors import shortened
from hashprompt.loggers.log import Log, Row

STEP_SECONDS = 1.0  # between two steps that are logged; the last of a phase always is
OF_TASK = ("average", "new_classes", "task_inference")


class RunLogger(Callback):
    """Logs a run. A log that fails must not cost the run: that is said once, and it is left.

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

        def start() -> None:
            self._log = self._make(folder, {**names, **config["options"]})

        self._try(start)

    def on_step_end(self, step: StepEnd) -> None:
        now = time.monotonic()
        is_last = step.done == step.epochs * step.steps
        if now - self._logged_at < STEP_SECONDS and not is_last:
            return
        self._logged_at = now
        about: dict[str, str | int]
        about = {"task": step.task + 1, "phase": step.phase, "epoch": step.epoch + 1}
        rates = {f"rate_{number}": rate for number, rate in enumerate(step.rates, 1)}
        self._write(Row("steps", step.total, about, {"loss": step.loss, **rates}))

    def on_evaluation_end(self, entry: Mapping[str, Any], stages: int) -> None:
        known = entry["accuracy"]
        accuracy = {
            f"accuracy_{task + 1}": known[task] if task < len(known) else None
            for task in range(stages)
        }
        values = {**{name: entry[name] for name in OF_TASK}, **accuracy}
        self._write(Row("tasks", entry["task"] + 1, {}, values))

    def on_run_end(self, result: Mapping[str, Any] | None) -> None:
        if result is not None:
            self._write(Row("final", len(result["accuracy"]), {}, result["metrics"]))
        log = self._log
        if log is not None:
            self._try(lambda: log.close(finished=result is not None))

    def _write(self, row: Row) -> None:
        log = self._log
        if log is not None:
            self._try(lambda: log.write(row))

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # a full disk, a server that is gone, whatever a package raises
            self._log = None
            warnings.warn(
                f"The {self._name} log ends here: {shortened(error, 200)} The run goes on.",
                stacklevel=2,
            )
