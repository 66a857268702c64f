"""Learned keys: an image is given the prompts whose keys are nearest to its plain feature."""

import torch
import torch.nn.functional as F
from torch import Tensor


def cosine(query: Tensor, keys: Tensor) -> Tensor:
    """Cosine of every query (B, D) with every key (N, D), (B, N)."""
    # In full precision always: rounded cosines would tie, and ties make the choice arbitrary.
    with torch.autocast(query.device.type, enabled=False):
        return F.normalize(query.float(), dim=-1) @ F.normalize(keys.float(), dim=-1).T
