"""Small trained branches beside the frozen blocks."""

import math
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection


class Adapter(nn.Module):
    """AdaptFormer's branch, s · W_up ReLU(W_down x); at the start it adds nothing.

    Args:
        dim: D, width of the tokens.
        width: h, of the bottleneck.
        scale: s.
    """

    def __init__(self, dim: int, width: int = 64, scale: float = 0.1) -> None:
        super().__init__()
        self.scale = scale
        self.down, self.up = nn.Linear(dim, width), nn.Linear(width, dim)
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def forward(self, tokens: Tensor, dropout: float = 0.0) -> Tensor:
        """(B, N, D) -> (B, N, D); hidden units are dropped at the rate `dropout`."""
        return self.scale * self.up(F.dropout(self.down(tokens).relu(), dropout))


class Adapters(nn.ModuleList):
    """An adapter beside the MLP of every block."""

    def __init__(self, backbone: Backbone, width: int = 64, scale: float = 0.1) -> None:
        super().__init__(Adapter(backbone.dim, width, scale) for _ in range(backbone.depth))

    def inject(self, dropout: float = 0.0) -> Injection:
        """What the backbone is given; `dropout` is for training only."""
        return Injection(adapters={i: partial(a, dropout=dropout) for i, a in enumerate(self)})
