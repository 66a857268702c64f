"""The files of a sweep, in a folder or at a URI.

OUT/sweep.json               the runs of the grid
OUT/runs/DIGEST/             a run directory
OUT/ledger/DIGEST.json       its result
OUT/progress/DIGEST.json     its position
OUT/failed/DIGEST.json       its error
"""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from hashprompt.engine.callbacks import Callback
from hashprompt.errors import UserError
from hashprompt.report.ledger import LEDGER, Ledger
from hashprompt.runs.plan import plan_of
from hashprompt.runs.run_dir import StoredPlan
from hashprompt.storage.files import Target, as_given, inside, make_folder, remove_file
from hashprompt.storage.json_files import DamagedError, read_json, write_json
from hashprompt.storage.schema import Count, Schema, Values
from hashprompt.sweeps.grid import MAX_RUNS, GridRun

State = Literal["done", "running", "failed", "waiting"]
MAX_SILENT_SECONDS = 600  # a run without a report for longer counts as abandoned
ADVICE = "Run the sweep again: finished runs are kept."


class StoredRun(Schema):
    """A run of the grid, and its row of the table."""

    row: str
    plan: StoredPlan
    evaluate: dict[str, Values] = Field(default_factory=dict)


class StoredSweep(Schema):
    """`sweep.json`: the grid that was run last."""

    runs: Annotated[list[StoredRun], Field(max_length=MAX_RUNS)]


class RunProgress(Schema):
    """`progress/DIGEST.json`: the position of an active run."""

    machine: str
    process: Count
    started: float  # seconds since 1970, as the next
    updated: float
    first_task: Count  # where the process began
    tasks: Count
    task: Count
    phase: str
    done: Count  # steps of the phase
    steps: Count


class RunFailure(Schema):
    """`failed/DIGEST.json`: why a run has no result."""

    error: str
    traceback: str
    attempts: Count


class RunStatus(NamedTuple):
    """State of a run. `details` are its result, its progress or its failure."""

    state: State
    details: dict[str, Any]


class SweepFolder:
    """The folder of a sweep. `address` is how other processes find it."""

    refresh_seconds = 0.5  # between two reads of all states
    report_seconds = 1.0  # between two reports of a run

    def __init__(self, path: Path, address: str = "") -> None:
        self.path, self.address = path, address or str(path.resolve())
        self.ledger = Ledger(inside(path, LEDGER))

    def refresh(self) -> None:
        """Fetch what other processes wrote; nothing to do for a folder of this machine."""

    @contextmanager
    def checked_out(self, digest: str) -> Iterator[tuple[Path, Sequence[Callback]]]:
        """The run directory to work in, and callbacks that copy it."""
        yield self.run_dir(digest), ()

    def _changed(self, *names: str) -> None:
        """A small file was written or removed."""

    def run_dir(self, digest: str) -> Target:
        return inside(self.path, "runs", digest)

    def write_runs(self, runs: Sequence[GridRun]) -> None:
        """Store the grid."""
        make_folder(as_given(self.path))
        stored = [
            {"row": run.row, "plan": run.plan.to_dict(), "evaluate": run.evaluate} for run in runs
        ]
        write_json(inside(self.path, "sweep.json"), {"runs": stored})
        self._changed("sweep.json")

    def read_runs(self) -> list[GridRun]:
        """The runs of the grid that was run last."""
        try:
            stored = read_json(inside(self.path, "sweep.json"), StoredSweep, ADVICE)
        except FileNotFoundError as error:
            raise UserError(
                f"{self.path} is not the folder of a sweep: no sweep.json in it. Make one with: "
                f"hashprompt sweep grid.yaml --out {self.path}"
            ) from error
        return [
            GridRun(run["row"], plan_of(run["plan"], files_needed=False), run.get("evaluate", {}))
            for run in stored["runs"]
        ]

    def write_result(self, digest: str, result: dict[str, Any]) -> None:
        """Store the result of a finished run."""
        self.ledger.write(digest, result)
        self._changed(LEDGER, f"{digest}.json")
        self.clear_state(digest)

    def write_progress(self, digest: str, progress: dict[str, Any]) -> None:
        self._write("progress", f"{digest}.json", progress)

    def write_failure(self, digest: str, error: str, traceback: str, attempts: int) -> None:
        failure = {"error": error, "traceback": traceback, "attempts": attempts}
        self._write("failed", f"{digest}.json", failure)
        self._remove("progress", f"{digest}.json")

    def clear_state(self, digest: str) -> None:
        """Forget the progress and the failure of a run."""
        for kind in ("failed", "progress"):
            self._remove(kind, f"{digest}.json")

    def _write(self, kind: str, name: str, value: dict[str, Any]) -> None:
        write_json(inside(self.path, kind, name), value)
        self._changed(kind, name)

    def _remove(self, kind: str, name: str) -> None:
        remove_file(inside(self.path, kind, name))
        self._changed(kind, name)

    def state(self, run: GridRun, now: float) -> RunStatus:
        """The state of a run at a time, in seconds since 1970."""
        entry = self.ledger.find(run.plan)
        if entry is not None:
            found = entry.get("evaluations", {})
            if all(found.get(n, {}).get("options") == o for n, o in run.evaluate.items()):
                return RunStatus("done", entry)
        failure = self._read("failed", run.digest, RunFailure)
        if failure is not None:
            return RunStatus("failed", failure)
        progress = self._read("progress", run.digest, RunProgress)
        if progress is not None and _is_alive(progress, now):
            return RunStatus("running", progress)
        return RunStatus("waiting", progress or {})

    def _read(self, kind: str, digest: str, schema: Any) -> dict[str, Any] | None:
        try:
            return read_json(inside(self.path, kind, f"{digest}.json"), schema, ADVICE)
        except (FileNotFoundError, DamagedError):  # it will be written again
            return None


def _is_alive(progress: dict[str, Any], now: float) -> bool:
    """Whether a run that has reported its progress is still active."""
    if now - progress["updated"] > MAX_SILENT_SECONDS:
        return False
    if progress["machine"] != platform.node() or os.name != "posix":  # elsewhere 0 is a signal
        return True
    try:
        os.kill(progress["process"], 0)
    except PermissionError:  # of another user
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def open_folder(place: str | Path) -> SweepFolder:
    """The folder of a sweep at a path, or at a URI that fsspec supports: `s3://bucket/sweep`."""
    if not is_uri(place):
        return SweepFolder(Path(place))
    from hashprompt.sweeps.remote import RemoteSweepFolder

    return RemoteSweepFolder(str(place))


@contextmanager
def local_places(places: Sequence[str]) -> Iterator[list[Path]]:
    """Local paths of places. A sweep at a URI is represented by a temporary copy of its ledger."""
    remote = {place: open_folder(place) for place in places if is_uri(place)}
    for folder in remote.values():
        folder.read_runs()  # refuses what is not a sweep
        folder.refresh()
    yield [remote[place].ledger.folder if place in remote else Path(place) for place in places]


def is_uri(place: str | Path) -> bool:
    return "://" in str(place)
