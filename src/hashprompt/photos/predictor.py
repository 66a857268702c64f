"""Models that answer about images: one version of a classifier, or a backbone without classes."""

import numpy as np
import torch

from hashprompt.data.reading.image_stores import PhotoBatch
from hashprompt.engine.devices import autocast
from hashprompt.parts.growing import load_grown, unfit_if_it_fails
from hashprompt.parts.precision import exact
from hashprompt.photos.answers import Answering, ModelOutput
from hashprompt.photos.calibration import Strangeness, share_below
from hashprompt.photos.store.config import ClassifierConfig
from hashprompt.photos.store.store import Store


class Predictor(Answering):
    """One version, ready to answer. It is only read, so threads may share it.

    Args:
        store, config: of the classifier.
        number: of the version.
    """

    def __init__(self, store: Store, config: ClassifierConfig, number: int) -> None:
        version = store.version(number)
        self.config, self.info = config, version.info
        info, tensors = version.info, store.tensors(version)
        self.method = config.make_method()
        load_grown(self.method, tensors)
        self.method.eval()
        with unfit_if_it_fails():
            self.strangeness = Strangeness(self.method.gaussians)
            columns = self.method.cells.task.tolist(), self.method.cells.label.tolist()
            pairs = zip(*columns, strict=True)
            cells = [(info["classes"][c], info["batch_names"][task]) for task, c in pairs]
        super().__init__(info["classes"], info["integer_labels"], cells, config.short_side)

    @torch.no_grad()
    def compute(self, images: list[np.ndarray]) -> ModelOutput:
        config, info = self.config, self.info
        photos = PhotoBatch(map(torch.from_numpy, images)).to(config.device)
        views = config.views.clean(photos)
        with autocast(config.run_options, config.device), unfit_if_it_fails():
            prediction = self.method.predict(views)
        with unfit_if_it_fails():
            assert prediction.features is not None
            strangeness, distances = self.strangeness.of(prediction.features.float())
        logits = exact(prediction.logits.float().cpu())
        columns = (
            (logits / info["temperature"]).softmax(1),
            share_below(strangeness.cpu(), info["distances"]),
            distances.cpu(),
        )
        return ModelOutput(*(column.numpy() for column in columns))

    def frozen_features(self, images: list[np.ndarray]) -> np.ndarray:
        return self.config.frozen_features(images)


class FrozenFeatures(Answering):
    """A backbone without classes: every image is unknown, and has its frozen feature.

    Args:
        backbone: by name or file; by default what a first session would choose.
        image_size: side of the images in pixels, by default that of the weights.
    """

    def __init__(self, backbone: str | None, image_size: int | None = None) -> None:
        from hashprompt.backbone.weights import load_backbone
        from hashprompt.photos.defaults import choose_backbone

        loaded = load_backbone(backbone or choose_backbone(), image_size)
        self.config = ClassifierConfig.new(loaded, {}, 0)
        loaded.model.to(self.config.device)
        super().__init__([], False, [], self.config.short_side)

    def compute(self, images: list[np.ndarray]) -> ModelOutput:
        none = np.zeros((len(images), 0))
        return ModelOutput(none, np.ones(len(images)), none)

    def frozen_features(self, images: list[np.ndarray]) -> np.ndarray:
        return self.config.frozen_features(images)
