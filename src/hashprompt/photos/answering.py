"""From what a model computes to answers, batch by batch; the same for every kind of model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from hashprompt.errors import UserError
from hashprompt.photos.answers import Answer
from hashprompt.photos.inputs.predict_inputs import InputImage, Kind, load_inputs

NEAREST = 3  # cells that an answer names in `reminds_of`


def refuse_bad_question(threshold: float, batch_size: int = 1) -> None:
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size}: it must be at least 1.")
    if not 0 <= threshold <= 1:
        raise UserError(f"unknown_threshold={threshold}: expected a share between 0 and 1.")


def as_asked(answers: list[Answer], kind: Kind) -> Any:
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
    """What a model computes for B images."""

    probabilities: np.ndarray  # (B, C) calibrated
    unknown: np.ndarray  # (B,) 0…1
    distances: np.ndarray  # (B, M) to the cells


class Answering(ABC):
    """Something that answers about images.

    Args:
        classes: names, by class id.
        integer_labels: whether they were given as whole numbers.
        cells: what each cell describes: the name of a class and of the learn that brought it.
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
        """For images (3, h, w) uint8 of any size; each is answered as if it were alone."""

    def ask(self, what: Any, threshold: float, batch_size: int) -> tuple[list[Answer], Kind]:
        """Answers to all that `load_inputs` finds, and in which form they are expected."""
        inputs, kind = load_inputs(what, self.short_side)
        return self.answers(inputs, threshold, batch_size), kind

    def plain_features(self, images: list[np.ndarray]) -> np.ndarray:
        """(B, D) of images as in :meth:`compute`, where a model can tell them."""
        raise NotImplementedError

    def answers(
        self, inputs: Iterable[InputImage], threshold: float, batch_size: int
    ) -> list[Answer]:
        """One answer to each image, batch by batch, so that a large folder fits in memory."""
        return [answer for answer, _ in self.stream(inputs, threshold, batch_size)]

    def stream(
        self,
        inputs: Iterable[InputImage],
        threshold: float,
        batch_size: int,
        wants_feature: Callable[[Answer], bool] = lambda answer: False,
    ) -> Iterator[tuple[Answer, np.ndarray | None]]:
        """The same one by one, with the plain feature (D,) of images whose answer wants it."""
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
            found = self.plain_features(chosen) if chosen else ()
            features = dict(zip(wanted, found, strict=True))
            yield from ((answer, features.get(n)) for n, answer in enumerate(answers))

    def _answer_fields(self, output: ModelOutput, threshold: float) -> Iterable[dict[str, Any]]:
        """The fields of `Answer` for each image, but for its name."""
        nearest = output.distances.argsort(axis=1, kind="stable")
        for row, cells in enumerate(nearest.tolist()):
            near: dict[tuple[str, str], float] = {}  # merged classes have several cells
            for cell in cells:
                near.setdefault(tuple(self.cells[cell]), float(output.distances[row, cell]))
                if len(near) == NEAREST:
                    break
            shares = zip(self.classes, output.probabilities[row].tolist(), strict=True)
            ranked = sorted(shares, key=lambda pair: -pair[1])
            (best, confidence), unknown = ranked[0], float(output.unknown[row])
            yield {
                "label": int(best) if self.integer_labels else best,
                "confidence": confidence,
                "probabilities": dict(ranked),
                "unknown": unknown,
                "is_unknown": unknown > threshold,
                "reminds_of": [
                    {"class": name, "learned": learned, "distance": round(distance, 3)}
                    for (name, learned), distance in near.items()
                ],
            }
