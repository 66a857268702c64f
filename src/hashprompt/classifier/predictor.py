"""One version of a classifier, loaded, and its answers about images."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hashprompt.classifier.answers import Answer
from hashprompt.classifier.calibration import Strangeness, share_below
from hashprompt.classifier.config import ClassifierConfig, photo_stream
from hashprompt.classifier.predict_inputs import InputImage
from hashprompt.classifier.store import Store
from hashprompt.data.reading.image_stores import PhotoBatch
from hashprompt.engine.devices import autocast
from hashprompt.engine.views import views_of
from hashprompt.parts.growing import load_grown, unfit_if_it_fails
from hashprompt.parts.precision import exact

NEAREST = 3  # cells that an answer names in `reminds_of`


class PredictorOutput(NamedTuple):
    """What a version computes for B images, in main memory."""

    logits: Tensor  # (B, C)
    strangeness: Tensor  # (B,)
    distances: Tensor  # (B, M) to the cells
    plain: Tensor  # (B, D) features


class Predictor:
    """One version, ready to answer. It is only read, so threads may share it.

    Args:
        config: of the classifier.
        info: the content of `version.json`.
        tensors: the state of the method.
    """

    def __init__(
        self, config: ClassifierConfig, info: dict[str, Any], tensors: dict[str, Tensor]
    ) -> None:
        self.config, self.info = config, info
        self.method = config.make_method()
        load_grown(self.method, tensors)
        self.method.eval()
        self.views = views_of(config.run_options, config.backbone.preprocessing, photo_stream(()))
        with unfit_if_it_fails():
            self.strangeness = Strangeness(self.method)
            # What each cell describes: the name of a class and of the learn that brought it.
            columns = self.method.cells.task.tolist(), self.method.cells.label.tolist()
            cells = zip(*columns, strict=True)
            self.cells = [(info["classes"][c], info["batch_names"][task]) for task, c in cells]

    @classmethod
    def load(cls, store: Store, config: ClassifierConfig, number: int) -> "Predictor":
        version = store.version(number)
        return cls(config, version.info, store.tensors(version))

    @torch.no_grad()
    def predict(self, photos: PhotoBatch) -> PredictorOutput:
        """For images of any size; each is answered as if it were alone."""
        device = self.config.device
        images = self.views.clean(photos.to(device))
        with autocast(self.config.run_options, device):
            plain = self.config.backbone.model(images)
            with unfit_if_it_fails():
                prediction = self.method.predict(images, plain)
        with unfit_if_it_fails():
            strangeness, distances = self.strangeness.of(plain.float())
        found = (prediction.logits.float(), strangeness, distances, plain.float())
        return PredictorOutput(*(tensor.cpu() for tensor in found))

    def unknown(self, strangeness: Tensor) -> Tensor:
        """Share of held-out photos that were less strange, (B,)."""
        return share_below(strangeness, self.info["distances"])

    def probabilities(self, logits: Tensor) -> Tensor:
        """(B, C) calibrated."""
        return (exact(logits) / self.info["temperature"]).softmax(1)

    def answers(
        self, inputs: Iterable[InputImage], threshold: float, batch_size: int
    ) -> list[Answer]:
        """One answer to each image, batch by batch, so that a large folder fits in memory."""
        return [answer for answer, _ in self.stream(inputs, threshold, batch_size)]

    def stream(
        self, inputs: Iterable[InputImage], threshold: float, batch_size: int
    ) -> Iterator[tuple[Answer, Tensor | None]]:
        """The same one by one, each with the plain feature (D,) of an image that can be read."""
        images = iter(inputs)
        while batch := list(islice(images, batch_size)):
            readable = [item.image for item in batch if item.image is not None]
            if readable:
                output = self.predict(PhotoBatch(readable))
                rows = zip(self._answer_fields(output, threshold), output.plain, strict=True)
            for item in batch:
                if item.image is None:
                    yield Answer(item.name, error=item.error), None
                else:
                    fields, plain = next(rows)
                    yield Answer(item.name, **fields), plain

    def _answer_fields(self, output: PredictorOutput, threshold: float) -> Iterable[dict[str, Any]]:
        """The fields of `Answer` for each photo, but for its name."""
        classes = self.info["classes"]
        nearest = output.distances.topk(min(NEAREST, output.distances.shape[1]), largest=False)
        columns = (
            self.probabilities(output.logits),
            self.unknown(output.strangeness),
            nearest.indices,
            nearest.values,
        )
        for probabilities, unknown, cells, distances in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            ranked = sorted(zip(classes, probabilities, strict=True), key=lambda pair: -pair[1])
            best, confidence = ranked[0]
            yield {
                "label": int(best) if self.info["integer_labels"] else best,
                "confidence": confidence,
                "probabilities": dict(ranked),
                "unknown": unknown,
                "is_unknown": unknown > threshold,
                "reminds_of": [
                    {
                        "class": self.cells[cell][0],
                        "learned": self.cells[cell][1],
                        "distance": round(distance, 3),
                    }
                    for cell, distance in zip(cells, distances, strict=True)
                ],
            }
