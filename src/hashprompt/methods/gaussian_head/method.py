"""The reference without prompts: plain features, class Gaussians and a head aligned on them."""

from torch import Tensor

from hashprompt.methods.base import Prediction
from hashprompt.methods.frames.hide_pipeline import Pipeline


class GaussianHead(Pipeline):
    """The pipeline with nothing injected: what a prompt method must beat."""

    has_prompts = False

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        plain = self.backbone(images) if plain is None else plain
        if self.config.align == "sgd":
            return Prediction(self.head(plain), *self.infer_task(plain))
        scores = self.discriminant("base").scores(plain)
        return Prediction(self.cells.to_classes(scores), *self.infer_task(plain, scores))
