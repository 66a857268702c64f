"""One cell: run it, or go on with it, and keep its result."""

import os
import platform
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hashprompt.engine.callbacks import Callback, StepEnd
from hashprompt.runs.plan import Plan
from hashprompt.sweeps.folder import SweepFolder


class ProgressFile(Callback):
    """Tells other processes where a cell stands, through a small file."""

    def __init__(self, folder: SweepFolder, digest: str) -> None:
        self._folder, self._digest = folder, digest
        self._written = 0.0
        self._now: dict[str, Any] = {
            "where": f"{platform.node()} · {os.getpid()}",
            "started": time.time(),
            **dict.fromkeys(("first_task", "tasks", "task", "done", "steps"), 0),
            "phase": "",
        }

    def on_start(self, tasks: int, done: int) -> None:
        self._tell(tasks=tasks, task=done, first_task=done)

    def on_phase_start(self, task: int, phase: str, steps: int, done: int) -> None:
        self._tell(task=task, phase=phase, steps=steps, done=done)

    def on_step_end(self, step: StepEnd) -> None:
        if time.time() - self._written > self._folder.report_seconds:
            self._tell(done=step.done)

    def on_images_tested(self, done: int) -> None:
        if time.time() - self._written > self._folder.report_seconds:
            self._tell(done=done)

    def on_task_end(self, task: int) -> None:
        self._tell(task=task + 1, phase="", done=0, steps=0)

    def _tell(self, **changes: Any) -> None:
        self._written = time.time()
        self._now |= {**changes, "updated": self._written}
        self._folder.write_progress(self._digest, self._now)


def run_cell(
    folder: SweepFolder,
    planned: Plan,
    ask: Mapping[str, Mapping[str, Any]],
    callbacks: Sequence[Callback] = (),
) -> None:
    """Run a plan in its place below a sweep's folder, from its last checkpoint if it has one.

    Args:
        ask: the finished learner is tested again with these options: name -> options.
        callbacks: told what happens.
    """
    from hashprompt.runs import benchmark  # imports torch

    digest = planned.digest
    # Files may lie elsewhere than when the cell was begun, and devices may be others.
    how: dict[str, Any] = {"quiet": True, "download": True, "planned": planned}
    with folder.checked_out(digest) as (place, copies):
        told = [ProgressFile(folder, digest), *callbacks, *copies]
        if (place / "config.json").is_file():
            result = benchmark.resume(place, callbacks=told, **how)
        else:
            result = benchmark.execute(planned, place, quiet=True, callbacks=told)
        asked = folder.answers(planned)
        if ask:
            folder.keep_result(digest, {**result.data, "asked": asked})  # whatever comes of asking
        for name, options in ask.items():
            asked[name] = {**benchmark.evaluate(place, **how, **options), "options": options}
    folder.keep_result(digest, {**result.data, "asked": asked})
