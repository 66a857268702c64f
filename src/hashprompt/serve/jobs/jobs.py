"""Jobs: sessions that wait, run or have ended, each with a folder on disk."""

import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from hashprompt.errors import UserError
from hashprompt.photos.session import Effort
from hashprompt.serve.http.monitoring import log
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.http.uploads import PHOTOS, Lesson
from hashprompt.serve.photo_archive import PhotoArchive, new_ones, place_photos
from hashprompt.serve.review_queue import PHOTO_ID
from hashprompt.serve.state_dir import PrivateFolder
from hashprompt.storage.files import Target, inside, remove_file, remove_new, rename, sync_folder
from hashprompt.storage.json_files import read_json, write_json
from hashprompt.storage.schema import Count, Schema

State = Literal["waiting", "running", "done", "failed", "cancelled"]
UNFINISHED = ("waiting", "running")
FILE = "job.json"
JOB_ID = "^[0-9]{14}-[0-9a-f]{8}$"
MAX_UNFINISHED = 2  # one runs, one waits


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    text: str = ""
    fraction: float = 0.0
    seconds_left: float | None = None


class Job(Schema):
    """A session that a client has asked for; `jobs/ID/job.json`, but for its progress."""

    id: Annotated[str, Field(pattern=JOB_ID)]
    state: State
    label: str
    photos: Count
    effort: Effort
    rename: dict[str, str]
    source: Annotated[str, Field(pattern="^[-0-9a-z]+[.]csv$")]  # the list of its photos
    created: str
    left_out: Count = 0  # files that came along and are no photos
    asked: list[Annotated[str, Field(pattern=PHOTO_ID)]] = Field([])  # they leave the review queue
    kept: dict[str, str] = Field({})  # its photos -> where they are to be kept
    placed: list[str] | None = None  # those of them that it has put there; None: not yet
    message: str | None = None
    error: str | None = None
    version: Count | None = None
    report: str | None = None
    progress: Progress = Field(default=Progress(), exclude=True)

    @property
    def is_unfinished(self) -> bool:
        return self.state in UNFINISHED

    @property
    def is_settled(self) -> bool:
        """Whether nothing more comes of it: a cancelled one reports last what is left of it."""
        return not self.is_unfinished and not (self.state == "cancelled" and self.message is None)

    def to_dict(self) -> dict[str, Any]:
        """As a client sees it."""
        private = {"rename", "source", "asked", "kept", "placed"}
        return {**self.model_dump(exclude=private), "progress": asdict(self.progress)}


class Jobs:
    """All jobs of a server, in memory and on disk; threads may share it.

    Args:
        private: where they are kept.
        archive: where their photos are kept longer.
        most: ended ones that are kept.
    """

    def __init__(self, private: PrivateFolder, archive: PhotoArchive, most: int) -> None:
        self._private, self._archive, self._most = private, archive, most
        self._lock = threading.RLock()
        self._jobs: dict[str, Job] = {}
        self.changed = threading.Event()  # something may have to be run

    def load(self) -> None:
        """Read what an earlier server left; what was running waits again."""
        for name in self._private.job_names():
            if not re.fullmatch(JOB_ID, name):
                continue
            try:
                job = Job(**read_json(self._file(name), Job, "Remove its folder."))
            except (FileNotFoundError, UserError) as error:
                log("job unreadable", job=name, error=str(error))
                continue
            if job.is_unfinished:
                job = job.model_copy(update={"state": "waiting"})
            elif job.is_settled:
                job = self._emptied(job)  # killed between the end and clearing up
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

    def are_settled(self) -> bool:
        """Whether none waits, runs or is being taken back."""
        return all(job.is_settled for job in self.all())

    def refuse_more(self) -> None:
        """
        Raises:
            Refusal: if one waits already.
        """
        if len(self.unfinished()) >= MAX_UNFINISHED:
            raise Refusal(409, "A session is running and one more waits. Teach again later.", 30)

    def add(
        self, lesson: Lesson, kept: Mapping[str, str], asked: Sequence[str] = (), **how: Any
    ) -> Job:
        """Make a job of a lesson, whose folder becomes that of the job.

        Args:
            kept: where its photos are to be kept.
            asked: photos that leave the review queue.
            how: effort and rename of the job.
        """
        now = datetime.now(UTC)
        name = f"{now:%Y%m%d%H%M%S}-{secrets.token_hex(4)}"
        job = Job(
            id=name,
            state="waiting",
            label=lesson.title(),
            photos=len(lesson.photos),
            source=f"taught-{now:%Y-%m-%d}-{name[-8:]}.csv",
            created=now.isoformat(timespec="milliseconds"),
            left_out=lesson.left_out,
            kept=dict(kept),
            asked=list(asked),
            **how,
        )
        lesson.write_list(job.source, job.kept)
        with self._lock:
            self.refuse_more()
            write_json(inside(lesson.folder, FILE), job.model_dump())
            sync_folder(lesson.folder)
            rename(lesson.folder, self.folder(job))
            self._jobs[name] = job
            self._forget_old()
        self.changed.set()
        return job

    def update(self, name: str, **changes: Any) -> Job:
        """Record what became of a job; an ended one stays as it is."""
        with self._lock:
            job = self._jobs[name]
            return self._changed(job, **changes) if job.is_unfinished else job

    def settle(self, name: str, message: str) -> None:
        """Record what is left of a cancelled job."""
        with self._lock:
            if not self._jobs[name].is_settled:
                self._changed(self._jobs[name], message=message)

    def keep_photos(self, job: Job) -> None:
        """Put its photos where they are to be kept: held-out photos are tested there again.

        Raises:
            UserError: if they cannot be put there.
        """
        if job.placed is None:  # recorded first, so that they are found after a kill
            job = self.update(job.id, placed=list(new_ones(job.kept)))
        place_photos(self.folder(job), job.kept)

    def _changed(self, job: Job, **changes: Any) -> Job:
        new = job.model_copy(update=changes)
        try:
            if new.model_dump() != job.model_dump():
                write_json(self._file(job.id), new.model_dump())
            if new.is_settled:
                new = self._emptied(new)
        finally:  # last: once it is seen to have ended, its photos are gone
            self._jobs[job.id] = new
        return new

    def folder(self, job: Job) -> Target:
        return self._private.job(job.id)

    def source(self, job: Job) -> Target:
        return inside(self.folder(job), job.source)

    def _file(self, name: str) -> Target:
        return inside(self._private.job(name), FILE)

    def _emptied(self, job: Job) -> Job:
        """Photos of an ended job go; those that it did not learn, also from where they are kept."""
        remove_new(inside(self.folder(job), PHOTOS))
        remove_file(self.source(job))
        if job.kept:
            self._archive.remove_unlearned(job.placed or (), job.version)
            self._archive.write_list()
            job = job.model_copy(update={"kept": {}, "placed": None})
            write_json(self._file(job.id), job.model_dump())  # never twice: others may come there
        return job

    def _forget_old(self) -> None:
        ended = [job for job in self.all() if job.is_settled]
        for job in ended[self._most :]:
            remove_new(self.folder(job))
            del self._jobs[job.id]
