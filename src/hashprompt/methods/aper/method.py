"""APER: the backbone adapts to the first task, then class means of plain and adapted features.

Zhou et al., IJCV 2024, first published as ADAM. The adapted ViT knows the data, the plain one has
not narrowed to the first task: both describe an image, and what they say is compared as one vector.
"""

import torch
from torch import Tensor

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.aper.config import AperConfig
from hashprompt.methods.aper.deep_tokens import DeepTokens
from hashprompt.methods.base import Phase, Prediction, TaskView
from hashprompt.methods.frames.first_session import ADAPTER_DROPOUT, FirstSession
from hashprompt.parts.adapters import Adapters
from hashprompt.parts.cosine import Prototypes, cosine
from hashprompt.parts.ssf import ScaleShift


class Aper(FirstSession):
    """Prototypes of plain and adapted features."""

    keeps = (*FirstSession.keeps, "adapted.")
    stores = "prompts: adapted; head: prototypes.sums; statistics: prototypes.counts"
    config: AperConfig
    adapted: Adapters | ScaleShift | DeepTokens

    def __init__(self, config: AperConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        if config.adaptation == "adapter":
            self.adapted = Adapters(backbone, config.adapter_width)
        elif config.adaptation == "ssf":
            self.adapted = ScaleShift(backbone)
        else:
            self.adapted = DeepTokens(backbone, config.prompt_length, config.prompt_start)
        self.prototypes = Prototypes(2 * backbone.dim)

    def inject(self, training: bool) -> Injection:
        if training and isinstance(self.adapted, Adapters):
            return self.adapted.inject(ADAPTER_DROPOUT)
        return self.adapted.inject()

    def phases(self, task: TaskView) -> list[Phase]:
        return [*super().phases(task), Phase("prototypes", work=lambda: self._learn(task))]

    def _learn(self, task: TaskView) -> None:
        both = torch.cat((task.features(), task.map(self.features)), dim=1)
        self.prototypes.add(both, task.labels)

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        plain = self.backbone(images) if plain is None else plain
        # φ = [f; f_θ] is normalised as a whole: the longer of the two counts more.
        both = torch.cat((plain, self.features(images)), dim=1)
        return Prediction(cosine(both, self.prototypes.means()))
