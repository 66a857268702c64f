"""A sweep at a URI: runs work in temporary folders, which are copied whenever they are saved.

Small files (ledger, progress, failures) have a local copy that `refresh` updates, so they are read
as in a folder of this machine.
"""

import fnmatch
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from hashprompt.engine.callbacks import Callback, StepEnd
from hashprompt.errors import UserError, shortened
from hashprompt.report.ledger import LEDGER
from hashprompt.storage import files
from hashprompt.storage.lock import LOCK
from hashprompt.storage.remote import RemoteFolder
from hashprompt.sweeps.folder import SweepFolder
from hashprompt.sweeps.grid import GridRun

SEND_SECONDS = 60.0  # between two searches for a new checkpoint inside a phase


class Mirror:
    """A local folder and its copy at a URI."""

    def __init__(self, remote: RemoteFolder, name: str, folder: Path) -> None:
        self._remote, self._name, self._folder = remote, name, folder
        self._there: dict[str, str] = {}  # versions of the fetched files
        self._sent: dict[str, tuple[int, int]] = {}  # files that are the same in both places
        files.make_folder(files.as_given(folder))

    def fetch(self) -> None:
        """Make the local folder equal to the copy."""
        there = self._remote.versions(self._name)
        for name, version in there.items():
            if self._there.get(name) != version:
                with suppress(FileNotFoundError):  # removed in the meantime
                    content = self._remote.read(f"{self._name}/{name}")
                    files.write_atomically(self._local(name), content)
        for name in self._there.keys() - there.keys():
            files.remove_file(self._local(name))
        self._there, self._sent = there, self._here()

    def send(self) -> None:
        """Copy the files that changed. A run can be resumed from the copy at any moment."""
        here = self._here()
        changed = [name for name, state in here.items() if self._sent.get(name) != state]
        for name in sorted(changed, key=_rank):
            self._remote.write(f"{self._name}/{name}", files.read_file(self._local(name)))
            self._sent[name] = here[name]
        for name in self._sent.keys() - here.keys():
            self._remote.remove(f"{self._name}/{name}")
            del self._sent[name]

    def _local(self, name: str) -> files.Target:
        return files.inside(self._folder, *name.split("/"))

    def _here(self) -> dict[str, tuple[int, int]]:
        found = (p for p in self._folder.rglob("*") if p.is_file() and not p.is_symlink())
        ours = (p for p in found if p.name != LOCK and not files.TEMPORARY.fullmatch(p.name))
        about = {p.relative_to(self._folder).as_posix(): p.stat() for p in ours}
        return {name: (status.st_mtime_ns, status.st_size) for name, status in about.items()}


def _rank(name: str) -> tuple[bool, ...]:
    """Order of sending: config.json, tensors, the states that name them, result.json."""
    is_state = fnmatch.fnmatchcase(name, "checkpoints/state-*.json")
    return name == "result.json", is_state, name != "config.json"


class Uploads(Callback):
    """Copies a run whenever it was saved."""

    def __init__(self, run: Mirror) -> None:
        self._run, self._sent_at = run, time.monotonic()

    def on_phase_start(self, task: int, phase: str, steps: int, done: int) -> None:
        self._send()

    def on_step_end(self, step: StepEnd) -> None:
        if time.monotonic() - self._sent_at > SEND_SECONDS:
            self._send()

    def on_task_end(self, task: int) -> None:
        self._send()

    def _send(self) -> None:
        self._sent_at = time.monotonic()
        with retried_later():
            self._run.send()


class RemoteSweepFolder(SweepFolder):
    """The folder of a sweep at a URI."""

    refresh_seconds, report_seconds = 5.0, 15.0  # each is a request to a server

    def __init__(self, uri: str) -> None:
        self._remote = RemoteFolder(uri)
        self._temporary = tempfile.TemporaryDirectory(prefix="hashprompt-sweep-")
        super().__init__(Path(self._temporary.name), uri)
        self._is_copied = False
        self._mirrors = [
            Mirror(self._remote, kind, files.inside(self.path, kind))
            for kind in (LEDGER, "progress", "failed")
        ]

    def refresh(self) -> None:
        with retried_later() if self._is_copied else nullcontext():
            for mirror in self._mirrors:
                mirror.fetch()
            self._is_copied = True

    @contextmanager
    def checked_out(self, digest: str) -> Iterator[tuple[Path, Sequence[Callback]]]:
        with tempfile.TemporaryDirectory(prefix="hashprompt-run-") as temporary:
            run = Mirror(self._remote, f"runs/{digest}", Path(temporary))
            run.fetch()
            try:
                yield Path(temporary), [Uploads(run)]
            except BaseException:
                with retried_later():
                    run.send()
                raise
            run.send()

    def read_runs(self) -> list[GridRun]:
        try:
            content = self._remote.read("sweep.json")
        except FileNotFoundError as error:
            raise UserError(f"No sweep is at {self.address}: there is no sweep.json.") from error
        files.write_atomically(files.inside(self.path, "sweep.json"), content)
        return super().read_runs()

    def _changed(self, *names: str) -> None:
        name, local = "/".join(names), files.inside(self.path, *names)
        is_state = names[0] in ("progress", "failed")  # a run does not depend on these files
        with retried_later() if is_state else nullcontext():
            if local.exists():
                self._remote.write(name, files.read_file(local))
            else:
                self._remote.remove(name)


@contextmanager
def retried_later() -> Iterator[None]:
    """A server that is unreachable for a while must not end a run."""
    try:
        yield
    except Exception as error:  # every kind of server has errors of its own
        text = f"Not copied yet, will be retried: {shortened(error, 200)}"
        warnings.warn(text, stacklevel=3)
