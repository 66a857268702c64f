"""Learns that wait, run or have ended, each in a folder of its own on disk."""

import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal

from hashprompt.classifier.learn_job import Effort
from hashprompt.errors import UserError
from hashprompt.schemas.serving import JOB_ID, StoredJob
from hashprompt.serve.private import PrivateFolder
from hashprompt.serve.problems import Refusal
from hashprompt.serve.request_log import log
from hashprompt.serve.uploads import PHOTOS, Lesson
from hashprompt.storage.files import (
    Target,
    inside,
    remove_file,
    remove_new,
    rename,
    sync_folder,
)
from hashprompt.storage.json_files import read_json, write_json

State = Literal["waiting", "running", "done", "failed", "cancelled"]
UNFINISHED = ("waiting", "running")
FILE = "job.json"
MOST_UNFINISHED = 2  # one runs, one waits


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    text: str = ""
    fraction: float = 0.0
    seconds_left: float | None = None


@dataclass(frozen=True)
class Job:
    """A learn. All but `progress` is on disk."""

    id: str
    state: State
    label: str
    photos: int
    effort: Effort
    rename: dict[str, str]
    source: str  # the list of its photos, in its folder
    created: str
    asked: tuple[str, ...] = ()
    message: str | None = None
    error: str | None = None
    version: int | None = None
    report: str | None = None
    progress: Progress = field(default_factory=Progress)

    @property
    def is_unfinished(self) -> bool:
        return self.state in UNFINISHED

    def to_dict(self) -> dict[str, Any]:
        """As a client sees it."""
        shown = ("id", "state", "label", "photos", "effort", "created", "progress", "message")
        values = asdict(self)
        told = {name: values[name] for name in (*shown, "error", "version", "report")}
        return {**told, "kind": "learn"}


class Jobs:
    """All jobs of a server, in memory and on disk; threads may share it.

    Args:
        private: where they are kept.
        most: ended ones that are kept.
    """

    def __init__(self, private: PrivateFolder, most: int) -> None:
        self._private, self._most = private, most
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] = {}
        self.changed = threading.Event()  # something may have to be run

    def load(self) -> None:
        """Read what an earlier server left; what was running waits again."""
        for name in self._private.job_names():
            if not re.fullmatch(JOB_ID, name):
                continue
            try:
                stored = read_json(self._file(name), StoredJob, "Remove its folder.")
            except (FileNotFoundError, UserError) as error:
                log("job unreadable", job=name, error=str(error))
                continue
            values = {f.name: stored[f.name] for f in fields(Job) if f.name in stored}
            job = Job(**{**values, "asked": tuple(stored["asked"])})
            if job.is_unfinished:
                job = replace(job, state="waiting")
            else:
                self._empty(job)  # killed between the end and clearing up
            self._jobs[job.id] = job
        self.changed.set()

    def all(self) -> list[Job]:
        """Newest first."""
        with self._lock:
            return sorted(self._jobs.values(), key=lambda job: (job.created, job.id), reverse=True)

    def get(self, name: str) -> Job | None:
        return self._jobs.get(name)

    def unfinished(self) -> list[Job]:
        """In the order in which they are to be run."""
        return [job for job in reversed(self.all()) if job.is_unfinished]

    def refuse_more(self) -> None:
        """
        Raises:
            Refusal: if one waits already.
        """
        if len(self.unfinished()) >= MOST_UNFINISHED:
            raise Refusal(409, "A learn is running and one more waits. Teach again later.", 30)

    def add(self, lesson: Lesson, paths: Mapping[str, str], **how: Any) -> Job:
        """Take over a lesson, whose folder becomes that of the job.

        Args:
            paths: where photos lie that are not in the lesson's folder.
            how: effort, rename and asked of the job.
        """
        now = datetime.now(UTC)
        name = f"{now:%Y%m%d%H%M%S}-{secrets.token_hex(4)}"
        source = f"taught-{now:%Y-%m-%d}-{name[-8:]}.csv"
        created = now.isoformat(timespec="milliseconds")
        job = Job(name, "waiting", lesson.title(), len(lesson.photos), source=source,
                  created=created, **how)  # fmt: skip
        lesson.write_list(source, dict(paths))
        with self._lock:
            self.refuse_more()
            write_json(inside(lesson.folder, FILE), self._stored(job))
            sync_folder(lesson.folder)
            rename(lesson.folder, self.folder(job))
            self._jobs[name] = job
            self._forget_old()
        self.changed.set()
        return job

    def update(self, name: str, **changes: Any) -> Job:
        """Note what became of a job; an ended one stays as it is."""
        with self._lock:
            job = self._jobs[name]
            if not job.is_unfinished:
                return job
            new = self._jobs[name] = replace(job, **changes)
            if self._stored(new) != self._stored(job):
                write_json(self._file(name), self._stored(new))
            if not new.is_unfinished:
                self._empty(new)
        return new

    def folder(self, job: Job) -> Target:
        return self._private.job(job.id)

    def source(self, job: Job) -> Target:
        return inside(self.folder(job), job.source)

    def _file(self, name: str) -> Target:
        return inside(self._private.job(name), FILE)

    def _stored(self, job: Job) -> dict[str, Any]:
        values = asdict(job)
        del values["progress"]
        return values

    def _empty(self, job: Job) -> None:
        """Photos of an ended job go."""
        remove_new(inside(self.folder(job), PHOTOS))
        remove_file(self.source(job))

    def _forget_old(self) -> None:
        ended = [job for job in self.all() if not job.is_unfinished]
        for job in ended[self._most :]:
            remove_new(self.folder(job))
            del self._jobs[job.id]
