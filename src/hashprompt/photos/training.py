"""The photos of a session as the next task of the method, learned on top of a version.

More photos of a class, the same class in another style, and new classes are one case: photos of a
known class get a separate Gaussian, and a class is as likely as its likeliest Gaussian.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from hashprompt.data.dataset import ImageTable
from hashprompt.data.streams.stream import TaskData
from hashprompt.engine.callbacks import Callback
from hashprompt.engine.trainer import Trainer
from hashprompt.photos.evaluation import (
    TEST,
    HeldOutPhotos,
    evaluate_version,
    predicted_by_digest,
    reopen_held_out,
)
from hashprompt.photos.inputs.photo_dataset import PhotoDataset
from hashprompt.photos.session import LearnSession
from hashprompt.photos.store.config import ClassifierConfig
from hashprompt.photos.store.schemas import PhotoRecord
from hashprompt.photos.store.store import FIT, Store, Version
from hashprompt.storage.files import inside
from hashprompt.ui.progress import ProgressBars
from hashprompt.ui.terminal import Terminal

# The phases of the method, as a person with photos would call them.
PHASES = {
    "features-before": "drift compensation",
    "train": "training",
    "average": "training",
    "drift": "drift compensation",
    "statistics": "class statistics",
}


@dataclass(frozen=True)
class Step:
    """What fitting or training made, not yet committed."""

    info: dict[str, Any]  # of `version.json`
    tensors: dict[str, Tensor]
    held_out: list[HeldOutPhotos]

    def add_seconds(self, before: dict[str, Any]) -> None:
        """Count the time of the step before, too."""
        seconds = Counter(before["seconds"])
        seconds.update(self.info["seconds"])
        self.info["seconds"] = {k: round(v, 2) for k, v in seconds.items()}
        self.info["total_seconds"] = round(before["total_seconds"] + self.info["total_seconds"], 2)


class PhotoTask:
    """The photos of a session, and the version on top of which they are learned.

    Args:
        store: where versions are.
        config: of the classifier.
        dataset: the photos.
        session: as it is written in `learning/`.
        callbacks: are called with what happens.
        quiet: no progress.
    """

    def __init__(
        self,
        store: Store,
        config: ClassifierConfig,
        dataset: PhotoDataset,
        session: LearnSession,
        callbacks: Sequence[Callback] = (),
        quiet: bool = True,
    ) -> None:
        self.store, self.config, self.dataset, self.session = store, config, dataset, session
        self.callbacks = (*callbacks,) if quiet else (ProgressBars(PHASES), *callbacks)
        self.quiet = quiet
        self.parent = None if session.parent is None else store.version(session.parent)
        self.parent_info: dict[str, Any] = self.parent.info if self.parent else {}
        self.parent_records = store.photos(self.parent)
        known: list[str] = self.parent_info.get("classes", [])
        self.classes = [*known, *sorted(set(dataset.labels).difference(known))]
        ids = {name: index for index, name in enumerate(self.classes)}
        self.labels = torch.tensor([ids[label] for label in dataset.labels], dtype=torch.int64)
        self.is_test = torch.tensor([part == TEST for part in dataset.parts], dtype=torch.bool)
        self.learned: list[int] = torch.unique(self.labels[~self.is_test]).tolist()

    def report(self, text: str) -> None:
        if not self.quiet:
            Terminal(stderr=True).print(text)

    def learn(self, training: dict[str, Any]) -> Step:
        """The next task of the method, evaluated and calibrated.

        Args:
            training: options of this step; without epochs, frozen features are fitted.
        """
        started = time.perf_counter()
        trainer = self._trainer(training)
        if self.parent:
            before = self.store.tensors(self.parent)
            trainer.state.start_from(before, len(self.parent_info["batches"]))
        log = trainer.fit()
        trained = time.perf_counter()
        held_out, notes = self._held_out
        tested, held_out = evaluate_version(trainer, held_out, self.classes, self.parent_info)
        seconds = Counter({"testing": time.perf_counter() - trained})
        for entry in log["timings"]:
            if entry["phase"] in PHASES:
                seconds[PHASES[entry["phase"]]] += entry["seconds"]
        info = {
            **self._info(),
            **tested,
            "frozen_fit": not training["epochs"],
            "training": {
                k: getattr(trainer.method.config, k, v) for k, v in self.session.training.items()
            },
            "sizes": trainer.method.sizes(),
            "notes": notes,
            "seconds": {k: round(v, 2) for k, v in seconds.items()},
            "total_seconds": round(time.perf_counter() - started, 2),
        }
        return Step(info, trainer.method.state_dict(), held_out)

    def _trainer(self, training: dict[str, Any]) -> Trainer:
        train = self._table(~self.is_test)
        empty = train.select(torch.zeros(0, dtype=torch.int64))
        past = self.parent_info.get("batches", [])
        tasks = [TaskData(i, tuple(classes), empty, empty) for i, classes in enumerate(past)]
        learning = self.store.learning
        return self.config.trainer(
            training,
            (*tasks, TaskData(len(past), tuple(self.learned), train, empty)),
            learning if training["epochs"] else inside(learning, FIT),
            self.callbacks,
            f"hashprompt learn {self.store.folder} --resume",
        )

    def _table(self, rows: Tensor) -> ImageTable:
        return ImageTable(self.dataset.images, self.labels).select(rows)

    # What is written of it. ----------------------------------------------------------------

    @cached_property
    def _held_out(self) -> tuple[list[HeldOutPhotos], list[str]]:
        """Held-out photos of earlier sessions and of this one, and notes for the user."""
        earlier, notes = reopen_held_out(self.parent_records, self.config.short_side)
        rows = self.is_test.nonzero()[:, 0]
        digests = [self.dataset.digests[row] for row in rows.tolist()]
        new = HeldOutPhotos(self._table(rows), digests, [None] * len(digests))
        held_out = [photos for photos in (earlier, new) if len(photos.table)]
        return held_out, [*self.dataset.notes, *notes]

    def as_predicted_by(self, version: Version) -> list[HeldOutPhotos]:
        """Held-out photos with the predictions of a version of this session."""
        rows = self.store.photos(version).items()
        found = {digest: row.predicted for digest, row in rows if row.predicted is not None}
        return [
            replace(photos, predicted=tuple(found[digest] for digest in photos.digests))
            for photos in self._held_out[0]
        ]

    def _info(self) -> dict[str, Any]:
        """What `version.json` holds whatever the model has learned."""
        dataset, parent, gone = self.dataset, self.parent_info, self.session.forgets
        images = {name: list(parent.get("images", {}).get(name, [0, 0])) for name in self.classes}
        for label, part in zip(dataset.labels, dataset.parts, strict=True):
            images[label][part == TEST] += 1
        return {
            "session": self.session.fingerprint,
            "source": dataset.name,
            "edit": gone and f"forgot {gone}, learned {dataset.name} from nothing",
            "classes": self.classes,
            "integer_labels": dataset.integer_labels and parent.get("integer_labels", True),
            "batches": [*parent.get("batches", []), self.learned],
            "batch_names": [*parent.get("batch_names", []), dataset.name],
            "images": images,
        }

    def commit(self, step: Step) -> Version:
        """Keep what was made as the current version."""
        info = {**step.info, "parent": self.session.before}
        records = self._records(step.held_out)
        return self.store.commit(self.session.header, info, step.tensors, records)

    def _records(self, held_out: Sequence[HeldOutPhotos]) -> dict[str, PhotoRecord]:
        """`photos.json`: digests of all photos so far; paths and predictions of held-out ones."""
        predicted = predicted_by_digest(held_out)
        records = {
            digest: record._replace(predicted=predicted.get(digest, record.predicted))
            for digest, record in self.parent_records.items()
        }
        dataset = self.dataset
        columns = (dataset.digests, self.labels.tolist(), dataset.parts, dataset.paths)
        for digest, label, part, path in zip(*columns, strict=True):
            kept = path if part == TEST else ""
            records[digest] = PhotoRecord(label, part, kept, predicted.get(digest))
        return records
