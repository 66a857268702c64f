"""The clean view of photos without torch: the pixels of `Views.clean` before normalisation."""

import numpy as np
from PIL import Image

# Pillow's filters reduce as torch's `antialias=True` does, and work on floating-point pixels.
FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


def central_pixels(
    image: np.ndarray, size: int, interpolation: str = "bicubic", center: float = 1.0
) -> np.ndarray:
    """The whole or central image, resized.

    Args:
        image: (3, H, W) uint8.
        size: S, pixels a side.
        interpolation: a key of ``FILTERS``; others mean bicubic, as in `Views`.
        center: share of the resized image that is kept.

    Returns:
        (3, S, S) float32 in [0, 1].
    """
    short = round(size / center)
    height, width = image.shape[1:]
    shorter = min(height, width)
    # Rounded as torchvision's Resize and CenterCrop do, to cut the same pixels.
    target = (int(short * height / shorter), int(short * width / shorter))
    pixels = image.astype(np.float32) / np.float32(255)
    if target != (height, width):
        chosen = FILTERS.get(interpolation, FILTERS["bicubic"])
        resized = [Image.fromarray(channel).resize(target[::-1], chosen) for channel in pixels]
        pixels = np.stack([np.asarray(channel) for channel in resized]).clip(0, 1)
    top, left = (round((side - size) / 2) for side in target)
    return pixels[:, top : top + size, left : left + size]
