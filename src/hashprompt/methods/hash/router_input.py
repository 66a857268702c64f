"""What a router reads of an image."""

import math

import torch
from torch import Tensor, nn

from hashprompt.parts.variants import RouterReads


class RouterInput(nn.Module):
    """Turns the mean token, or the plain feature, into what the router multiplies.

    The mean of the embedded tokens is mostly the same for all images, and its size differs between
    backbones. `centred` and `plain` take off the average of the first task's images and divide by
    their spread, so that scores vary with the image, by as much on every backbone.

    Args:
        reads: `raw` mean token; `centred` mean token; `normed`, the mean token with the norm of √D;
            `plain`, the centred plain feature.
        dim: D.
    """

    def __init__(self, reads: RouterReads, dim: int) -> None:
        super().__init__()
        self.reads = reads
        self.needs_statistics = reads in ("centred", "plain")
        if self.needs_statistics:
            self.register_buffer("centre", torch.zeros(dim))
            self.register_buffer("spread", torch.ones(()))
            self.centre: Tensor  # (D,) average over images
            self.spread: Tensor  # root of the mean variance over the D features

    def basis(self, tokens: Tensor, plain: Tensor | None) -> Tensor:
        """What statistics are taken of, (B, D): of tokens (B, L, D), or plain features (B, D)."""
        if self.reads != "plain":
            return tokens.float().mean(1)
        assert plain is not None
        return plain.float()

    def fit(self, basis: Tensor) -> None:
        """Take the statistics of (N, D)."""
        self.centre = basis.mean(0)
        self.spread = basis.var(0, unbiased=False).mean().sqrt().clamp(min=1e-6)

    def forward(self, tokens: Tensor, plain: Tensor | None) -> Tensor:
        """What the router averages and multiplies: (B, L, D) tokens, or (B, 1, D) made of them."""
        if self.reads == "raw":
            return tokens
        read = self.basis(tokens, plain)
        if self.reads == "normed":
            read = nn.functional.normalize(read, dim=1) * math.sqrt(read.shape[1])
        else:
            read = (read - self.centre) / self.spread
        return read[:, None]
