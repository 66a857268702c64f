"""The shared pool of prompts: every expert is a prefix for each prompted block."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class PromptPool(nn.Module):
    """N experts; each holds L keys and L values for every prompted block.

    Args:
        experts: N, number of prompts in the pool.
        layers: 0-based blocks that get a prefix.
        length: L, keys (and values) per expert and block.
        dim: D, width of the ViT.
    """

    def __init__(self, experts: int, layers: Sequence[int], length: int, dim: int) -> None:
        super().__init__()
        self.layers = tuple(layers)
        start = torch.empty(experts, len(self.layers), 2, length, dim).uniform_(-1, 1)
        self.prompts = nn.Parameter(start)

    def mix(self, weights: Tensor) -> dict[int, Tensor]:
        """Eq. 3: p̃ = Σ_k α_k p_k, for all prompted blocks.

        Args:
            weights: (B, N), zero for experts that were not chosen.

        Returns:
            block -> (B, 2, L, D).
        """
        mixed = (weights @ self.prompts.flatten(1)).unflatten(1, self.prompts.shape[1:])
        return dict(zip(self.layers, mixed.unbind(1), strict=True))

    def mix_at(self, position: int, weights: Tensor) -> Tensor:
        """The prefix (B, 2, L, D) of one prompted block from its own weights (B, N)."""
        prompts = self.prompts[:, position]
        return (weights @ prompts.flatten(1)).unflatten(1, prompts.shape[1:])
