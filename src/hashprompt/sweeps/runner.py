"""Runs the jobs of a grid with an engine, and shows their progress."""

import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hashprompt.engine.interrupts import Interruption
from hashprompt.loggers import make_loggers
from hashprompt.report.text_table import TextTable
from hashprompt.storage.lock import locked
from hashprompt.sweeps.engines import Engine
from hashprompt.sweeps.folder import RunState, SweepFolder, open_folder
from hashprompt.sweeps.grid import GridRun
from hashprompt.sweeps.jobs import SweepJob, SweepOutcome
from hashprompt.sweeps.tables import result_table, status_table
from hashprompt.ui.progress import live_view
from hashprompt.ui.terminal import styled


@dataclass(frozen=True)
class Sweep:
    """A sweep, finished or not."""

    folder: SweepFolder
    runs: tuple[GridRun, ...]

    @classmethod
    def load(cls, path: str | Path) -> "Sweep":
        """The sweep in a folder."""
        folder = open_folder(path)
        return cls(folder, tuple(folder.read_runs()))

    def states(self) -> list[tuple[GridRun, RunState]]:
        """All runs of the grid with their current states."""
        self.folder.refresh()
        now = time.time()
        return [(run, self.folder.state(run, now)) for run in self.runs]

    def results(self) -> dict[str, list[dict[str, Any]]]:
        """Results of the finished runs, by row."""
        found: dict[str, list[dict[str, Any]]] = {}
        for run, state in self.states():
            if state.state == "done":
                found.setdefault(run.row, []).append(state.details)
        return found

    @property
    def failures(self) -> dict[str, str]:
        """Errors of the runs that failed, by digest."""
        return {r.digest: s.details["error"] for r, s in self.states() if s.state == "failed"}

    def table(self) -> TextTable:
        """Mean and deviation over the seeds of each row."""
        return result_table(self.states())

    def status(self) -> TextTable:
        """Progress of the runs."""
        return status_table(self.states())


def run_sweep(
    runs: Sequence[GridRun], out: str | Path, engine: Engine, quiet: bool, log: Sequence[str] = ()
) -> Sweep:
    """Execute the runs that have no result yet.

    Args:
        log: names of loggers, for each run.

    Raises:
        Interruption: on Ctrl-C, when all current runs are saved.
    """
    make_loggers(log)  # refuses unknown names before anything starts
    folder = open_folder(out)
    sweep = Sweep(folder, tuple(runs))
    busy = f"Another sweep is running in {out}. Wait for it, or choose another --out."
    with locked(folder.path, lambda: busy):  # a URI cannot be locked
        folder.write_runs(runs)
        jobs = _jobs(sweep, log)
        for job in jobs:
            folder.clear_state(job.digest)
        if jobs:
            _run(sweep, jobs, engine, quiet)
    return sweep


def _jobs(sweep: Sweep, log: Sequence[str]) -> list[SweepJob]:
    """The unfinished runs. A run that two rows share is one job."""
    jobs: dict[str, SweepJob] = {}
    for run, state in sweep.states():
        if state.state != "done":
            others = jobs[run.digest].evaluate if run.digest in jobs else {}
            jobs[run.digest] = SweepJob(
                folder=sweep.folder.address,
                digest=run.digest,
                plan=run.plan.to_dict(),
                evaluate={**others, **run.evaluate},
                log=tuple(log),
            )
    return list(jobs.values())


def _run(sweep: Sweep, jobs: Sequence[SweepJob], engine: Engine, quiet: bool) -> None:
    ended = threading.Event()

    def report(job: SweepJob, outcome: SweepOutcome, attempts: int) -> None:
        try:
            if outcome.kind == "stopped":
                sweep.folder.clear_state(job.digest)
            elif outcome.kind != "done":
                sweep.folder.write_failure(job.digest, outcome.error, outcome.traceback, attempts)
        except OSError as error:  # a full disk must not end the thread
            warnings.warn(f"{job.digest} failed ({outcome.error}), and: {error}", stacklevel=2)
        ended.set()

    with live_view(quiet) as show:
        engine.start(jobs, report)
        try:
            while engine.is_working:
                show(lambda: sweep.status().to_rich())
                ended.wait(sweep.folder.refresh_seconds)
                ended.clear()
        except KeyboardInterrupt as error:
            show(lambda: styled("Stopping: active runs are saved …"))
            engine.stop()
            raise Interruption(
                "Stopped on request; all runs are saved. Resume with the same command."
            ) from error
