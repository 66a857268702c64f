"""Runs the cells of a grid with an engine, and shows how far they are."""

import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hashprompt.engine.interrupts import Interrupted
from hashprompt.errors import UserError
from hashprompt.loggers import make_loggers
from hashprompt.storage.lock import locked
from hashprompt.sweeps.folder import CellState, SweepFolder, open_folder
from hashprompt.sweeps.grid import Cell
from hashprompt.sweeps.jobs import Job, Outcome, Tell
from hashprompt.sweeps.tables import ResultTable, StatusTable
from hashprompt.ui.progress import live_view
from hashprompt.ui.terminal import styled


class Engine(Protocol):
    """Who runs jobs: processes, a cluster."""

    @property
    def workers(self) -> int | None:
        """Cells at a time; None: as many as there is room for."""

    def start(self, jobs: Sequence[Job], tell: Tell) -> None:
        """Begin; `tell` may be called from any thread."""

    @property
    def is_working(self) -> bool:
        """Whether there is something left to wait for."""

    def stop(self) -> None:
        """Save all cells in hand, begin no other, and wait for that."""


@dataclass(frozen=True)
class Sweep:
    """A sweep, finished or not."""

    folder: SweepFolder
    cells: tuple[Cell, ...]

    @classmethod
    def load(cls, path: str | Path) -> "Sweep":
        """What is in the folder of a sweep."""
        folder = open_folder(path)
        return cls(folder, tuple(folder.read_cells()))

    def states(self) -> list[tuple[Cell, CellState]]:
        """All cells of the grid, and where they stand now."""
        self.folder.refresh()
        now = time.time()
        return [(cell, self.folder.state(cell, now)) for cell in self.cells]

    def results(self) -> dict[str, list[dict[str, Any]]]:
        """Results of the finished cells, by row."""
        found: dict[str, list[dict[str, Any]]] = {}
        for cell, state in self.states():
            if state.state == "done":
                found.setdefault(cell.row, []).append(state.details)
        return found

    @property
    def failures(self) -> dict[str, str]:
        """Errors of the cells that failed, by digest."""
        return {c.digest: s.details["error"] for c, s in self.states() if s.state == "failed"}

    def table(self) -> ResultTable:
        """Mean and deviation over the seeds of each row."""
        return ResultTable(self.states())

    def status(self) -> StatusTable:
        """How far it is."""
        return StatusTable(self.states())


def make_engine(name: str, workers: int | None, retries: int, **how: Any) -> Engine:
    """An engine by its name."""
    if workers is not None and workers < 1:
        raise UserError(f"workers={workers}: at least one has to work.")
    if retries < 0:
        raise UserError(f"retries={retries}: give 0 for none.")
    if name == "ray":
        from hashprompt.sweeps.ray_engine import RayEngine

        return RayEngine(workers, retries, **how)
    if name != "processes":
        raise UserError(f"Unknown engine `{name}`. There are: processes, ray.")
    if how:
        raise UserError(f"{', '.join(how)}: only for the engine ray.")
    from hashprompt.sweeps.processes import Processes

    return Processes(workers, retries)


def run_sweep(
    cells: Sequence[Cell], out: str | Path, engine: Engine, quiet: bool, log: Sequence[str] = ()
) -> Sweep:
    """Run the cells that have no result yet.

    Args:
        log: names of loggers, for each cell.

    Raises:
        Interrupted: on Ctrl-C, when all cells in hand are saved.
    """
    make_loggers(log)  # refuses what is unknown before anything is run
    folder = open_folder(out)
    sweep = Sweep(folder, tuple(cells))
    busy = f"Another sweep works in {out}. Wait for it, or choose another --out."
    with locked(folder.path, lambda: busy):  # at a URI nobody can be kept out
        folder.write_cells(cells)
        jobs = _jobs(sweep, log)
        for job in jobs:
            folder.forget_attempts(job.digest)
        if jobs:
            _run(sweep, jobs, engine, quiet)
    return sweep


def _jobs(sweep: Sweep, log: Sequence[str]) -> list[Job]:
    """What is left to do; a cell that two rows share is one job."""
    place = sweep.folder.address
    jobs: dict[str, Job] = {}
    for cell, state in sweep.states():
        if state.state != "done":
            ask = {**jobs[cell.digest].ask, **cell.ask} if cell.digest in jobs else cell.ask
            jobs[cell.digest] = Job(place, cell.digest, cell.plan.to_dict(), ask, tuple(log))
    return list(jobs.values())


def _run(sweep: Sweep, jobs: Sequence[Job], engine: Engine, quiet: bool) -> None:
    ended = threading.Event()

    def tell(job: Job, outcome: Outcome, attempts: int) -> None:
        try:
            if outcome.kind == "stopped":
                sweep.folder.forget_attempts(job.digest)
            elif outcome.kind != "done":
                sweep.folder.write_failure(job.digest, outcome.error, outcome.traceback, attempts)
        except OSError as error:  # a full disk must not end the worker that tells
            warnings.warn(f"{job.digest} failed ({outcome.error}), and: {error}", stacklevel=2)
        ended.set()

    with live_view(quiet) as show:
        engine.start(jobs, tell)
        try:
            while engine.is_working:
                show(lambda: sweep.status().to_rich())
                ended.wait(sweep.folder.look_seconds)
                ended.clear()
        except KeyboardInterrupt as error:
            show(lambda: styled("Stopping: running cells are saved …"))
            engine.stop()
            raise Interrupted(
                "Stopped on request; all cells are saved. Go on with the same command."
            ) from error
