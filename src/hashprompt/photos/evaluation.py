"""Held-out photos: predictions, comparison with the version before, confusions."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hashprompt.data.dataset import ImageTable
from hashprompt.data.reading.image_stores import Photos, open_photos
from hashprompt.engine.callbacks import Callback
from hashprompt.engine.evaluator import Evaluator
from hashprompt.engine.trainer import Trainer
from hashprompt.methods.averaged_prompt.method import AveragedPrompt
from hashprompt.options.stream import ReadOptions
from hashprompt.photos.calibration import MIN_PHOTOS, Strangeness, calibrate, quantiles
from hashprompt.photos.inputs.image_files import content_digest
from hashprompt.photos.store.schemas import PhotoRecord

TEST = "test"


@dataclass(frozen=True)
class HeldOutPhotos:
    """N photos for testing, and the class ids predicted for them."""

    table: ImageTable
    digests: list[str]
    before: list[int | None]  # by the parent version; None for photos it was not tested on
    predicted: tuple[int, ...] = ()  # by the new version, once it was evaluated


def reopen_held_out(
    records: dict[str, PhotoRecord], short_side: int
) -> tuple[HeldOutPhotos, list[str]]:
    """Held-out photos of earlier sessions that are still in place; a note on the others."""
    testable = {d: record for d, record in records.items() if record.can_be_tested}
    unchanged = [d for d, record in testable.items() if content_digest(Path(record.path)) == d]
    notes = []
    if len(unchanged) < len(testable):
        notes.append(
            f"{len(testable) - len(unchanged)} of {len(testable)} held-out photos of earlier "
            "sessions are missing or changed and are not tested again."
        )
    files = [Path(testable[d].path) for d in unchanged]
    options = ReadOptions(short_side, unreadable="skip")
    images, readable, _ = open_photos(files, options)
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
    assert isinstance(method, AveragedPrompt)
    measure = Strangeness(method.gaussians)
    logits, strangeness = [torch.zeros(0, method.cells.classes)], [torch.zeros(0)]
    for table in tables:
        for prediction, _ in evaluator.predictions(table):
            logits.append(prediction.logits.float().cpu())
            assert prediction.features is not None
            strangeness.append(measure.of(prediction.features.float())[0].cpu())
            callback.on_images_tested(sum(map(len, logits)))
    return torch.cat(logits), torch.cat(strangeness)


def evaluate_version(
    trainer: Trainer,
    held_out: Sequence[HeldOutPhotos],
    classes: Sequence[str],
    before: Mapping[str, Any],
) -> tuple[dict[str, Any], list[HeldOutPhotos]]:
    """Accuracy and calibration for `version.json`, and the photos with predictions.

    Args:
        trainer: of the model that is tested.
        before: `version.json` of the version before, whose calibration stays if nothing is tested.
    """
    tables = [photos.table for photos in held_out]
    count = sum(map(len, tables))
    kept = kept_scale(count, before)
    with trainer.callbacks.running(1, 0):
        logits, strangeness = evaluate(trainer.evaluator, tables, trainer.callbacks)
    predicted = logits.argmax(1).split([len(table) for table in tables])
    tested = [
        replace(photos, predicted=tuple(ids.tolist()))
        for photos, ids in zip(held_out, predicted, strict=True)
    ]
    labels = torch.cat([torch.zeros(0, dtype=torch.int64), *(t.labels for t in tables)])
    temperature, calibration = calibrate(logits, labels, before.get("temperature"))
    distances, of = kept or (quantiles(strangeness), count)
    return {
        "temperature": temperature,
        "calibration": {**calibration, "scale_images": of},
        "distances": distances,
        **compare_predictions(tested, classes),
    }, tested


def kept_scale(count: int, before: Mapping[str, Any]) -> tuple[list[float], int] | None:
    """The scale of `unknown` of the version before, and its number of photos, if it stays.

    Few photos do not replace the scale of more.

    Args:
        count: of photos that would make a new scale.
        before: `version.json` of the version before.
    """
    scale, images = before.get("distances"), before.get("calibration", {}).get("scale_images")
    if not isinstance(images, int):  # a stranger's file may hold anything
        images = MIN_PHOTOS
    return (scale, images) if scale and count < max(1, min(images, MIN_PHOTOS)) else None


def predicted_by_digest(held_out: Sequence[HeldOutPhotos]) -> dict[str, int]:
    """The class ids predicted for photos, by their digests."""
    pairs = (zip(photos.digests, photos.predicted, strict=True) for photos in held_out)
    return {digest: predicted for rows in pairs for digest, predicted in rows}


def leaves_no_room(accuracy: Mapping[str, Sequence[int]]) -> bool:
    """Whether all of enough photos are classified correctly, so that training cannot gain."""
    tested = sum(count for _, count in accuracy.values())
    return MIN_PHOTOS <= tested == sum(right for right, _ in accuracy.values())


@dataclass(frozen=True)
class TrainingGain:
    """How many held-out photos training fixed, and how many it broke."""

    tested: int
    fixed: int
    broken: int

    @property
    def is_kept(self) -> bool:
        """Whether it loses no more than one standard error, √(fixed + broken).

        Training nearly always helps, even where few photos cannot show it (docs/results/photos.md).
        """
        return self.broken - self.fixed <= math.sqrt(self.fixed + self.broken)

    @classmethod
    def between(
        cls, fitted: Mapping[str, PhotoRecord], held_out: Sequence[HeldOutPhotos]
    ) -> "TrainingGain":
        """From predictions on frozen features to those for the same photos after training."""
        right: Counter[tuple[bool, bool]] = Counter()  # before, after
        for photos in held_out:
            rows = zip(photos.digests, photos.table.labels.tolist(), photos.predicted, strict=True)
            right.update((fitted[d].predicted == label, new == label) for d, label, new in rows)
        return cls(right.total(), right[False, True], right[True, False])


def compare_predictions(
    held_out: Sequence[HeldOutPhotos], classes: Sequence[str]
) -> dict[str, Any]:
    """[right, tested] by class, before and after a session, and the confusions."""
    accuracy, before, after = ({name: [0, 0] for name in classes} for _ in range(3))
    confusions: Counter[tuple[str, str]] = Counter()
    for photos in held_out:
        rows = zip(photos.table.labels.tolist(), photos.predicted, photos.before, strict=True)
        for label, predicted, earlier in rows:
            name = classes[label]
            accuracy[name][0] += predicted == label
            accuracy[name][1] += 1
            if earlier is not None:  # the parent was tested too
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
    """Held-out photos that are classified wrongly, those that were right before first."""
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
            "predicted": classes[predicted],
            "lost": lost,
        }
        for image, label, predicted, lost in confused[:most]
    ]
