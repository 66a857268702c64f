"""Runs jobs, one at a time, in a separate process."""

import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hashprompt.errors import UserError
from hashprompt.photos.session import drop, find
from hashprompt.photos.store.store import Store
from hashprompt.runs.worker_process import WorkerEnded, WorkerProcess
from hashprompt.serve.http.monitoring import log
from hashprompt.serve.jobs.jobs import Job, Jobs, Progress
from hashprompt.serve.settings import ServeSettings

STOPPING = 40.0  # seconds that a session gets to save itself
LOCK_SECONDS = 60.0  # to wait for another program, before a session is not dropped
NOT_STARTED = "The session could not be started or followed."
NOT_CHANGED = "Nothing was changed by it."


# Threads of OpenMP that wait by spinning would keep the server's from the processors: answers would
# take seconds while it learns.
PATIENT = {"OMP_WAIT_POLICY": "PASSIVE"}


class LearnWorker:
    """Learns in a separate process, which is started again when it was stopped or has died."""

    def __init__(self) -> None:
        environment = {**PATIENT, **os.environ}
        self._process = WorkerProcess("hashprompt.serve.jobs.learn_process", environment)

    def learn(self, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Run a session; gives its events, the last of which is how it ended."""
        try:
            for event in self._process.carry_out(order):
                yield event
                if "progress" not in event:
                    return
        except WorkerEnded as ended:
            yield {"stopped": True, "code": ended.code}

    def prepare(self) -> "subprocess.Popen[str]":
        """Get ready for a session."""
        return self._process.start()

    def stop(self) -> None:
        """Let the running session save where it stands and end; does not wait for that."""
        self._process.stop(STOPPING)


class Learning:
    """The thread that runs jobs.

    Args:
        settings: of the server.
        jobs: all of them.
        on_done: called with jobs that are done.
        worker: runs them.
    """

    def __init__(
        self,
        settings: ServeSettings,
        jobs: Jobs,
        on_done: Callable[[Job], None],
        worker: LearnWorker,
    ) -> None:
        self._settings, self._jobs, self._worker, self._on_done = settings, jobs, worker, on_done
        self._stopped = threading.Event()
        self._running: str | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)

    def start(self) -> None:
        self._worker.prepare()
        self._thread.start()

    def stop(self) -> None:
        """The running job is saved, and resumes when a server starts again."""
        self._stopped.set()
        self._jobs.changed.set()
        self._worker.stop()
        self._thread.join(STOPPING)

    def cancel(self, name: str) -> Job:
        """End a job; its session is dropped, and then its message reports what is left."""
        running = self._running
        has_not_begun = running is not None and running != name
        job = self._jobs.update(
            name,
            state="cancelled",
            message=NOT_CHANGED if has_not_begun else None,
            progress=Progress("dropping what it learned"),
        )
        with self._lock:  # else what is stopped might be the next job
            if self._running == name:
                self._worker.stop()
        self._jobs.changed.set()
        return job

    # In the thread. ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._jobs.changed.wait()
            self._jobs.changed.clear()
            self.run_jobs()

    def run_jobs(self) -> None:
        """Run all jobs that wait."""
        self._settle()
        while not self._stopped.is_set() and (waiting := self._jobs.unfinished()):
            try:
                self._carry_out(waiting[0])
            except Exception as error:  # a full disk, say; the thread must go on
                log("fault", logging.ERROR, fault=True, job=waiting[0].id)
                self._stopped.wait(1)
                known = isinstance(error, UserError)
                with suppress(Exception):  # then it is tried again
                    self._fail(waiting[0], str(error) if known else NOT_STARTED)
            self._settle()

    def _carry_out(self, job: Job) -> None:
        self._running = job.id
        try:
            job = self._jobs.update(job.id, state="running", progress=Progress("starting"))
            ending = self._learned(job)
        finally:
            with self._lock:
                self._running = None
        self._end(job, ending)
        if not self._stopped.is_set():
            self._worker.prepare()

    def _learned(self, job: Job) -> dict[str, Any]:
        """How a session ended."""
        log("job started", job=job.id, photos=job.photos)
        try:
            self._jobs.keep_photos(job)
        except UserError as error:
            return {"failed": str(error)}
        ending: dict[str, Any] = {"stopped": True}
        for event in self._worker.learn(self._order(job)):
            ending = event
            if "progress" in event:
                progress = Progress(**event["progress"])
                text = self._for_clients(job, progress.text)
                now = self._jobs.update(job.id, progress=replace(progress, text=text))
                if self._stopped.is_set() or not now.is_unfinished:
                    self._worker.stop()  # it began while it was being stopped
        return ending

    def _order(self, job: Job) -> dict[str, Any]:
        settings = self._settings
        return {
            "folder": str(settings.folder.resolve()),
            "backbone": settings.backbone,
            "options": dict(settings.options),
            "source": str(self._jobs.source(job)),
            "effort": job.effort,
            "rename": job.rename,
            "report": settings.reports,
        }

    def _end(self, job: Job, ending: dict[str, Any]) -> None:
        if "done" in ending:
            done = ending["done"]
            report = f"/api/reports/{done['version']}" if done["report"] else None
            job = self._jobs.update(
                job.id,
                state="done",
                message=self._for_clients(job, done["message"]),
                version=done["version"],
                report=report,
                progress=Progress("done", 1.0, 0.0),
            )
            if job.state == "done":  # and not cancelled
                self._on_done(job)
        elif "failed" in ending:
            if "fault" in ending:
                log("fault", logging.ERROR, job=job.id, fault_of_session=ending["fault"])
            self._fail(job, ending["failed"])
        elif not self._stopped.is_set():
            self._fail(job, f"The session was ended from outside ({ending.get('code')}).")
        log("job ended", job=job.id, ending=next(iter(ending)))

    def _fail(self, job: Job, error: str) -> None:
        now = self._jobs.get(job.id)
        if now is None or not now.is_unfinished:
            return
        left = self._dropped(job)  # first: a server that dies now tries it again
        if left is not None:
            error = self._for_clients(job, f"{error} {left}".strip())
            self._jobs.update(job.id, state="failed", error=error)

    def _for_clients(self, job: Job, text: str) -> str:
        """Paths and lists of photos are, for people, a number of photos."""
        photos = "1 photo" if job.photos == 1 else f"{job.photos:,} photos"
        text = text.replace(str(self._jobs.source(job)), photos)
        return self._settings.for_clients(text.replace(job.source.removesuffix(".csv"), photos))

    # Dropping. -----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Drop what ended jobs have left, also those of a server that died meanwhile."""
        try:
            session = find(Store(self._settings.folder))
            left = None if session is None else session.source
            for job in self._jobs.all():
                is_left = job.state in ("failed", "cancelled")
                is_left &= left == str(self._jobs.source(job))
                waits = not job.is_unfinished and not job.is_settled
                if (is_left or waits) and (message := self._dropped(job)) is not None:
                    self._jobs.settle(job.id, message or NOT_CHANGED)
        except Exception:  # it is tried again with the next job
            log("fault", logging.ERROR, fault=True)

    def _dropped(self, job: Job) -> str | None:
        """What is left of a job, in words; None if the server stops before that is known."""
        until = time.monotonic() + LOCK_SECONDS
        try:
            store = Store(self._settings.folder)
            while not store.is_free() and time.monotonic() < until:  # it may still be saving
                if self._stopped.wait(0.2):
                    return None
            return drop(store, self._jobs.source(job))
        except UserError as error:
            problem = self._for_clients(job, str(error))
            log("unfinished session stays", logging.WARNING, job=job.id, error=problem)
            return f"Its session could not be dropped: {problem}"
