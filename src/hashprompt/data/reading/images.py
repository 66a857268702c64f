"""Read image files safely: (3, H, W) uint8 comes back, or a reason in words.

Whatever lies in a folder of photos ends here: every mode becomes RGB, of an animation the first
frame is taken, and a file that is broken, empty, huge or no image raises `UnreadableImage`.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from hashprompt.errors import UserError

# Decoders are chosen by content, from this list alone: some others of Pillow start programs.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
MOST_PIXELS = 89_478_485  # Pillow's own limit: 256 MB decoded
TURNABLE = ("JPEG", "MPO", "WEBP", "TIFF")  # formats whose header tells how the camera was held
TURN_TAG, QUARTER_TURNS = 0x0112, (5, 6, 7, 8)


class ImageFile(Protocol):
    """Something that holds an encoded image: a `Path`, or a row of a table."""

    def read_bytes(self) -> bytes: ...


class UnreadableImage(UserError):  # noqa: N818 (a finding about a file)
    """An image file that cannot be used, and why."""

    def __init__(self, file: ImageFile, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"Cannot read {file}: {reason}. Replace or remove it.")


def looks_like_image(path: Path) -> bool:
    """Whether the name of a file promises an image."""
    return path.suffix.lower() in SUFFIXES


def read_image(file: ImageFile, short_side: int | None = None, upright: bool = True) -> Tensor:
    """Decode an image to RGB.

    Grey images get three equal channels, 16 bits become 8, transparency is dropped (as
    torchvision's loaders do), and of an animation the first frame is taken.

    Args:
        file: a path, or anything with `read_bytes`.
        short_side: reduce a larger image to so many pixels on its shorter side.
        upright: turn a photo as its camera was held (EXIF).

    Returns:
        (3, H, W) uint8.
    """
    with _opened(file) as image:
        height, width = _final_size(image, short_side, upright)
        if short_side is not None:
            image.draft("", (2 * short_side, 2 * short_side))  # a JPEG can be decoded at a fraction
        if upright and image.format in TURNABLE:
            image = ImageOps.exif_transpose(image)
        rgb = _to_rgb(image)
        if rgb.size != (width, height):
            rgb = rgb.resize((width, height), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()


def file_digest(file: ImageFile) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise UnreadableImage(file, error.strerror or str(error)) from error


def from_pil(image: Image.Image, name: str) -> Tensor:
    """(3, H, W) uint8 of an image that was opened by somebody else, as `read_image` gives it."""
    try:
        if image.format is None or image.format in TURNABLE:
            image = ImageOps.exif_transpose(image)
        return torch.from_numpy(np.array(_to_rgb(image))).permute(2, 0, 1).contiguous()
    except Exception as error:  # Pillow decodes only now: see `_opened`
        raise UnreadableImage(Path(name), str(error).rstrip(".")) from error


def image_size(
    file: ImageFile, short_side: int | None = None, upright: bool = True
) -> tuple[int, int]:
    """(height, width) that `read_image` would give, from the header alone."""
    with _opened(file) as image:
        return _final_size(image, short_side, upright)


def is_animated(file: ImageFile) -> bool:
    """Whether there are frames that `read_image` leaves out."""
    with _opened(file) as image:
        return image.format != "MPO" and getattr(image, "n_frames", 1) > 1


@contextmanager
def _opened(file: ImageFile) -> Iterator[Image.Image]:
    try:
        if isinstance(file, Path):
            if not file.stat().st_size:
                raise UnreadableImage(file, "it is empty (0 bytes)")
            source: Path | BytesIO = file
        else:
            source = BytesIO(file.read_bytes())
        with Image.open(source, formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise UnreadableImage(
                    file, f"{image.width} × {image.height} pixels; at most {MOST_PIXELS:,} are read"
                )
            yield image
    except UserError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        reason = f"too many pixels; at most {MOST_PIXELS:,} are read"
        raise UnreadableImage(file, reason) from error
    except Image.UnidentifiedImageError as error:
        reason = f"it is no image, or not one of {', '.join(FORMATS)}"
        raise UnreadableImage(file, reason) from error
    except Exception as error:  # broken files make decoders raise almost anything
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreadableImage(file, reason.rstrip(".")) from error


def _final_size(image: Image.Image, short_side: int | None, upright: bool) -> tuple[int, int]:
    width, height = image.size
    turned = upright and image.format in TURNABLE and image.getexif().get(TURN_TAG) in QUARTER_TURNS
    if turned:
        width, height = height, width
    if short_side is None or min(width, height) <= short_side:
        return height, width
    scale = short_side / min(width, height)
    return max(short_side, round(height * scale)), max(short_side, round(width * scale))


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits: Pillow's own conversion would cut off at 255
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("pixels of 32 bits are not read; save it with 8 or 16")
        image = Image.fromarray(((values + 128) // 257).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("floating-point pixels are not read; save it with 8 or 16 bits")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")
