"""CutMix: images with a window that shows another image."""

import math

import torch
from torch import Tensor


def cut_mix(images: Tensor, alpha: float) -> tuple[Tensor, Tensor, float]:
    """Images (B, 3, H, W) with a window that shows another image (Yun et al., ICCV 2019).

    The window's area is Beta(α, α)-distributed, its middle anywhere.

    Returns:
        the images, which other one (B,) each window shows, and the share of pixels that are left.
    """
    height, width = images.shape[-2:]
    side = math.sqrt(float(torch.distributions.Beta(alpha, alpha).sample()))
    (top, bottom), (left, right) = (_span(side, length) for length in (height, width))
    other = torch.randperm(len(images)).to(images.device)
    mixed = images.clone()
    mixed[..., top:bottom, left:right] = images[other][..., top:bottom, left:right]
    return mixed, other, 1 - (bottom - top) * (right - left) / (height * width)


def _span(share: float, length: int) -> tuple[int, int]:
    """A random stretch of a side, cut off at its ends."""
    middle, half = float(torch.rand(())) * length, share * length / 2
    return max(0, round(middle - half)), min(length, round(middle + half))
