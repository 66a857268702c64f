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


class Worker(Protocol):
    """Something that carries out learns, one after the other."""

    def prepare(self) -> None:
        """Get ready for a learn."""

    def learn(self, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Carry out a learn; gives what it tells, the last of which is how it ended."""

    def stop(self) -> None:
        """Let the learn in hand save where it stands and end; does not wait for that."""


class LearnWorker:
    """Learns in a process of its own, which is started again when it was stopped or has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        self._ready()

    def learn(self, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
        process = self._ready()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError, ValueError):  # it was stopped or died, which shows below
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            event = json.loads(line)
            yield event
            if "progress" not in event:
                return
        yield {"stopped": True, "code": process.wait()}

    def stop(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        killing = threading.Timer(STOPPING, process.kill)
        killing.daemon = True
        killing.start()

    def _ready(self) -> "subprocess.Popen[str]":
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "hashprompt.serve.learn_process"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    encoding="utf-8",
                    start_new_session=True,  # Ctrl-C is for the server, which then lets it save
                )
            return self._process


class Learning:
    """The thread that runs jobs.

    Args:
        settings: of the server.
        jobs: all of them.
        on_done: is told of jobs that are done.
        worker: carries them out.
    """

    def __init__(
        self, settings: ServeSettings, jobs: Jobs, on_done: Callable[[Job], None], worker: Worker
    ) -> None:
        self._settings, self._jobs, self._worker, self._on_done = settings, jobs, worker, on_done
        self._stopped = threading.Event()
        self._running: str | None = None
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)

    def start(self) -> None:
        self._worker.prepare()
        self._thread.start()

    def stop(self) -> None:
        """The job in hand is saved, and goes on when a server starts again."""
        self._stopped.set()
        self._jobs.changed.set()
        self._worker.stop()
        self._thread.join(STOPPING)

    def cancel(self, name: str) -> Job:
        """End a job; what it has learned so far is taken back."""
        job = self._jobs.update(name, state="cancelled", message="Cancelled.")
        if self._running == name:
            self._worker.stop()
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
                    self._stopped.wait(1)
                    with suppress(Exception):  # then it is tried again
                        self._fail(waiting[0], "The learn could not be started or followed.")

    def _carry_out(self, job: Job) -> None:
        job = self._jobs.update(job.id, state="running", progress=Progress("starting"))
        self._running = job.id
        log("job started", job=job.id, photos=job.photos)
        ending: dict[str, Any] = {"stopped": True}
        for event in self._worker.learn(self._order(job)):
            ending = event
            if "progress" in event:
                now = self._jobs.update(job.id, progress=Progress(**event["progress"]))
                if self._stopped.is_set() or not now.is_unfinished:
                    self._worker.stop()  # it began while it was being stopped
        self._running = None
        self._end(job, ending)
        if not self._stopped.is_set():
            self._worker.prepare()

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
        return self._settings.without_paths(text.replace(f"{self._jobs.folder(job)}/", ""))

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
