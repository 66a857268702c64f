"""VPT-Deep: every block has extra tokens of its own, which are dropped after it."""

import math
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection

Start = Literal["zero", "xavier_uniform"]


class DeepTokens(nn.Module):
    """p tokens for each block, the same for all images.

    Args:
        backbone: its depth and width matter.
        length: p.
        start: zero, where the tokens of a block have equal gradients and so stay equal, or VPT's
            uniform values, by which they differ.
    """

    def __init__(self, backbone: Backbone, length: int, start: Start = "zero") -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.zeros(backbone.depth, length, backbone.dim))
        if start == "xavier_uniform":
            patches: Any = backbone.vit.patch_embed
            inputs = 3 * math.prod(patches.patch_size)  # what a patch is made of
            bound = math.sqrt(6 / (inputs + backbone.dim))
            nn.init.uniform_(self.tokens, -bound, bound)

    def inject(self) -> Injection:
        """What the backbone is given."""

        def of_block(tokens: Tensor, x: Tensor) -> Tensor:
            return tokens.to(x.dtype).expand(len(x), -1, -1)

        each = {index: partial(of_block, own) for index, own in enumerate(self.tokens)}
        return Injection(tokens=each, keep_tokens=False)
