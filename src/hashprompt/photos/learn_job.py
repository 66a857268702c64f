"""One learn as it was asked for, and as it is kept on disk until it is finished."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hashprompt.errors import UserError
from hashprompt.schemas.classifier import Job
from hashprompt.storage.files import inside
from hashprompt.storage.json_files import read_json, write_json

if TYPE_CHECKING:
    from hashprompt.photos.inputs.photo_dataset import PhotoDataset

JOB = "job.json"
Effort = Literal["instant", "quick", "normal", "best"]


@dataclass(frozen=True)
class LearnJob:
    """A learn that is going on: everything that decides its result."""

    parent: int | None
    source: str | None  # a path; None for photos that came in memory
    test: str | None
    effort: Effort
    rename: dict[str, str]
    unreadable: Literal["stop", "skip"]
    header: dict[str, Any]
    training: dict[str, Any]
    fingerprint: str
    forgets: str | None = None  # a class that is left out; then all is learned from nothing
    replaces: int | None = None  # then: the version to which undo goes back

    @property
    def before(self) -> int | None:
        """The version that undo goes back to, and that stays if the learn is dropped."""
        return self.parent if self.forgets is None else self.replaces

    def is_done(self, info: Mapping[str, Any]) -> bool:
        """Whether a version (`version.json`) is the last that it makes, and no first look."""
        is_last = not info.get("is_look") or not self.training["epochs"]
        return info.get("job") == self.fingerprint and is_last

    def is_looked_at(self, info: Mapping[str, Any]) -> bool:
        """Whether a version goes with it if it is dropped.

        That is its own look, or that of a learn which it had dropped itself. Any other version is
        current because the user went there since.
        """
        return bool(info.get("is_look")) and info["parent"] == self.before

    def write(self, folder: Path) -> None:
        write_json(inside(folder, JOB), self.__dict__)

    @classmethod
    def read(cls, folder: Path) -> "LearnJob | None":
        """The unfinished learn in a folder; one that was cut off before it began is none."""
        advice = (
            "Drop this unfinished learn with discard (`hashprompt learn MODEL PHOTOS --discard`); "
            "finished versions are not touched."
        )
        try:
            stored = read_json(inside(folder, JOB), Job, advice)
        except FileNotFoundError:
            return None
        named: dict[str, Any] = {f.name: stored[f.name] for f in fields(cls) if f.name in stored}
        return cls(**named)


@dataclass(frozen=True)
class LearnRequest:
    """The arguments of `ContinualClassifier.learn` that say what to learn."""

    photos: Any
    labels: Sequence[Any] | None = None
    test: Any = None
    effort: Effort = "normal"
    rename: Mapping[str, str] | None = None
    unreadable: Literal["stop", "skip"] = "stop"
    forgets: str | None = None  # leave this class out, and learn the rest from nothing

    @property
    def source(self) -> str | None:
        """Where the photos lie; None if they came in memory."""
        return absolute_path(self.photos)

    def resumed(self, job: LearnJob) -> "LearnRequest":
        """The request of a job that was interrupted."""
        if self.photos is None and job.source is None:
            raise UserError("It learned photos from memory: call learn with them again.")
        return replace(
            self,
            photos=job.source if self.photos is None else self.photos,
            test=job.test or self.test,
            effort=job.effort,
            rename=job.rename,
            unreadable=job.unreadable,
            forgets=job.forgets,
        )


def absolute_path(source: Any) -> str | None:
    """Of a file or folder; None for photos in memory."""
    return str(Path(source).expanduser().resolve()) if isinstance(source, str | Path) else None


def job_fingerprint(dataset: "PhotoDataset", parent: int | None, request: LearnRequest) -> str:
    """SHA-256 of the photos of a learn, their labels and parts, and what else decides it."""
    rows = sorted(zip(dataset.digests, dataset.labels, dataset.parts, strict=True))
    others = [parent, request.effort, *filter(None, [request.forgets])]
    return hashlib.sha256(json.dumps([rows, others]).encode()).hexdigest()
