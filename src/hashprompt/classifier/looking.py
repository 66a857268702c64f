"""What answers about photos to be sorted: a version of a classifier, or a backbone alone."""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from hashprompt.backbone.weights import load_backbone
from hashprompt.classifier.answers import Answer
from hashprompt.classifier.config import ClassifierConfig
from hashprompt.classifier.defaults import choose_backbone
from hashprompt.classifier.predict_inputs import InputImage
from hashprompt.classifier.predictor import Predictor

BATCH = 32


class KnownClasses:
    """The answers of one version.

    Args:
        threshold: a photo whose `unknown` is higher is unknown.
    """

    def __init__(self, predictor: Predictor, threshold: float) -> None:
        self.predictor, self.threshold = predictor, threshold
        self.short_side = predictor.config.short_side
        self.classes: list[str] = predictor.info["classes"]

    def stream(self, inputs: Iterable[InputImage]) -> Iterator[tuple[Answer, np.ndarray | None]]:
        return self.predictor.stream(
            inputs, self.threshold, BATCH, lambda answer: bool(answer.is_unknown)
        )


class NoClasses:
    """All photos are unknown; a backbone tells their plain features.

    Args:
        backbone: by name or file; by default what a first learn would choose.
        image_size: by default that of the backbone.
    """

    def __init__(self, backbone: str | None, image_size: int | None = None) -> None:
        self.classes: list[str] = []
        loaded = load_backbone(backbone or choose_backbone(), image_size)
        self.config = ClassifierConfig.new(loaded, "hash", {}, 0)
        self.short_side = self.config.short_side
        loaded.model.to(self.config.device)

    def stream(self, inputs: Iterable[InputImage]) -> Iterator[tuple[Answer, np.ndarray | None]]:
        photos = iter(inputs)
        while batch := list(islice(photos, BATCH)):
            readable = [item.image for item in batch if item.image is not None]
            rows = iter(self.config.plain_features(readable) if readable else ())
            for item in batch:
                if item.image is None:
                    yield Answer(item.name, error=item.error), None
                else:
                    yield Answer(item.name, unknown=1.0, is_unknown=True), next(rows)
