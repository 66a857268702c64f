"""Held-out photos of a learn: predict them, compare with the version before, find the confused."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hashprompt.classifier.calibration import Strangeness
from hashprompt.classifier.image_files import content_digest
from hashprompt.classifier.store import Store, Version
from hashprompt.data.dataset import ImageTable
from hashprompt.data.reading.image_stores import Photos
from hashprompt.data.reading.opening import open_photos
from hashprompt.data.reading.options import ReadOptions
from hashprompt.engine.callbacks import Callback
from hashprompt.engine.evaluator import Evaluator
from hashprompt.methods.pipeline import Pipeline
from hashprompt.progress import reading_bar

TEST = "test"


class PhotoRecord(NamedTuple):
    """What `photos.json` keeps of a photo; its key is the SHA-256 of the file."""

    label: int
    part: str  # `train` or `test`
    path: str  # of held-out photos that lie on disk, else empty
    predicted: int | None  # class id, of held-out photos

    @property
    def can_be_tested(self) -> bool:
        return self.part == TEST and bool(self.path)


def photo_records(store: Store, version: Version | None) -> dict[str, PhotoRecord]:
    """All photos learned so far, by digest."""
    rows = store.photos(version) if version else {}
    return {digest: PhotoRecord(*row) for digest, row in rows.items()}


@dataclass(frozen=True)
class HeldOutPhotos:
    """N photos for testing, and the class ids predicted for them."""

    table: ImageTable
    digests: list[str]
    before: list[int | None]  # by the parent version; None for photos it was never asked about
    predicted: tuple[int, ...] = ()  # by the new version, once it was evaluated


def reopen_held_out(
    records: dict[str, PhotoRecord], short_side: int
) -> tuple[HeldOutPhotos, list[str]]:
    """Held-out photos of earlier learns that still lie where they were; a note on the others."""
    testable = {d: record for d, record in records.items() if record.can_be_tested}
    unchanged = [d for d, record in testable.items() if content_digest(Path(record.path)) == d]
    notes = []
    if len(unchanged) < len(testable):
        notes.append(
            f"{len(testable) - len(unchanged)} of {len(testable)} held-out photos of earlier "
            "learns are gone or changed and cannot be asked about again."
        )
    files = [Path(testable[d].path) for d in unchanged]
    options = ReadOptions(short_side, unreadable="skip")
    images, readable, _ = open_photos(files, options, reading_bar)
    digests = [unchanged[index] for index in readable]
    labels = torch.tensor([testable[d].label for d in digests], dtype=torch.int64)
    before = [testable[d].predicted for d in digests]
    return HeldOutPhotos(ImageTable(images, labels), digests, before), notes


def evaluate(
    evaluator: Evaluator, tables: Sequence[ImageTable], callback: Callback
) -> tuple[Tensor, Tensor]:
    """Logits (N, C) and strangeness (N,) of all images of the tables, one after the other."""
    callback.on_phase_start(0, "testing", sum(map(len, tables)), 0)
    method = evaluator.method.eval()
    assert isinstance(method, Pipeline)
    measure = Strangeness(method)
    logits, strangeness = [torch.zeros(0, method.cells.classes)], [torch.zeros(0)]
    for table in tables:
        for tested in evaluator.predictions(table):
            logits.append(tested.prediction.logits.float().cpu())
            strangeness.append(measure.of(tested.plain.float())[0].cpu())
            callback.on_images_tested(sum(map(len, logits)))
    return torch.cat(logits), torch.cat(strangeness)


def compare_predictions(
    held_out: Sequence[HeldOutPhotos], classes: Sequence[str]
) -> dict[str, Any]:
    """[right, tested] by class, before and after a learn, and what is taken for what."""
    accuracy, before, after = ({name: [0, 0] for name in classes} for _ in range(3))
    confusions: Counter[tuple[str, str]] = Counter()
    for photos in held_out:
        rows = zip(photos.table.labels.tolist(), photos.predicted, photos.before, strict=True)
        for label, predicted, earlier in rows:
            name = classes[label]
            accuracy[name][0] += predicted == label
            accuracy[name][1] += 1
            if earlier is not None:  # the parent was asked too
                for counts, prediction in ((before, earlier), (after, predicted)):
                    counts[name][0] += prediction == label
                    counts[name][1] += 1
            if predicted != label:
                confusions[name, classes[predicted]] += 1
    return {
        "accuracy": accuracy,
        "before": {name: counts for name, counts in before.items() if counts[1]},
        "after": {name: counts for name, counts in after.items() if counts[1]},  # the same photos
        "confusions": [[*pair, count] for pair, count in confusions.most_common(50)],
    }


def confused_photos(
    held_out: Sequence[HeldOutPhotos], classes: Sequence[str], most: int = 24
) -> list[dict[str, Any]]:
    """Held-out photos that are answered wrongly now, those that were right before first."""
    confused = []
    for photos in held_out:
        labels, images = photos.table.labels.tolist(), photos.table.images
        assert isinstance(images, Photos)
        for row, (label, predicted) in enumerate(zip(labels, photos.predicted, strict=True)):
            if predicted != label:
                lost = photos.before[row] == label
                confused.append((images.select(torch.tensor([row])), label, predicted, lost))
    confused.sort(key=lambda photo: not photo[-1])
    return [
        {
            "image": image[torch.tensor([0])][0],
            "name": Path(image.names()[0]).name,
            "truth": classes[label],
            "said": classes[predicted],
            "lost": lost,
        }
        for image, label, predicted, lost in confused[:most]
    ]
