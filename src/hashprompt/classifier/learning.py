"""One `learn`: photos become the next task of the method, and the result a new version.

Photos of known classes get a Gaussian of their own beside the ones their class has, and train the
shared prompts through a router of their own; a class is as likely as its likeliest Gaussian. So
more photos of a class, the same class in another style, and new classes are one case.
"""

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from hashprompt.classifier.batches import Batch
from hashprompt.classifier.calibration import calibrate, quantiles
from hashprompt.classifier.choices import Effort
from hashprompt.classifier.learner import Learner, Setup, photo_stream
from hashprompt.classifier.store import Store, Version
from hashprompt.data.dataset import ImageTable
from hashprompt.data.reading.image_stores import Photos
from hashprompt.data.reading.opening import open_photos
from hashprompt.data.reading.options import ReadOptions
from hashprompt.data.streams.stream import TaskData
from hashprompt.engine.callbacks import Callback
from hashprompt.engine.devices import launch
from hashprompt.engine.trainer import Trainer
from hashprompt.progress import ProgressBars, reading_bar
from hashprompt.storage.files import DamagedError, read_json, write_json

TEST = "test"
# The phases of the method, as a person with photos would call them.
PHASES = {
    "tii-statistics": "looking at photos",
    "wtp": "training prompts",
    "drift-before": "following old classes",
    "drift-after": "following old classes",
    "statistics": "describing classes",
    "tap": "aligning classes",
}


@dataclass
class Tested:
    """Held-out photos, what they show and what was said of them before and after a learn."""

    table: ImageTable
    digests: list[str]
    before: list[int | None]  # class that the parent version said; None for new photos
    said: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
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

    def write(self, folder: Path) -> None:
        write_json(folder / "job.json", self.__dict__)

    @classmethod
    def read(cls, folder: Path) -> "Job | None":
        """The unfinished learn in a folder; one that was cut off before it began is none."""
        advice = (
            "Drop this unfinished learn with discard (`hashprompt learn MODEL PHOTOS --discard`); "
            "finished versions are not touched."
        )
        try:
            stored = read_json(folder / "job.json", {}, advice)
            return cls(**{k: v for k, v in stored.items() if k != "format"})
        except FileNotFoundError:
            return None
        except TypeError as error:  # of another version
            raise DamagedError(folder / "job.json", str(error), advice) from error


def fingerprint(batch: Batch, *others: Any) -> str:
    """SHA-256 of the photos of a learn, their labels and parts, and what else decides it."""
    rows = sorted(zip(batch.digests, batch.labels, batch.parts, strict=True))
    return hashlib.sha256(json.dumps([rows, others]).encode()).hexdigest()


class Learning:
    """Carries out one learn from the parent version to the next.

    Args:
        store: where versions are.
        setup: the classifier's fixed choices.
        batch: the photos.
        job: as it is written in `learning/`.
    """

    def __init__(self, store: Store, setup: Setup, batch: Batch, job: Job) -> None:
        self.store, self.setup, self.batch, self.job = store, setup, batch, job
        self.parent = None if job.parent is None else store.version(job.parent)
        self.old: dict[str, Any] = self.parent.info if self.parent else {}
        self.seen = store.photos(self.parent) if self.parent else {}
        self.classes: list[str] = list(self.old.get("classes", []))
        self.classes += [c for c in dict.fromkeys(sorted(batch.labels)) if c not in self.classes]
        ids = {name: index for index, name in enumerate(self.classes)}
        self.labels = torch.tensor([ids[label] for label in batch.labels], dtype=torch.int64)
        self.is_test = torch.tensor([part == TEST for part in batch.parts], dtype=torch.bool)
        self.notes = list(batch.notes)
        self.tested: list[Tested] = []

    def run(self, quiet: bool) -> Version:
        """Learn, test, calibrate and commit; what was going on before is taken up."""
        started = time.perf_counter()
        trainer = self._trainer(quiet)
        if self.parent:
            trainer.start_from(self.store.tensors(self.parent), len(self.old["batches"]))
        log = trainer.fit()
        trained = time.perf_counter()
        state = trainer.method.state_dict()
        info = self._test(trainer)
        seconds = Counter({"testing": time.perf_counter() - trained})
        for entry in log["timings"]:
            if entry["phase"] in PHASES:
                seconds[PHASES[entry["phase"]]] += entry["seconds"]
        info["seconds"] = {k: round(v, 2) for k, v in seconds.items()}
        info["total_seconds"] = round(time.perf_counter() - started, 2)
        version = self.store.commit(self.job.header, info, state, self._photos())
        shutil.rmtree(self.store.learning, ignore_errors=True)
        return version

    def _trainer(self, quiet: bool) -> Trainer:
        new = self._table(~self.is_test)
        none = new.select(torch.zeros(0, dtype=torch.int64))
        past = [
            TaskData(i, tuple(classes), none, none)
            for i, classes in enumerate(self.old.get("batches", []))
        ]
        classes = tuple(torch.unique(new.labels).tolist())
        stream = photo_stream((*past, TaskData(len(past), classes, new, none)))
        setup = self.setup
        how = f"hashprompt learn {self.store.folder} --resume"
        method = setup.make_method(self.job.training)
        return Trainer(
            method,
            stream,
            setup.backbone,
            setup.run_options,
            launch(setup.run_options),
            self.store.learning,
            setup.seed,
            () if quiet else (ProgressBars(PHASES),),
            how,
        )

    def _table(self, rows: Tensor) -> ImageTable:
        return ImageTable(self.batch.photos, self.labels).select(rows)

    # After training. -----------------------------------------------------------------------

    def _test(self, trainer: Trainer) -> dict[str, Any]:
        """Ask the new version about all held-out photos that are there; what is known of it."""
        learned = self._table(~self.is_test)
        batches = [*self.old.get("batches", []), torch.unique(learned.labels).tolist()]
        new = self.is_test.nonzero()[:, 0]
        own = [self.batch.digests[row] for row in new.tolist()]
        self.tested = [
            t
            for t in (self._old_photos(), Tested(self._table(new), own, [None] * len(own)))
            if len(t.table)
        ]
        info: dict[str, Any] = {
            "job": self.job.fingerprint,
            "source": self.batch.name,
            "classes": self.classes,
            "integer_labels": self.batch.integer_labels and self.old.get("integer_labels", True),
            "batches": batches,
            "batch_names": [*self.old.get("batch_names", []), self.batch.name],
            "images": self._counts(),
            "training": self.job.training,
            "usage": trainer.method.usage(),
            "sizes": trainer.method.sizes(),
            "notes": self.notes,
            "temperature": 1.0,
            "distances": [],
        }
        learner = Learner(self.setup, info, trainer.method.state_dict())
        with trainer.callbacks.running(1, 0):
            logits, strange = self._ask(learner, trainer.callbacks)
        truth = torch.cat([t.table.labels for t in self.tested]) if self.tested else torch.empty(0)
        before = self.old.get("temperature")
        info["temperature"], info["calibration"] = calibrate(logits, truth.long(), before)
        info["distances"] = quantiles(strange) or self.old.get("distances", [])
        return {**info, **self._compare()}

    def _old_photos(self) -> Tested:
        """Held-out photos of earlier learns that still lie where they were."""
        held = [(d, *row) for d, row in self.seen.items() if row[1] == TEST and row[2]]
        there = [row for row in held if _is_still(row[0], Path(row[3]))]
        if len(there) < len(held):
            self.notes.append(
                f"{len(held) - len(there)} of {len(held)} held-out photos of earlier learns are "
                "gone or changed and cannot be asked about again."
            )
        reading = ReadOptions(self.setup.short_side, unreadable="skip")
        photos, kept, _ = open_photos([Path(row[3]) for row in there], reading, reading_bar)
        there = [there[index] for index in kept]
        labels = torch.tensor([row[1] for row in there], dtype=torch.int64)
        before = [row[4] for row in there]
        return Tested(ImageTable(photos, labels), [row[0] for row in there], before)

    def _ask(self, learner: Learner, callback: Callback) -> tuple[Tensor, Tensor]:
        """Logits (N, C) and strangeness (N,) of all held-out photos."""
        count = sum(len(tested.table) for tested in self.tested)
        callback.on_phase_start(0, "testing", count, 0)
        logits, strange = [torch.zeros(0, len(self.classes))], [torch.zeros(0)]
        size = self.setup.run_options.eval_batch_size
        for tested in self.tested:
            assert isinstance(tested.table.images, Photos)
            for rows in torch.arange(len(tested.table)).split(size):
                said = learner.ask(tested.table.images[rows])
                tested.said += said.logits.argmax(1).tolist()
                logits.append(said.logits)
                strange.append(said.strange.cpu())
                callback.on_images_tested(sum(map(len, logits)))
        return torch.cat(logits), torch.cat(strange)

    def _compare(self) -> dict[str, Any]:
        """Right answers by class, before and after, and what is taken for what."""
        names = self.classes
        accuracy, before, after = ({c: [0, 0] for c in names} for _ in range(3))
        confused: Counter[tuple[str, str]] = Counter()
        for tested in self.tested:
            rows = zip(tested.table.labels.tolist(), tested.said, tested.before, strict=True)
            for truth, said, earlier in rows:
                accuracy[names[truth]][0] += said == truth
                accuracy[names[truth]][1] += 1
                if earlier is not None:  # the parent was asked too
                    for asked, answer in ((before, earlier), (after, said)):
                        asked[names[truth]][0] += answer == truth
                        asked[names[truth]][1] += 1
                if said != truth:
                    confused[names[truth], names[said]] += 1
        return {
            "accuracy": accuracy,
            "before": {c: v for c, v in before.items() if v[1]},
            "after": {c: v for c, v in after.items() if v[1]},  # the same photos
            "confusions": [[*pair, count] for pair, count in confused.most_common(50)],
        }

    def _counts(self) -> dict[str, list[int]]:
        """Training and held-out photos of each class so far."""
        counts = {c: list(self.old.get("images", {}).get(c, [0, 0])) for c in self.classes}
        for label, part in zip(self.batch.labels, self.batch.parts, strict=True):
            counts[label][part == TEST] += 1
        return counts

    def _photos(self) -> dict[str, list]:
        """`photos.json`: hashes of all photos so far; paths and answers of held-out ones."""
        said = {d: s for t in self.tested for d, s in zip(t.digests, t.said, strict=True)}
        photos = {d: [*row[:3], said.get(d, row[3])] for d, row in self.seen.items()}
        rows = zip(
            self.batch.digests,
            self.labels.tolist(),
            self.batch.parts,
            self.batch.paths,
            strict=True,
        )
        for digest, label, part, path in rows:
            photos[digest] = [label, part, path if part == TEST else "", said.get(digest)]
        return photos


def _is_still(digest: str, path: Path) -> bool:
    """Whether a file holds the photo it held."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == digest
    except OSError:
        return False


def confused_photos(
    tested: Sequence[Tested], classes: Sequence[str], most: int = 24
) -> list[dict[str, Any]]:
    """Held-out photos that are answered wrongly now, those that were right before first."""
    found: list[tuple[Any, ...]] = []
    for part in tested:
        rows = zip(part.table.labels.tolist(), part.said, part.before, strict=True)
        for row, (truth, said, before) in enumerate(rows):
            if said != truth:
                lost = before == truth
                found.append((not lost, len(found), part, row, classes[truth], classes[said], lost))
    pictures = []
    for *_, part, row, truth_name, said_name, lost in sorted(found, key=lambda f: f[:2])[:most]:
        images = part.table.images
        assert isinstance(images, Photos)
        pictures.append(
            {
                "image": images[torch.tensor([row])][0],
                "name": Path(images.select(torch.tensor([row])).names()[0]).name,
                "truth": truth_name,
                "said": said_name,
                "lost": lost,
            }
        )
    return pictures
