"""One `learn`: photos become the next task of the method, and the result a new version.

Photos of known classes get a Gaussian of their own beside the ones their class has, and train the
shared prompts through a router of their own; a class is as likely as its likeliest Gaussian. So
more photos of a class, the same class in another style, and new classes are one case.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hashprompt.classifier.calibration import calibrate, quantiles
from hashprompt.classifier.config import ClassifierConfig, photo_stream
from hashprompt.classifier.evaluation import (
    TEST,
    HeldOutPhotos,
    compare_predictions,
    evaluate,
    photo_records,
    reopen_held_out,
)
from hashprompt.classifier.learn_job import LearnJob
from hashprompt.classifier.photo_dataset import PhotoDataset
from hashprompt.classifier.store import Store, Version
from hashprompt.data.dataset import ImageTable
from hashprompt.data.streams.stream import TaskData
from hashprompt.engine.devices import launch
from hashprompt.engine.trainer import Trainer
from hashprompt.progress import ProgressBars

# The phases of the method, as a person with photos would call them.
PHASES = {
    "tii-statistics": "looking at photos",
    "wtp": "training prompts",
    "drift-before": "following old classes",
    "drift-after": "following old classes",
    "statistics": "describing classes",
    "tap": "aligning classes",
}


class ClassifierTrainer:
    """Carries out one learn from the parent version to the next.

    Args:
        store: where versions are.
        config: of the classifier.
        dataset: the photos.
        job: as it is written in `learning/`.
    """

    def __init__(
        self, store: Store, config: ClassifierConfig, dataset: PhotoDataset, job: LearnJob
    ) -> None:
        self.store, self.config, self.dataset, self.job = store, config, dataset, job
        self.parent = None if job.parent is None else store.version(job.parent)
        self.parent_info: dict[str, Any] = self.parent.info if self.parent else {}
        self.parent_records = photo_records(store, self.parent)
        known: list[str] = self.parent_info.get("classes", [])
        self.classes = [*known, *sorted(set(dataset.labels).difference(known))]
        ids = {name: index for index, name in enumerate(self.classes)}
        self.labels = torch.tensor([ids[label] for label in dataset.labels], dtype=torch.int64)
        self.is_test = torch.tensor([part == TEST for part in dataset.parts], dtype=torch.bool)

    def run(self, quiet: bool) -> tuple[Version, list[HeldOutPhotos]]:
        """Learn, evaluate, calibrate and commit; what was going on before is taken up."""
        started = time.perf_counter()
        trainer = self._trainer(quiet)
        if self.parent:
            trainer.start_from(self.store.tensors(self.parent), len(self.parent_info["batches"]))
        log = trainer.fit()
        trained = time.perf_counter()
        info, held_out = self._evaluate(trainer)
        seconds = Counter({"testing": time.perf_counter() - trained})
        for entry in log["timings"]:
            if entry["phase"] in PHASES:
                seconds[PHASES[entry["phase"]]] += entry["seconds"]
        info["seconds"] = {k: round(v, 2) for k, v in seconds.items()}
        info["total_seconds"] = round(time.perf_counter() - started, 2)
        version = self.store.commit(
            self.job.header, info, trainer.method.state_dict(), self._records(held_out)
        )
        self.store.drop_learning()
        return version, held_out

    def _trainer(self, quiet: bool) -> Trainer:
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
            config.make_method(self.job.training),
            stream,
            config.backbone,
            config.run_options,
            launch(config.run_options),
            self.store.learning,
            config.seed,
            () if quiet else (ProgressBars(PHASES),),
            f"hashprompt learn {self.store.folder} --resume",
        )

    def _table(self, rows: Tensor) -> ImageTable:
        return ImageTable(self.dataset.images, self.labels).select(rows)

    # After training. -----------------------------------------------------------------------

    def _evaluate(self, trainer: Trainer) -> tuple[dict[str, Any], list[HeldOutPhotos]]:
        """`version.json`, but for seconds, and the held-out photos with their predictions."""
        held_out, notes = self._held_out()
        info = self._info(trainer, notes)
        with trainer.callbacks.running(1, 0):
            tables = [photos.table for photos in held_out]
            logits, strangeness = evaluate(trainer.evaluator, tables, trainer.callbacks)
        predicted = logits.argmax(1).split([len(table) for table in tables])
        held_out = [
            replace(photos, predicted=tuple(ids.tolist()))
            for photos, ids in zip(held_out, predicted, strict=True)
        ]
        labels = torch.cat([torch.zeros(0, dtype=torch.int64), *(t.labels for t in tables)])
        before = self.parent_info.get("temperature")
        info["temperature"], info["calibration"] = calibrate(logits, labels, before)
        info["distances"] = quantiles(strangeness) or self.parent_info.get("distances", [])
        return {**info, **compare_predictions(held_out, self.classes)}, held_out

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
        return {
            "job": self.job.fingerprint,
            "source": dataset.name,
            "classes": self.classes,
            "integer_labels": dataset.integer_labels and parent.get("integer_labels", True),
            "batches": [*parent.get("batches", []), learned],
            "batch_names": [*parent.get("batch_names", []), dataset.name],
            "images": self._counts(),
            "training": self.job.training,
            "usage": trainer.method.usage(),
            "sizes": trainer.method.sizes(),
            "notes": notes,
            "temperature": 1.0,
            "distances": [],
        }

    def _counts(self) -> dict[str, list[int]]:
        """Training and held-out photos of each class so far."""
        earlier = self.parent_info.get("images", {})
        counts = {name: list(earlier.get(name, [0, 0])) for name in self.classes}
        for label, part in zip(self.dataset.labels, self.dataset.parts, strict=True):
            counts[label][part == TEST] += 1
        return counts

    def _records(self, held_out: Sequence[HeldOutPhotos]) -> dict[str, list[Any]]:
        """`photos.json`: hashes of all photos so far; paths and answers of held-out ones."""
        predicted: dict[str, int] = {}
        for photos in held_out:
            predicted.update(zip(photos.digests, photos.predicted, strict=True))
        records: dict[str, list[Any]] = {
            digest: [*record[:3], predicted.get(digest, record.predicted)]
            for digest, record in self.parent_records.items()
        }
        dataset = self.dataset
        columns = (dataset.digests, self.labels.tolist(), dataset.parts, dataset.paths)
        for digest, label, part, path in zip(*columns, strict=True):
            records[digest] = [label, part, path if part == TEST else "", predicted.get(digest)]
        return records
