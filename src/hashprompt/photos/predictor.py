"""One version of a classifier, loaded, and its answers about images."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hashprompt.data.reading.image_stores import PhotoBatch
from hashprompt.engine.devices import autocast
from hashprompt.parts.growing import load_grown, unfit_if_it_fails
from hashprompt.parts.precision import exact
from hashprompt.photos.answering import Answering, ModelOutput
from hashprompt.photos.calibration import Strangeness, share_below
from hashprompt.photos.store.config import ClassifierConfig
from hashprompt.photos.store.store import Store


class PredictorOutput(NamedTuple):
    """What a version computes for B images, in main memory."""

    logits: Tensor  # (B, C)
    strangeness: Tensor  # (B,)
    distances: Tensor  # (B, M) to the cells


class Predictor(Answering):
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
        with unfit_if_it_fails():
            self.strangeness = Strangeness(self.method.gaussians)
            columns = self.method.cells.task.tolist(), self.method.cells.label.tolist()
            pairs = zip(*columns, strict=True)
            cells = [(info["classes"][c], info["batch_names"][task]) for task, c in pairs]
        super().__init__(info["classes"], info["integer_labels"], cells, config.short_side)

    @classmethod
    def load(cls, store: Store, config: ClassifierConfig, number: int) -> "Predictor":
        version = store.version(number)
        return cls(config, version.info, store.tensors(version))

    def compute(self, images: list[np.ndarray]) -> ModelOutput:
        output = self.predict(PhotoBatch(map(torch.from_numpy, images)))
        columns = (
            self.probabilities(output.logits),
            self.unknown(output.strangeness),
            output.distances,
        )
        return ModelOutput(*(column.numpy() for column in columns))

    @torch.no_grad()
    def predict(self, photos: PhotoBatch) -> PredictorOutput:
        """For images of any size; each is answered as if it were alone."""
        config = self.config
        images = config.views.clean(photos.to(config.device))
        with autocast(config.run_options, config.device), unfit_if_it_fails():
            prediction = self.method.predict(images)
        with unfit_if_it_fails():
            assert prediction.features is not None
            strangeness, distances = self.strangeness.of(prediction.features.float())
        found = (prediction.logits.float(), strangeness, distances)
        return PredictorOutput(*(tensor.cpu() for tensor in found))

    def plain_features(self, images: list[np.ndarray]) -> np.ndarray:
        return self.config.plain_features(images)

    def unknown(self, strangeness: Tensor) -> Tensor:
        """Share of held-out photos that were less strange, (B,)."""
        return share_below(strangeness, self.info["distances"])

    def probabilities(self, logits: Tensor) -> Tensor:
        """(B, C) calibrated."""
        return (exact(logits) / self.info["temperature"]).softmax(1)
