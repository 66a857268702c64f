"""Runs jobs, one at a time, each in a process of its own."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol

from hashprompt.classifier.learn_job import LearnJob
from hashprompt.classifier.store import Store
from hashprompt.errors import UserError
from hashprompt.serve.jobs import Job, Jobs, Progress
from hashprompt.serve.request_log import log
from hashprompt.serve.settings import ServeSettings

STOPPING = 40.0  # seconds that a learn gets to save itself


class Learn(Protocol):
    """A learn that is going on."""

    def events(self) -> Iterator[dict[str, Any]]:
        """What it tells, until it ends."""

    def stop(self) -> None:
        """Let it save where it stands and end."""


class LearnProcess:
    """A learn in a process of its own.

    Args:
        order: what to learn; see `learn_process`.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hashprompt.serve.learn_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for the server, which then lets it save
        )
        assert self._process.stdin is not None
        with suppress(OSError):  # it died at once, which shows when events are read
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def events(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)
        code = self._process.wait()
        if code:
            yield {"stopped": True, "code": code}

    def stop(self) -> None:
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Learning:
    """The thread that runs jobs.

    Args:
        settings: of the server.
        jobs: all of them.
        start: begins a learn.
        on_done: is told of jobs that are done.
    """

    def __init__(
        self,
        settings: ServeSettings,
        jobs: Jobs,
        on_done: Callable[[Job], None],
        start: Callable[[dict[str, Any]], Learn] = LearnProcess,
    ) -> None:
        self._settings, self._jobs, self._start, self._on_done = settings, jobs, start, on_done
        self._stopped = threading.Event()
        self._running: tuple[str, Learn] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The job in hand is saved, and goes on when a server starts again."""
        self._stopped.set()
        self._jobs.changed.set()
        with self._lock:
            running = self._running
        if running:
            running[1].stop()
        self._thread.join(STOPPING)

    def cancel(self, name: str) -> Job:
        """End a job; what it has learned so far is taken back."""
        job = self._jobs.update(name, state="cancelled", message="Cancelled.")
        with self._lock:
            running = self._running
        if running and running[0] == name:
            threading.Thread(target=running[1].stop, daemon=True).start()
        return job

    # In the thread. ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._jobs.changed.wait()
            self._jobs.changed.clear()
            while not self._stopped.is_set() and (waiting := self._jobs.unfinished()):
                try:
                    self._carry_out(waiting[0])
                except Exception:  # a full disk, say; the thread must go on
                    log("fault", logging.ERROR, fault=True, job=waiting[0].id)
                    self._fail(waiting[0], "The learn could not be started or followed.")

    def _carry_out(self, job: Job) -> None:
        with self._lock:
            if self._stopped.is_set():
                return
            job = self._jobs.update(job.id, state="running", progress=Progress("starting"))
            learn = self._start(self._order(job))
            self._running = job.id, learn
        log("job started", job=job.id, photos=job.photos)
        ending: dict[str, Any] = {"stopped": True}
        for event in learn.events():
            if "progress" in event:
                self._jobs.update(job.id, progress=Progress(**event["progress"]))
            elif "stopped" in ending:  # what was told before a process ended counts
                ending = event
        with self._lock:
            self._running = None
        self._end(job, ending)

    def _order(self, job: Job) -> dict[str, Any]:
        settings = self._settings
        return {
            "folder": str(settings.folder.resolve()),
            "backbone": settings.backbone,
            "options": dict(settings.options),
            "source": str(self._jobs.source(job)),
            "effort": job.effort,
            "rename": job.rename,
        }

    def _end(self, job: Job, ending: dict[str, Any]) -> None:
        current = self._jobs.get(job.id)
        if current is None or not current.is_unfinished:
            self._take_back(job)
        elif "done" in ending:
            done = ending["done"]
            report = f"/api/reports/{done['version']}" if done["report"] else None
            job = self._jobs.update(
                job.id,
                state="done",
                message=self._without_paths(job, done["message"]),
                version=done["version"],
                report=report,
                progress=Progress("done", 1.0, 0.0),
            )
            self._on_done(job)
        elif "failed" in ending:
            if "fault" in ending:
                log("fault", logging.ERROR, job=job.id, fault_of_learn=ending["fault"])
            self._fail(job, ending["failed"])
        elif not self._stopped.is_set():
            self._fail(job, f"The learn was ended from outside ({ending.get('code')}).")
        log("job ended", job=job.id, ending=next(iter(ending)))

    def _fail(self, job: Job, error: str) -> None:
        self._jobs.update(job.id, state="failed", error=self._without_paths(job, error))
        self._take_back(job)

    def _without_paths(self, job: Job, text: str) -> str:
        """Where things lie on the server is nothing for clients."""
        folders = (self._jobs.folder(job), self._settings.folder.resolve().parent)
        for folder in folders:
            text = text.replace(f"{folder}/", "")
        return text

    def _take_back(self, job: Job) -> None:
        """Leave nothing unfinished in the classifier, so that the next job can begin."""
        store = Store(self._settings.folder)
        try:
            with store.lock("cancelling"):
                unfinished = LearnJob.read(store.learning)
                if unfinished is None or unfinished.source != str(self._jobs.source(job)):
                    return
                version = None if store.is_new else store.version()
                looked = version is not None and version.info["job"] == unfinished.fingerprint
                if looked and unfinished.parent is not None:
                    store.go_to(unfinished.parent)
                store.drop_learning()
        except UserError as error:
            log("unfinished learn stays", logging.WARNING, job=job.id, error=str(error))
