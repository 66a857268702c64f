"""A sweep: its runs, their states and results as tables; running it with an engine."""

import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from hashprompt.engine.interrupts import Interruption
from hashprompt.errors import UserError
from hashprompt.loggers import make_loggers
from hashprompt.report.compare import METRICS
from hashprompt.report.measures import MEASURES
from hashprompt.report.text_table import Stat, TextTable
from hashprompt.runs.plan import without_folders
from hashprompt.storage.lock import locked
from hashprompt.sweeps.engines import Engine
from hashprompt.sweeps.folder import RunStatus, SweepFolder, open_folder
from hashprompt.sweeps.grid import GridRun
from hashprompt.sweeps.jobs import SweepJob, SweepOutcome
from hashprompt.ui.progress import live_view
from hashprompt.ui.terminal import styled

MAX_LISTED = 20  # runs that fit into a terminal


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

    def states(self) -> list[tuple[GridRun, RunStatus]]:
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
        """Mean and deviation over seeds: a line per row, stream and backbone."""
        groups: dict[tuple[str, str, str], list[RunStatus]] = {}
        for run, state in self.states():
            names = without_folders(run.plan.to_dict())
            groups.setdefault((run.row, names["stream"], names["backbone"]), []).append(state)
        rows = []
        for group, found in groups.items():
            done = [state.details for state in found if state.state == "done"]
            stats = [Stat.of([MEASURES[m](result) for result in done]) for m in METRICS]
            count = f"{len(done)}" if len(done) == len(found) else f"{len(done)}/{len(found)}"
            rows.append([*group, count, *("–" if stat is None else str(stat) for stat in stats)])
        header = ["row", "stream", "backbone", "n", *METRICS]
        return TextTable("Accuracies in %, mean ± std over n seeds", header, rows)

    def status(self) -> TextTable:
        """Active and failed runs; the others are counted in the title."""
        different = {run.digest: (run, state) for run, state in self.states()}.values()
        kinds = [state.state for _, state in different]
        counts = (f"{kinds.count(k)} {k}" for k in ("done", "running", "failed", "waiting"))
        header = ["row", "seed", "stream", "state", "task", "now", "ETA"]
        shown = [pair for pair in different if pair[1].state in ("running", "failed")]
        rows = [_status_line(run, state) for run, state in shown[:MAX_LISTED]]
        return TextTable(f"{len(kinds)} runs: {', '.join(counts)}", header, rows)


def _status_line(run: GridRun, state: RunStatus) -> list[str]:
    stream = without_folders(run.plan.to_dict())["stream"]
    about = [run.row, str(run.plan.seed), stream, state.state]
    found = state.details
    if state.state == "failed":
        return [*about, "", f"{found['attempts']} attempts", ""]
    share = found["done"] / found["steps"] if found["steps"] else 0.0
    done = found["task"] - found["first_task"] + 0.5 * share  # training is about half of a task
    left = found["tasks"] - found["task"] - 0.5 * share
    seconds = (time.time() - found["started"]) * left / done if done > 0 else None
    remaining = "–" if seconds is None else str(timedelta(seconds=round(seconds)))
    task = f"{min(found['task'] + 1, found['tasks'])}/{found['tasks']}"
    progress = f"{found['phase']} {found['done']}/{found['steps']}" if found["steps"] else ""
    return [*about, task, progress or found["phase"], remaining]


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
        jobs: dict[str, SweepJob] = {}  # a run that two rows share is one job
        for run, state in sweep.states():
            if state.state != "done":
                others = jobs[run.digest].evaluate if run.digest in jobs else {}
                evaluate = {**others, **run.evaluate}
                about = (folder.address, run.digest, run.plan.to_dict(), evaluate)
                jobs[run.digest] = SweepJob(*about, tuple(log))
        for digest in jobs:
            folder.clear_state(digest)
        if jobs:
            _run(sweep, list(jobs.values()), engine, quiet)
    return sweep


def _run(sweep: Sweep, jobs: Sequence[SweepJob], engine: Engine, quiet: bool) -> None:
    ended = threading.Event()

    def report(job: SweepJob, outcome: SweepOutcome, attempts: int) -> None:
        try:
            if outcome.kind == "stopped":
                sweep.folder.clear_state(job.digest)
            elif outcome.kind != "done":
                sweep.folder.write_failure(job.digest, outcome.error, outcome.traceback, attempts)
        except (OSError, UserError) as error:  # a full disk must not end the thread
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
