"""Two views of an image: `train` (augmented) and `clean` (what the weights expect, no chance)."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone.weights import Preprocessing

Augment = Literal["crop", "resized-crop", "none"]


@dataclass(frozen=True)
class Views:
    """Turns uint8 images into ViT inputs, a batch at a time, on the device of the batch.

    Args:
        preprocessing: size, mean, std and interpolation that belong to the weights.
        augment: `crop` a random 7/8 of the image; `resized-crop` a random area between
            ``area`` and the whole, sides 3:4 to 4:3 (the paper's); `none`.
        area: smallest share of the image that `resized-crop` keeps.
        flip: mirror half of the images; False for data where left and right matter.
        center: share of the resized image that the clean view keeps (224 of 256 is 0.875).
    """

    preprocessing: Preprocessing
    augment: Augment = "crop"
    area: float = 0.08
    flip: bool = True
    center: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """The clean view as data: with it results can be compared and features cached."""
        return {**self.preprocessing.to_dict(), "center": self.center}

    def clean(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) uint8 -> (B, 3, S, S) float, the whole or central image."""
        size = self.preprocessing.image_size
        short = round(size / self.center)
        height, width = images.shape[-2:]
        scale = short / min(height, width)
        target = (max(short, round(height * scale)), max(short, round(width * scale)))
        pixels = images.float() / 255
        if target != (height, width):
            mode = self.preprocessing.interpolation
            mode = mode if mode in ("bicubic", "bilinear") else "bicubic"
            pixels = F.interpolate(
                pixels, target, mode=mode, antialias=True, align_corners=False
            ).clamp(0, 1)
        top, left = (target[0] - size) // 2, (target[1] - size) // 2
        return self._normalise(pixels[..., top : top + size, left : left + size])

    def train(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) uint8 -> (B, 3, S, S) float, each image with its own random window."""
        if self.augment == "none":
            return self.clean(images)
        count, size = len(images), self.preprocessing.image_size
        wide, high = self._window_sides(count, images.shape[-1] / images.shape[-2])
        # A window in the [-1, 1] coordinates of grid_sample: half its side, and its middle.
        middle_x = (torch.rand(count) * 2 - 1) * (1 - wide)
        middle_y = (torch.rand(count) * 2 - 1) * (1 - high)
        mirror = torch.where(torch.rand(count) < 0.5, -1.0, 1.0) if self.flip else torch.ones(count)
        theta = torch.zeros(count, 2, 3)
        theta[:, 0, 0], theta[:, 0, 2] = wide * mirror, middle_x
        theta[:, 1, 1], theta[:, 1, 2] = high, middle_y
        grid = F.affine_grid(theta.to(images.device), [count, 3, size, size], align_corners=False)
        pixels = F.grid_sample(
            images.float() / 255,
            grid,
            mode="bicubic",
            padding_mode="reflection",
            align_corners=False,
        )
        return self._normalise(pixels.clamp(0, 1))

    def _window_sides(self, count: int, aspect: float) -> tuple[Tensor, Tensor]:
        """Width and height of each window as shares of the image, (B,) each."""
        if self.augment == "crop":
            side = torch.full((count,), 0.875)
            return side, side
        area = self.area + (1 - self.area) * torch.rand(count)
        log_ratio = (torch.rand(count) * 2 - 1) * torch.log(torch.tensor(4 / 3))
        ratio = log_ratio.exp() / aspect
        return (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)

    def _normalise(self, pixels: Tensor) -> Tensor:
        mean = torch.tensor(self.preprocessing.mean, device=pixels.device).view(-1, 1, 1)
        std = torch.tensor(self.preprocessing.std, device=pixels.device).view(-1, 1, 1)
        return (pixels - mean) / std
