"""Three views of images: `train` (augmented), `clean` (for tests and features) and `raw` (pixels).

Arrays of one size are transformed as a batch, on its device. Photos of different sizes, and the
recipes of other papers, are transformed image by image with torchvision.
"""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.backbone.preprocessing import Preprocessing
from hashprompt.data.reading.image_stores import PhotoBatch
from hashprompt.options.run import Augment

Images = Tensor | PhotoBatch
MAX_PIXELS = 1 << 25  # resized at a time, before and after: 400 MB
WINDOW = 7 / 8  # share of the sides that `crop` keeps


@dataclass(frozen=True)
class Colours:
    """Random changes of colour in a train view, as in torchvision."""

    jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)  # light, contrast, satur., hue
    jitter_chance: float = 1.0
    grey_chance: float = 0.0
    policy: Literal["", "cifar10", "imagenet"] = ""  # of AutoAugment

    def steps(self) -> list[Any]:
        from torchvision.transforms import v2

        jitter: v2.Transform = v2.ColorJitter(*self.jitter)
        if self.jitter_chance < 1:
            jitter = v2.RandomApply([jitter], self.jitter_chance)
        return [
            *([v2.AutoAugment(v2.AutoAugmentPolicy(self.policy))] if self.policy else []),
            *([jitter] if any(self.jitter) else []),
            *([v2.RandomGrayscale(self.grey_chance)] if self.grey_chance else []),
        ]


@dataclass(frozen=True)
class Views:
    """Turns uint8 images into ViT inputs, a batch at a time, on the device of the batch.

    Args:
        preprocessing: size, mean, std and interpolation that belong to the weights.
        augment: `crop` a random 7/8 of an array, or a random square of 7/8 of the shorter side of
            a photo; `resized-crop` a random area between ``area`` and the whole, sides 3:4 to 4:3
            (the paper's); `none`.
        area: smallest share of the image that `resized-crop` keeps.
        flip: mirror half of the images; False if left and right matter.
        center: share of the resized image that the clean view keeps (224 of 256 is 0.875).
        colours: random colours; arrays are then transformed image by image too.
        by_image: use torchvision's windows, which retry instead of clipping, for arrays too.
    """

    preprocessing: Preprocessing
    augment: Augment = "crop"
    area: float = 0.08
    flip: bool = True
    center: float = 1.0
    colours: Colours | None = None
    by_image: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The clean view as data, to compare results and cache features."""
        return {**asdict(self.preprocessing), "center": self.center}

    def clean(self, images: Images) -> Tensor:
        """B images uint8 -> (B, 3, S, S) float, the whole or central image."""
        return self._normalise(self._central(images))

    def raw(self, images: Images) -> Tensor:
        """B images uint8 -> (B, 3, S, S) uint8: the pixels that `clean` normalises."""
        return (self._central(images) * 255).round().to(torch.uint8)

    def train(self, images: Images) -> Tensor:
        """B images uint8 -> (B, 3, S, S) float, each image with its own random window."""
        if self.augment == "none" and self.colours is None:
            return self.clean(images)
        if isinstance(images, PhotoBatch) or self.by_image or self.colours:
            from torchvision.transforms import v2  # not needed for predictions

            steps = v2.Compose(self._steps())
            pixels = torch.stack([steps(image) for image in images])
            return self._normalise(pixels.float() / 255)
        return self._normalise(self._windows(images))

    # Arrays, as a batch. ---------------------------------------------------------------------

    def _central(self, images: Images) -> Tensor:
        """(B, 3, S, S) float in [0, 1]."""
        if isinstance(images, PhotoBatch):
            return self._central_photos(images)
        height, width = images.shape[-2:]
        resized = round(self.preprocessing.image_size / self.center) ** 2
        resized = resized * max(height, width) // min(height, width)
        at_once = max(1, MAX_PIXELS // (height * width + resized))
        pieces = [self._resized_center(piece) for piece in images.split(at_once)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _resized_center(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) uint8 -> (B, 3, S, S) float in [0, 1]."""
        size = self.preprocessing.image_size
        short = round(size / self.center)
        height, width = images.shape[-2:]
        shorter = min(height, width)
        # Rounded as torchvision's Resize and CenterCrop do, to cut the same pixels.
        target = (int(short * height / shorter), int(short * width / shorter))
        pixels = images.float() / 255
        if target != (height, width):
            pixels = F.interpolate(
                pixels, target, mode=self._mode, antialias=True, align_corners=False
            ).clamp(0, 1)
        top, left = (round((side - size) / 2) for side in target)
        return pixels[..., top : top + size, left : left + size]

    def _central_photos(self, images: PhotoBatch) -> Tensor:
        """Photos of equal size are transformed together."""
        by_shape: dict[torch.Size, list[int]] = {}
        for row, image in enumerate(images):
            by_shape.setdefault(image.shape, []).append(row)
        size = self.preprocessing.image_size
        device = images[0].device if images else None
        out = torch.empty(len(images), 3, size, size, device=device)
        for rows in by_shape.values():
            out[rows] = self._central(torch.stack([images[row] for row in rows]))
        return out

    def _windows(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) uint8 -> (B, 3, S, S) float in [0, 1], all windows at once."""
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
        return F.grid_sample(
            images.float() / 255,
            grid,
            mode="bicubic",
            padding_mode="reflection",
            align_corners=False,
        ).clamp(0, 1)

    def _window_sides(self, count: int, aspect: float) -> tuple[Tensor, Tensor]:
        """Width and height of each window as shares of the image, (B,) each."""
        if self.augment == "crop":
            side = torch.full((count,), WINDOW)
            return side, side
        area = self.area + (1 - self.area) * torch.rand(count)
        log_ratio = (torch.rand(count) * 2 - 1) * torch.log(torch.tensor(4 / 3))
        ratio = log_ratio.exp() / aspect
        return (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)

    # Photos and recipes: image by image. ------------------------------------------------------

    def _steps(self) -> list[Any]:
        """The train view of one image (3, h, w) uint8 -> (3, S, S) uint8."""
        from torchvision.transforms import v2

        size, mode = self.preprocessing.image_size, v2.InterpolationMode(self._mode)
        steps: list[Any] = []
        if self.augment == "crop":
            steps.append(partial(_square_window, size=size, mode=mode))
        elif self.augment == "resized-crop":
            steps.append(v2.RandomResizedCrop(size, (self.area, 1.0), interpolation=mode))
        else:
            steps += [v2.Resize(round(size / self.center), mode), v2.CenterCrop(size)]
        if self.flip:
            steps.append(v2.RandomHorizontalFlip())
        return steps + (self.colours.steps() if self.colours else [])

    @property
    def _mode(self) -> str:
        mode = self.preprocessing.interpolation
        return mode if mode in ("bicubic", "bilinear") else "bicubic"

    def _normalise(self, pixels: Tensor) -> Tensor:
        mean = torch.tensor(self.preprocessing.mean, device=pixels.device).view(-1, 1, 1)
        std = torch.tensor(self.preprocessing.std, device=pixels.device).view(-1, 1, 1)
        return (pixels - mean) / std


def _square_window(image: Tensor, size: int, mode: Any) -> Tensor:
    """A random square of 7/8 of the shorter side, resized, which keeps proportions."""
    from torchvision.transforms.v2.functional import resized_crop

    height, width = image.shape[-2:]
    side = max(1, round(WINDOW * min(height, width)))
    top = int(torch.randint(height - side + 1, ()))
    left = int(torch.randint(width - side + 1, ()))
    return resized_crop(image, top, left, side, side, [size, size], mode)
