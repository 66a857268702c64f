"""Answers about images: from what a model computes, as text, JSON and CSV."""

import csv
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from hashprompt.errors import UserError
from hashprompt.photos.inputs.predict_inputs import InputImage, Kind, load_inputs
from hashprompt.texts import csv_text, in_natural_order, visible

CLOSEST = 3  # classes that an answer names in `closest`


@dataclass(frozen=True)
class Answer:
    """The answer about one image.

    Args:
        name: of the image: its path, if it has one.
        label: the most likely class.
        confidence: its probability.
        probabilities: of all classes, the most likely first.
        unknown: share of held-out photos that were closer to the known classes, 0…1.
        is_unknown: whether that is above the threshold.
        closest: the closest class Gaussians: `class`, the session that `learned` it, `distance`.
        error: why there is no answer; then all else is empty.
    """

    name: str
    label: str | int | None = None
    confidence: float = 0.0
    probabilities: dict[str, float] = field(default_factory=dict)
    unknown: float = 0.0
    is_unknown: bool = False
    closest: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None

    def top(self, k: int | None = None) -> list[tuple[str, float]]:
        """The k most likely classes, or all, with their probabilities."""
        if k is not None and k < 1:
            raise UserError(f"top={k}: it must be at least 1.")
        return list(self.probabilities.items())[:k]

    def to_dict(self, top: int | None = None) -> dict[str, Any]:
        """Plain values, for JSON; an error leaves the others empty."""
        answered = self.error is None
        return {
            "name": self.name,
            "label": self.label,
            "confidence": _number(self.confidence) if answered else None,
            "unknown": _number(self.unknown) if answered else None,
            "is_unknown": bool(self.is_unknown) if answered else None,
            "probabilities": {name: _number(share) for name, share in self.top(top)},
            "closest": [{**near, "distance": _number(near["distance"])} for near in self.closest],
            "error": self.error,
        }

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.name}: error: {self.error}"
        sure = f"{100 * self.confidence:.0f} %"
        if self.is_unknown:
            nearest = self.top(1)[0][0] if self.probabilities else self.label
            return f"{self.name}: unknown (most like {nearest}, {sure})"
        return f"{self.name}: {self.label} ({sure})"


def _number(value: float) -> float | None:
    """A finite number; JSON has no others."""
    return float(value) if math.isfinite(value) else None


def to_csv(answers: Iterable[Answer], top: int | None = None) -> str:
    """A line for each answer, with the `top` classes, or with a column for every class.

    Texts are for people and spreadsheets: one that would begin a formula (`=`, `+`, `-`, `@`) has
    a `'` before it, and control characters are shown by their codes. `to_dict` changes nothing.
    """
    answers = list(answers)
    classes = in_natural_order({name for answer in answers for name in answer.probabilities})
    wide = [f"p_{name}" for name in classes]
    if top is not None:
        ranks = range(1, min(top, len(classes)) + 1)
        wide = [column for rank in ranks for column in (f"label_{rank}", f"p_{rank}")]
    columns = ["name", "label", "confidence", "unknown", "is_unknown", "error", *wide]
    written = StringIO()
    table = csv.DictWriter(written, columns, restval="", lineterminator="\n")
    table.writerow({column: visible(column) for column in columns})
    table.writerows(_row(answer, top) for answer in answers)
    return written.getvalue()


def _row(answer: Answer, top: int | None) -> dict[str, str]:
    row = {"name": csv_text(answer.name), "error": csv_text(answer.error or "")}
    if answer.error is not None:
        return row
    row["label"] = "" if answer.label is None else csv_text(str(answer.label))
    row["confidence"], row["unknown"] = f"{answer.confidence:.6g}", f"{answer.unknown:.6g}"
    row["is_unknown"] = str(answer.is_unknown).lower()
    for rank, (name, share) in enumerate(answer.top(top), start=1):
        if top is None:
            row[f"p_{name}"] = f"{share:.6g}"
        else:
            row[f"label_{rank}"], row[f"p_{rank}"] = csv_text(name), f"{share:.6g}"
    return row


# From a model to answers. -------------------------------------------------------------------


def check_arguments(threshold: float, batch_size: int = 1) -> None:
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size}: it must be at least 1.")
    if not 0 <= threshold <= 1:
        raise UserError(f"unknown_threshold={threshold}: expected a share between 0 and 1.")


def shaped_as(answers: list[Answer], kind: Kind) -> Any:
    """One answer for one image, an array of labels for an array, else the list of answers."""
    if kind == "many":
        return answers
    raise_first(answers)
    return answers[0] if kind == "one" else np.array([answer.label for answer in answers])


def raise_first(answers: Sequence[Answer]) -> None:
    """Raise the error of the first answer that has one."""
    for answer in answers:
        if answer.error:
            raise UserError(f"{answer.name}: {answer.error}")


class ModelOutput(NamedTuple):
    """What a model computes for B images, in main memory."""

    probabilities: np.ndarray  # (B, C) calibrated
    unknown: np.ndarray  # (B,) 0…1
    distances: np.ndarray  # (B, M) to the class Gaussians


class Answering(ABC):
    """A model that answers about images.

    Args:
        classes: names, by class id.
        integer_labels: whether they were given as whole numbers.
        cells: of each class Gaussian, the names of its class and of the session that learned it.
        short_side: pixels to which the shorter side of a photo is reduced when it is read.
    """

    def __init__(
        self,
        classes: Sequence[str],
        integer_labels: bool,
        cells: Sequence[tuple[str, str]],
        short_side: int,
    ) -> None:
        self.classes, self.integer_labels, self.cells = classes, integer_labels, cells
        self.short_side = short_side

    @abstractmethod
    def compute(self, images: list[np.ndarray]) -> ModelOutput:
        """For images (3, h, w) uint8 of any size; each is computed as if it were the only one."""

    def answers(self, what: Any, threshold: float, batch_size: int) -> tuple[list[Answer], Kind]:
        """Answers to all that `load_inputs` finds, and in which form they are expected."""
        check_arguments(threshold, batch_size)
        inputs, kind = load_inputs(what, self.short_side)
        return [answer for answer, _ in self.stream(inputs, threshold, batch_size)], kind

    def frozen_features(self, images: list[np.ndarray]) -> np.ndarray:
        """(B, D) of images as in :meth:`compute`, if the model has them."""
        raise NotImplementedError

    def stream(
        self,
        inputs: Iterable[InputImage],
        threshold: float,
        batch_size: int,
        wants_feature: Callable[[Answer], bool] = lambda answer: False,
    ) -> Iterator[tuple[Answer, np.ndarray | None]]:
        """Answers batch by batch, with the frozen feature (D,) of images whose answer wants it."""
        images = iter(inputs)
        while batch := list(islice(images, batch_size)):
            readable = [item.image for item in batch if item.image is not None]
            output = self.compute(readable) if readable else None
            fields = iter(self._answer_fields(output, threshold) if output else ())
            answers = [
                Answer(item.name, error=item.error)
                if item.image is None
                else Answer(item.name, **next(fields))
                for item in batch
            ]
            wanted = [n for n, a in enumerate(answers) if a.error is None and wants_feature(a)]
            chosen = [image for n in wanted if (image := batch[n].image) is not None]
            found = self.frozen_features(chosen) if chosen else ()
            features = dict(zip(wanted, found, strict=True))
            yield from ((answer, features.get(n)) for n, answer in enumerate(answers))

    def _answer_fields(self, output: ModelOutput, threshold: float) -> Iterable[dict[str, Any]]:
        """The fields of `Answer` for each image, but for its name."""
        nearest = output.distances.argsort(axis=1, kind="stable")
        for row, cells in enumerate(nearest.tolist()):
            near: dict[tuple[str, str], float] = {}  # merged classes have several
            for cell in cells:
                near.setdefault(tuple(self.cells[cell]), float(output.distances[row, cell]))
                if len(near) == CLOSEST:
                    break
            shares = zip(self.classes, output.probabilities[row].tolist(), strict=True)
            ranked = sorted(shares, key=lambda pair: -pair[1])
            best, confidence = ranked[0] if ranked else (None, 0.0)
            unknown = float(output.unknown[row])
            yield {
                "label": int(best) if best and self.integer_labels else best,
                "confidence": confidence,
                "probabilities": dict(ranked),
                "unknown": unknown,
                "is_unknown": unknown > threshold,
                "closest": [
                    {"class": name, "learned": learned, "distance": round(distance, 3)}
                    for (name, learned), distance in near.items()
                ],
            }
