"""One `learn`: photos become the next task of the method, and the result a new version.

In two steps, each of which makes a version. The look computes plain features and describes classes
by them, which takes seconds; then prompts are trained, from the same version and with the features
that the look left in the cache. What training made is kept unless held-out photos are wrong by more
than their noise; its parent is that of the look, so that one undo takes back the whole learn.

Photos of known classes get a Gaussian of their own beside the ones their class has, and train the
shared prompts through a router of their own; a class is as likely as its likeliest Gaussian. So
more photos of a class, the same class in another style, and new classes are one case.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from hashprompt.data.dataset import ImageTable
from hashprompt.data.streams.stream import TaskData
from hashprompt.engine.callbacks import Callback
from hashprompt.engine.devices import launch
from hashprompt.engine.trainer import Trainer
from hashprompt.photos.evaluation import (
    TEST,
    HeldOutPhotos,
    TrainingGain,
    evaluate_version,
    leaves_no_room,
    photo_records,
    predicted_by_digest,
    reopen_held_out,
)
from hashprompt.photos.inputs.photo_dataset import PhotoDataset
from hashprompt.photos.learn_job import LearnJob
from hashprompt.photos.store.config import ClassifierConfig, photo_stream
from hashprompt.photos.store.edits import batch_counts
from hashprompt.photos.store.store import LOOK, Store, Version
from hashprompt.storage.files import inside
from hashprompt.ui.progress import ProgressBars
from hashprompt.ui.terminal import Terminal

# The phases of the method, as a person with photos would call them.
PHASES = {
    "tii-statistics": "looking at photos",
    "wtp": "training prompts",
    "drift-before": "following old classes",
    "drift-after": "following old classes",
    "statistics": "describing classes",
    "tap": "aligning classes",
}


@dataclass(frozen=True)
class LearnOutcome:
    """The version that answers after a learn, and the held-out photos it was tested on."""

    version: Version
    held_out: list[HeldOutPhotos]
    training: str = ""  # what held-out photos said of it, if the look is what stays


@dataclass(frozen=True)
class Step:
    """What one step of a learn made, not yet committed."""

    info: dict[str, Any]  # of `version.json`
    tensors: dict[str, Tensor]
    held_out: list[HeldOutPhotos]


class ClassifierTrainer:
    """Carries out one learn from the parent version to the next.

    Args:
        store: where versions are.
        config: of the classifier.
        dataset: the photos.
        job: as it is written in `learning/`.
        callbacks: are told what happens.
    """

    def __init__(
        self,
        store: Store,
        config: ClassifierConfig,
        dataset: PhotoDataset,
        job: LearnJob,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.store, self.config, self.dataset, self.job = store, config, dataset, job
        self.callbacks = tuple(callbacks)
        self.parent = None if job.parent is None else store.version(job.parent)
        self.parent_info: dict[str, Any] = self.parent.info if self.parent else {}
        self.parent_records = photo_records(store, self.parent)
        known: list[str] = self.parent_info.get("classes", [])
        self.classes = [*known, *sorted(set(dataset.labels).difference(known))]
        ids = {name: index for index, name in enumerate(self.classes)}
        self.labels = torch.tensor([ids[label] for label in dataset.labels], dtype=torch.int64)
        self.is_test = torch.tensor([part == TEST for part in dataset.parts], dtype=torch.bool)

    def run(self, quiet: bool) -> LearnOutcome:
        """Look, then train; what was going on before is taken up where it stood."""
        look = self._look_before()
        if look is None:
            done = self._learn({**self.job.training, "epochs": 0}, LOOK, quiet)
            look = self._commit(done)
            if not quiet and done.info["is_look"] and self.job.training["epochs"]:
                Terminal(stderr=True).print(f"Version {look.number} answers already.")
        if look.info["is_look"] and self.job.training["epochs"]:
            outcome = self._train(look, quiet)
        else:
            outcome = LearnOutcome(look, self._as_looked(look))
        self.store.drop_learning()
        return outcome

    def _look_before(self) -> Version | None:
        """The version that the look of this learn made, before it was killed."""
        current = None if self.store.is_new else self.store.version()
        return current if current and current.info.get("job") == self.job.fingerprint else None

    def _as_looked(self, look: Version) -> list[HeldOutPhotos]:
        """Held-out photos with what the look predicted for them."""
        records = photo_records(self.store, look)
        found = []
        for photos in self._held_out[0]:
            predicted = [records[digest].predicted for digest in photos.digests]
            assert None not in predicted
            found.append(replace(photos, predicted=tuple(p for p in predicted if p is not None)))
        return found

    def _train(self, look: Version, quiet: bool) -> LearnOutcome:
        """Train prompts, and commit what that made unless held-out photos speak against it."""
        if leaves_no_room(look.info["accuracy"]):
            tested = sum(count for _, count in look.info["accuracy"].values())
            told = (
                f"Prompts are not trained: the first look is right on all {tested} held-out photos."
            )
            return LearnOutcome(look, self._as_looked(look), told)
        done = self._learn(self.job.training, "", quiet)
        gain = TrainingGain.between(photo_records(self.store, look), done.held_out)
        if not gain.pays:
            told = (
                f"Training prompts did not pay: of {gain.tested} held-out photos it put "
                f"{gain.gained} right and {gain.lost} wrong. The first look stays."
            )
            return LearnOutcome(look, self._as_looked(look), told)
        seconds = Counter(look.info["seconds"])
        seconds.update(done.info["seconds"])
        done.info["seconds"] = {k: round(v, 2) for k, v in seconds.items()}
        done.info["total_seconds"] = round(
            look.info["total_seconds"] + done.info["total_seconds"], 2
        )
        return LearnOutcome(self._commit(done), done.held_out)

    def _learn(self, training: dict[str, Any], place: str, quiet: bool) -> Step:
        """The next task of the method from the parent version, evaluated and calibrated.

        Args:
            training: options of this step.
            place: where in `learning/` it is saved.
        """
        started = time.perf_counter()
        trainer = self._trainer(training, place, quiet)
        if self.parent:
            learned = self.store.tensors(self.parent)
            trainer.state.start_from(learned, len(self.parent_info["batches"]))
        log = trainer.fit()
        trained = time.perf_counter()
        info, held_out = self._evaluate(trainer, training)
        seconds = Counter({"testing": time.perf_counter() - trained})
        for entry in log["timings"]:
            if entry["phase"] in PHASES:
                seconds[PHASES[entry["phase"]]] += entry["seconds"]
        info["seconds"] = {k: round(v, 2) for k, v in seconds.items()}
        info["total_seconds"] = round(time.perf_counter() - started, 2)
        return Step(info, trainer.method.state_dict(), held_out)

    def _commit(self, step: Step) -> Version:
        info = {**step.info, "parent": self.job.before}
        records = self._records(step.held_out)
        return self.store.commit(self.job.header, info, step.tensors, records)

    def _trainer(self, training: dict[str, Any], place: str, quiet: bool) -> Trainer:
        train = self._table(~self.is_test)
        empty = train.select(torch.zeros(0, dtype=torch.int64))
        past = [
            TaskData(i, tuple(classes), empty, empty)
            for i, classes in enumerate(self.parent_info.get("batches", []))
        ]
        classes = tuple(torch.unique(train.labels).tolist())
        stream = photo_stream((*past, TaskData(len(past), classes, train, empty)))
        config = self.config
        return Trainer(
            config.make_method(training),
            stream,
            config.backbone,
            config.run_options,
            launch(config.run_options),
            inside(self.store.learning, place) if place else self.store.learning,
            config.seed,
            self.callbacks if quiet else (ProgressBars(PHASES), *self.callbacks),
            f"hashprompt learn {self.store.folder} --resume",
        )

    def _table(self, rows: Tensor) -> ImageTable:
        return ImageTable(self.dataset.images, self.labels).select(rows)

    # After training. -----------------------------------------------------------------------

    def _evaluate(
        self, trainer: Trainer, training: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[HeldOutPhotos]]:
        """`version.json`, but for seconds, and the held-out photos with their predictions."""
        held_out, notes = self._held_out
        tested, photos = evaluate_version(trainer, held_out, self.classes, self.parent_info)
        info = self._info(trainer, notes)
        return {**info, "is_look": not training["epochs"], **tested}, photos

    @cached_property
    def _held_out(self) -> tuple[list[HeldOutPhotos], list[str]]:
        """Held-out photos of earlier learns and of this one, and notes for the user."""
        earlier, notes = reopen_held_out(self.parent_records, self.config.short_side)
        rows = self.is_test.nonzero()[:, 0]
        digests = [self.dataset.digests[row] for row in rows.tolist()]
        new = HeldOutPhotos(self._table(rows), digests, [None] * len(digests))
        held_out = [photos for photos in (earlier, new) if len(photos.table)]
        return held_out, [*self.dataset.notes, *notes]

    def _info(self, trainer: Trainer, notes: list[str]) -> dict[str, Any]:
        """What `version.json` says before the version was evaluated."""
        dataset, parent = self.dataset, self.parent_info
        learned = torch.unique(self.labels[~self.is_test]).tolist()
        method = trainer.method
        return {
            "job": self.job.fingerprint,
            "source": dataset.name,
            "edit": self._edit,
            "classes": self.classes,
            "integer_labels": dataset.integer_labels and parent.get("integer_labels", True),
            "batches": [*parent.get("batches", []), learned],
            "batch_counts": [*batch_counts(parent), self._learned_counts(learned)],
            "batch_names": [*parent.get("batch_names", []), dataset.name],
            "images": self._counts(),
            "training": {k: getattr(method.config, k, v) for k, v in self.job.training.items()},
            "usage": method.usage(),
            "sizes": method.sizes(),
            "notes": notes,
        }

    @property
    def _edit(self) -> str | None:
        """In words, if this learn is there to forget a class."""
        gone = self.job.forgets
        return None if gone is None else f"forgot {gone}, learned {self.dataset.name} from nothing"

    def _learned_counts(self, classes: Sequence[int]) -> list[int]:
        """Training photos of classes in this learn."""
        counts = Counter(self.labels[~self.is_test].tolist())
        return [counts[label] for label in classes]

    def _counts(self) -> dict[str, list[int]]:
        """Training and held-out photos of each class so far."""
        earlier = self.parent_info.get("images", {})
        counts = {name: list(earlier.get(name, [0, 0])) for name in self.classes}
        for label, part in zip(self.dataset.labels, self.dataset.parts, strict=True):
            counts[label][part == TEST] += 1
        return counts

    def _records(self, held_out: Sequence[HeldOutPhotos]) -> dict[str, list[Any]]:
        """`photos.json`: hashes of all photos so far; paths and answers of held-out ones."""
        predicted = predicted_by_digest(held_out)
        records: dict[str, list[Any]] = {
            digest: [*record[:3], predicted.get(digest, record.predicted)]
            for digest, record in self.parent_records.items()
        }
        dataset = self.dataset
        columns = (dataset.digests, self.labels.tolist(), dataset.parts, dataset.paths)
        for digest, label, part, path in zip(*columns, strict=True):
            records[digest] = [label, part, path if part == TEST else "", predicted.get(digest)]
        return records
