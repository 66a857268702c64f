"""What comes before a learn: the photos, the choices, the plan, the job on disk."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hashprompt.backbone.weights import load_backbone
from hashprompt.classifier.batches import Batch, gather
from hashprompt.classifier.choices import (
    Effort,
    Plan,
    choose_backbone,
    choose_image_size,
    choose_training,
    estimate,
    seconds_per_image,
)
from hashprompt.classifier.learner import Setup, reading_size
from hashprompt.classifier.learning import TEST, Job, fingerprint
from hashprompt.classifier.store import Store
from hashprompt.errors import UserError


@dataclass(frozen=True)
class Lesson:
    """What the user says of a learn; see `ContinualClassifier.learn`."""

    photos: Any
    labels: Sequence[Any] | None = None
    test: Any = None
    effort: Effort = "normal"
    rename: Mapping[str, str] | None = None
    unreadable: Literal["stop", "skip"] = "stop"

    @property
    def source(self) -> str | None:
        """Where the photos lie; None if they came in memory."""
        return _path(self.photos)

    def resumed(self, job: Job) -> "Lesson":
        """The lesson of a job that was interrupted."""
        if self.photos is None and job.source is None:
            raise UserError("It learned photos from memory: call learn with them again.")
        return replace(
            self,
            photos=job.source if self.photos is None else self.photos,
            test=job.test or self.test,
            effort=job.effort,
            rename=job.rename,
            unreadable=job.unreadable,
        )


class Teacher:
    """Prepares learns of the classifier in a store.

    Args:
        store: of the classifier.
        backbone, method, seed, options: as the user gave them; what a first learn has fixed wins.
    """

    def __init__(
        self,
        store: Store,
        backbone: str | None,
        method: str,
        seed: int,
        options: Mapping[str, Any],
    ) -> None:
        self.store, self.backbone, self.method, self.seed = store, backbone, method, seed
        self.options = options
        self._setup: Setup | None = None

    def setup(self) -> Setup:
        """The classifier's fixed choices."""
        if self._setup is None:
            self._setup = self._stored(self.store.header())
        return self._setup

    def _stored(self, header: dict[str, Any]) -> Setup:
        return Setup.stored(self.store.folder, header, self.backbone, self.options)

    def unfinished(self) -> Job | None:
        """The learn that was interrupted."""
        job = Job.read(self.store.learning)
        if job and self.store.is_new:  # the choices of the first learn are made already
            self._setup = self._stored(job.header)
        return job

    def is_done(self, job: Job) -> bool:
        """Whether a learn was killed between its commit and clearing up."""
        return not self.store.is_new and self.store.version().info.get("job") == job.fingerprint

    def prepare(self, lesson: Lesson) -> tuple[Batch, Setup]:
        """Everything that can fail on bad input, before anything is written."""
        fresh = self.store.is_new and self._setup is None
        if not fresh:
            setup = self.setup()
            return self._gather(lesson, setup.short_side), setup
        size = self.options.get("image_size")
        loaded = load_backbone(self.backbone or choose_backbone(), size)
        batch = self._gather(lesson, reading_size(loaded))
        if size is None:
            native = loaded.preprocessing.image_size
            patch = loaded.model.vit.patch_embed.patch_size[0]
            chosen = choose_image_size(native, patch, [min(side) for side in batch.photos.sizes()])
            if chosen != native:
                loaded = load_backbone(loaded.name, chosen)
        return batch, Setup.new(loaded, self.method, self.options, self.seed)

    def _gather(self, lesson: Lesson, short_side: int) -> Batch:
        known, seen = [], {}
        if not self.store.is_new:
            version = self.store.version()
            known, seen = version.info["classes"], self.store.photos(version)
        return gather(
            lesson.photos,
            lesson.labels,
            test=lesson.test,
            known=known,
            rename=lesson.rename,
            seen=seen,
            unreadable=lesson.unreadable,
            short_side=short_side,
        )

    def plan(self, batch: Batch, setup: Setup, effort: Effort) -> Plan:
        training = self._training(batch, effort)
        known: list[str] = []
        old = 0  # photos held out by earlier learns, which are asked again
        if not self.store.is_new:
            version = self.store.version()
            known = version.info["classes"]
            rows = self.store.photos(version).values()
            old = sum(row[1] == TEST and bool(row[2]) for row in rows)
        classes = sorted(set(batch.labels))
        held_out = batch.parts.count(TEST)
        each = seconds_per_image(setup.backbone, setup.device)
        count = len(batch.labels) - held_out
        return Plan(
            batch.name,
            [c for c in classes if c not in known],
            [c for c in classes if c in known],
            count,
            held_out,
            setup.backbone.name,
            setup.backbone.preprocessing.image_size,
            training["epochs"],
            training["batch_size"],
            estimate(each, count, held_out, old, training["epochs"]),
            list(batch.notes),
        )

    def _training(self, batch: Batch, effort: Effort) -> dict[str, Any]:
        chosen = choose_training(batch.parts.count("train"), effort)
        return {k: self.options.get(k, v) for k, v in chosen.items()}

    def begin(self, begun: Job | None, batch: Batch, setup: Setup, lesson: Lesson) -> Job:
        """The unfinished learn if it is this one, else a new one, written to disk."""
        parent = None if self.store.is_new else self.store.current()
        mark = fingerprint(batch, parent, lesson.effort)
        folder = self.store.folder
        self._setup = setup
        if begun is not None:
            if begun.fingerprint == mark:
                return begun
            what = begun.source or "photos from memory"
            raise UserError(
                f"An unfinished learn of {what} is in {folder}, and these photos or settings are "
                f"not the same. Finish it first (resume=True, `hashprompt learn {folder} "
                "--resume`) or drop it (discard=True, `--discard`)."
            )
        job = Job(
            parent,
            lesson.source,
            _path(lesson.test),
            lesson.effort,
            dict(lesson.rename or {}),
            lesson.unreadable,
            setup.header(),
            self._training(batch, lesson.effort),
            mark,
        )
        shutil.rmtree(self.store.learning, ignore_errors=True)
        job.write(self.store.learning)
        return job


def _path(what: Any) -> str | None:
    return str(Path(what).expanduser().resolve()) if isinstance(what, str | Path) else None
