"""What answers about photos to be sorted: a version of a classifier, or a backbone alone.

Importing this module imports no torch.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from hashprompt.photos.answers import Answer
from hashprompt.photos.inputs.predict_inputs import InputImage

if TYPE_CHECKING:
    from hashprompt.photos.predictor import Predictor

BATCH = 32


class KnownClasses:
    """The answers of one version, which is loaded once there is a photo to ask about.

    Args:
        classes: that it knows.
        load: it.
        threshold: a photo whose `unknown` is higher is unknown.
    """

    def __init__(
        self, classes: list[str], load: "Callable[[], Predictor]", threshold: float
    ) -> None:
        self.classes, self._load, self.threshold = classes, load, threshold

    @cached_property
    def predictor(self) -> "Predictor":
        return self._load()

    @property
    def short_side(self) -> int:
        return self.predictor.config.short_side

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
        from hashprompt.backbone.weights import load_backbone
        from hashprompt.photos.defaults import choose_backbone
        from hashprompt.photos.store.config import ClassifierConfig

        self.classes: list[str] = []
        loaded = load_backbone(backbone or choose_backbone(), image_size)
        self.config = ClassifierConfig.new(loaded, {}, 0)
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
