"""What a sweep keeps on disk or at a URI, and what another terminal can read of it.

OUT/sweep.json               the cells of the grid
OUT/cells/DIGEST/            the run directory of a cell
OUT/ledger/DIGEST.json       its result
OUT/progress/DIGEST.json     where it stands
OUT/failed/DIGEST.json       why it has no result
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any, Literal

from pydantic import Field

from hashprompt.engine.callbacks import Callback
from hashprompt.errors import UserError
from hashprompt.report.ledger import LEDGER, Digest, Ledger
from hashprompt.runs.plan import Plan, plan_of
from hashprompt.runs.run_dir import StoredPlan
from hashprompt.storage.files import Target, as_given, inside, make_folder, remove_file
from hashprompt.storage.json_files import DamagedError, read_json, write_json
from hashprompt.storage.schema import Count, Schema, Values
from hashprompt.sweeps.grid import MAX_CELLS, Cell

State = Literal["done", "running", "failed", "waiting"]
SILENT_SECONDS = 600  # after which a cell that nobody reported on counts as left
ADVICE = "Run the sweep again: finished cells are kept."


class StoredCell(Schema):
    """A cell of the grid: which row of the table it belongs to, and its run."""

    row: str
    digest: Digest
    plan: StoredPlan
    ask: dict[str, Values] = Field(default_factory=dict)


class StoredSweep(Schema):
    """`sweep.json`: the grid that was run last."""

    cells: Annotated[list[StoredCell], Field(max_length=MAX_CELLS)]


class CellProgress(Schema):
    """`progress/DIGEST.json`: where a running cell stands."""

    where: str  # machine and process
    started: float  # seconds since 1970, as the next
    updated: float
    first_task: Count  # where the process began
    tasks: Count
    task: Count
    phase: str
    done: Count  # steps of the phase
    steps: Count


class CellFailure(Schema):
    """`failed/DIGEST.json`: why a cell has no result."""

    error: str
    traceback: str
    attempts: Count


@dataclass(frozen=True)
class CellState:
    """Where a cell stands. `details` are its result, its progress or its failure."""

    state: State
    details: dict[str, Any]


class SweepFolder:
    """The folder of a sweep."""

    look_seconds = 0.5  # between two looks at all cells
    report_seconds = 1.0  # between two reports of where a cell stands

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def address(self) -> str:
        """What other processes find it by."""
        return str(self.path.resolve())

    def refresh(self) -> None:
        """Look at what other processes wrote: here they wrote it into the folder itself."""

    @contextmanager
    def checked_out(self, digest: str) -> Iterator[tuple[Path, Sequence[Callback]]]:
        """A cell's run directory to work in, and whom to tell what happens there."""
        yield self.run_dir(digest), ()

    def _changed(self, *names: str) -> None:
        """A small file was written or removed."""

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(inside(self.path, LEDGER))

    def run_dir(self, digest: str) -> Target:
        return inside(self.path, "cells", digest)

    def write_cells(self, cells: Sequence[Cell]) -> None:
        """Write down what the sweep will run."""
        make_folder(as_given(self.path))
        stored = [
            {"row": c.row, "digest": c.digest, "plan": c.plan.to_dict(), "ask": c.ask}
            for c in cells
        ]
        write_json(inside(self.path, "sweep.json"), {"cells": stored})
        self._changed("sweep.json")

    def read_cells(self) -> list[Cell]:
        """The cells of the grid that was run last."""
        try:
            stored = read_json(inside(self.path, "sweep.json"), StoredSweep, ADVICE)
        except FileNotFoundError as error:
            raise UserError(
                f"{self.path} is not the folder of a sweep: no sweep.json in it. Make one with: "
                f"hashprompt sweep grid.yaml --out {self.path}"
            ) from error
        plans = (plan_of(cell["plan"], files_needed=False) for cell in stored["cells"])
        return [
            Cell(cell["row"], plan, cell.get("ask", {}))
            for cell, plan in zip(stored["cells"], plans, strict=True)
        ]

    def keep_result(self, digest: str, result: dict[str, Any]) -> None:
        """A cell is done."""
        self.ledger.write(digest, result)
        self._changed(LEDGER, f"{digest}.json")
        self.forget_attempts(digest)

    def write_progress(self, digest: str, progress: dict[str, Any]) -> None:
        self._write("progress", f"{digest}.json", progress)

    def write_failure(self, digest: str, error: str, traceback: str, attempts: int) -> None:
        """A cell cannot be done."""
        failure = {"error": error, "traceback": traceback, "attempts": attempts}
        self._write("failed", f"{digest}.json", failure)
        self._remove("progress", f"{digest}.json")

    def forget_attempts(self, digest: str) -> None:
        """Nobody is at work on a cell, and nothing is held against it."""
        for kind in ("failed", "progress"):
            self._remove(kind, f"{digest}.json")

    def answers(self, plan: Plan) -> dict[str, Any]:
        """What a finished cell was asked, and answered."""
        entry = self.ledger.find(plan) or {}
        return dict(entry.get("asked", {}))

    def _write(self, kind: str, name: str, value: dict[str, Any]) -> None:
        write_json(inside(self.path, kind, name), value)
        self._changed(kind, name)

    def _remove(self, kind: str, name: str) -> None:
        remove_file(inside(self.path, kind, name))
        self._changed(kind, name)

    def state(self, cell: Cell, now: float) -> CellState:
        """Where a cell stands at a time, in seconds since 1970."""
        entry = self.ledger.find(cell.plan)
        if entry is not None and _is_answered(cell.ask, entry.get("asked", {})):
            return CellState("done", entry)
        failure = self._read("failed", cell.digest, CellFailure)
        if failure is not None:
            return CellState("failed", failure)
        progress = self._read("progress", cell.digest, CellProgress)
        if progress is not None and now - progress["updated"] < SILENT_SECONDS:
            return CellState("running", progress)
        return CellState("waiting", progress or {})

    def _read(self, kind: str, digest: str, schema: Any) -> dict[str, Any] | None:
        try:
            return read_json(inside(self.path, kind, f"{digest}.json"), schema, ADVICE)
        except (FileNotFoundError, DamagedError):  # it is written anew anyway
            return None


def _is_answered(ask: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether all was asked, and with the same options; early ledgers do not tell with which."""
    return all(
        name in asked and asked[name].get("options", options) == options
        for name, options in ask.items()
    )


def open_folder(place: str | Path) -> SweepFolder:
    """The folder of a sweep at a path, or at a URI that fsspec knows, as `s3://bucket/sweep`."""
    if not is_uri(place):
        return SweepFolder(Path(place))
    from hashprompt.sweeps.remote import RemoteSweepFolder

    return RemoteSweepFolder(str(place))


@contextmanager
def local_places(places: Sequence[str]) -> Iterator[list[Path]]:
    """Paths as they are, and for a sweep at a URI a copy of its ledger, while it is read."""
    remote = {place: open_folder(place) for place in places if is_uri(place)}
    for folder in remote.values():
        folder.read_cells()  # refuses what is no sweep
        folder.refresh()
    yield [remote[place].ledger.folder if place in remote else Path(place) for place in places]


def place_for_logs(address: str) -> Path:
    """Where workers of this machine print to: a new folder if the sweep is at a URI."""
    return Path(mkdtemp(prefix="hashprompt-logs-")) if is_uri(address) else Path(address)


def is_uri(place: str | Path) -> bool:
    return "://" in str(place)
