"""APER: the backbone adapts to the first task, then class means of frozen and adapted features.

Zhou et al., IJCV 2024, first published as ADAM. The adapted ViT fits the data, the frozen one is
not specialised to the first task: both features of an image are compared as one vector.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.aper.config import AperConfig
from hashprompt.methods.base import Phase, Prediction, TaskView
from hashprompt.methods.frames.first_session import FirstSession
from hashprompt.parts.adapters import Adapters, ScaleShift
from hashprompt.parts.heads import Prototypes, cosine


class Aper(FirstSession[AperConfig]):
    """Prototypes of frozen and adapted features."""

    keeps = (*FirstSession.keeps, "adapted.")
    stores = "prompts: adapted; head: prototypes.sums; statistics: prototypes.counts"
    adapted: "Adapters | ScaleShift | DeepTokens"

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
        return self.adapted.inject(training)

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


# VPT-Deep: every block has its own extra tokens, which are dropped after it.


class DeepTokens(nn.Module):
    """p tokens for each block, the same for all images.

    Args:
        backbone: its depth and width matter.
        length: p.
        start: zero, where the tokens of a block have equal gradients and so stay equal, or VPT's
            uniform values, by which they differ.
    """

    def __init__(self, backbone: Backbone, length: int, start: str = "zero") -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.zeros(backbone.depth, length, backbone.dim))
        if start == "xavier_uniform":
            patches: Any = backbone.vit.patch_embed
            inputs = 3 * math.prod(patches.patch_size)  # what a patch is made of
            bound = math.sqrt(6 / (inputs + backbone.dim))
            nn.init.uniform_(self.tokens, -bound, bound)

    def inject(self, training: bool = False) -> Injection:
        """What the backbone is given."""

        def of_block(tokens: Tensor, x: Tensor) -> Tensor:
            return tokens.to(x.dtype).expand(len(x), -1, -1)

        each = {index: partial(of_block, own) for index, own in enumerate(self.tokens)}
        return Injection(tokens=each, keep_tokens=False)
