"""Jobs of a sweep: their description, their execution, and the process that executes them."""

import os
import platform
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from hashprompt.engine.callbacks import Callback, StepEnd
from hashprompt.engine.interrupts import Interruption
from hashprompt.errors import UserError, shortened
from hashprompt.loggers import make_loggers
from hashprompt.runs.plan import Plan, plan_of
from hashprompt.runs.worker_process import carry_out_orders
from hashprompt.sweeps.folder import SweepFolder, open_folder


@dataclass(frozen=True)
class SweepJob:
    """A run that has no result yet. It can be sent to another machine as JSON."""

    folder: str  # of the sweep: a path, or a URI
    digest: str
    plan: dict[str, Any]
    evaluate: dict[str, dict[str, Any]] = field(default_factory=dict)  # see `Grid.evaluate`
    log: Sequence[str] = ()  # names of loggers


@dataclass(frozen=True)
class SweepOutcome:
    """How an attempt at a job ended.

    `refused` is invalid input, which another attempt would not change; `stopped` was requested.
    """

    kind: Literal["done", "refused", "failed", "stopped"]
    error: str = ""
    traceback: str = ""


Evaluations = Mapping[str, Mapping[str, Any]]  # see `Grid.evaluate`
Report = Callable[[SweepJob, SweepOutcome, int], None]  # after the last attempt; their number


class ProgressFile(Callback):
    """Reports the position of a run to other processes, through a small file."""

    def __init__(self, folder: SweepFolder, digest: str) -> None:
        self._folder, self._digest = folder, digest
        self._written = 0.0
        self._now: dict[str, Any] = {
            "machine": platform.node(),
            "process": os.getpid(),
            "started": time.time(),
            **dict.fromkeys(("first_task", "tasks", "task", "done", "steps"), 0),
            "phase": "",
        }

    def on_start(self, tasks: int, done: int) -> None:
        self._write(tasks=tasks, task=done, first_task=done)

    def on_phase_start(self, task: int, phase: str, steps: int, done: int) -> None:
        self._write(task=task, phase=phase, steps=steps, done=done)

    def on_step_end(self, step: StepEnd) -> None:
        self.on_images_tested(step.done)

    def on_images_tested(self, done: int) -> None:
        if time.time() - self._written > self._folder.report_seconds:
            self._write(done=done)

    def on_task_end(self, task: int) -> None:
        self._write(task=task + 1, phase="", done=0, steps=0)

    def _write(self, **changes: Any) -> None:
        self._written = time.time()
        self._now |= {**changes, "updated": self._written}
        self._folder.write_progress(self._digest, self._now)


def execute(
    folder: SweepFolder, planned: Plan, evaluate: Evaluations, callbacks: Sequence[Callback] = ()
) -> None:
    """Execute or resume a run of a sweep, and store its result.

    Args:
        evaluate: options of prediction, by name, with which the finished model is tested again.
    """
    from hashprompt.runs import benchmark  # imports torch

    digest = planned.digest
    # Files and devices may be others than when the run began.
    current: dict[str, Any] = {"quiet": True, "download": True, "plan": planned}
    with folder.checked_out(digest) as (place, copies):
        listeners = [ProgressFile(folder, digest), *callbacks, *copies]
        if (place / "config.json").is_file():
            result = benchmark.resume(place, callbacks=listeners, **current)
        else:
            result = benchmark.execute(planned, place, quiet=True, callbacks=listeners)
        found = dict((folder.ledger.find(planned) or {}).get("evaluations", {}))
        if evaluate:  # an evaluation may fail, which must not cost the result
            folder.write_result(digest, {**result.data, "evaluations": found})
        for name, options in evaluate.items():
            found[name] = {**benchmark.evaluate(place, **current, **options), "options": options}
    folder.write_result(digest, {**result.data, "evaluations": found})


def attempt(job: SweepJob) -> SweepOutcome:
    """Run a job in this process. Errors are returned, not raised."""
    try:
        execute(open_folder(job.folder), plan_of(job.plan), job.evaluate, make_loggers(job.log))
    except Interruption:
        return SweepOutcome("stopped")
    except UserError as error:
        return SweepOutcome("refused", str(error))
    except Exception as error:  # one failing run stops no other
        text = f"{type(error).__name__}: {shortened(error, 500)}"
        return SweepOutcome("failed", text, traceback.format_exc())
    return SweepOutcome("done")


if __name__ == "__main__":
    carry_out_orders(lambda order, report: report(asdict(attempt(SweepJob(**order)))))
