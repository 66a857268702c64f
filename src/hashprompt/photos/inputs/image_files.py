"""Images as users give them: a path, encoded bytes, a Pillow image or an array."""

import hashlib
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from hashprompt.data.reading.images import (
    ImageFile,
    UnreadableImage,
    file_digest,
    from_pil,
    read_pixels,
    size_problem,
)
from hashprompt.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

CHANNELS = (1, 3, 4)  # grey, RGB, RGB with transparency
EMPTY = hashlib.sha256().hexdigest()


@dataclass(frozen=True, eq=False)
class EncodedImage:
    """The bytes of an image file."""

    name: str
    content: bytes

    def read_bytes(self) -> bytes:
        return self.content

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class DecodedImage(EncodedImage):
    """A decoded image (3, H, W) uint8, which is read like any image file."""

    content: bytes = b""
    image: np.ndarray = field(kw_only=True)

    def read_bytes(self) -> bytes:
        """The image as a PPM file: nothing is lost and nothing is compressed."""
        height, width = self.image.shape[1:]
        pixels = self.image.transpose(1, 2, 0).tobytes()
        return f"P6 {width} {height} 255\n".encode() + pixels


def as_image_file(item: Any, name: str) -> ImageFile:
    """What to read an image from.

    Args:
        item: a path, the bytes of an image file, a Pillow image, or one array of `pixels_of`.
        name: for messages, if it is no path.
    """
    if isinstance(item, str | Path):
        return local_path(item)
    if isinstance(item, bytes | bytearray | memoryview):
        return EncodedImage(name, bytes(item))
    if isinstance(item, Image.Image):
        return DecodedImage(name, image=from_pil(item, name))
    if is_array(item):
        return DecodedImage(name, image=pixels_of(item, name))
    raise UserError(
        f"{name[:1].upper()}{name[1:]} is of the type {type(item).__name__}. Expected a path, the "
        "bytes of an image file, a Pillow image or an array."
    )


def is_array(item: Any) -> bool:
    """Whether it is an array or a tensor; there are no tensors before torch is imported."""
    torch = sys.modules.get("torch")
    return isinstance(item, np.ndarray) or (torch is not None and isinstance(item, torch.Tensor))


def decode_image(file: ImageFile, short_side: int | None = None) -> np.ndarray:
    """(3, H, W) uint8, upright, and reduced as `read_pixels` does it."""
    if isinstance(file, DecodedImage):
        height, width = file.image.shape[1:]
        if problem := size_problem(height, width):
            raise UnreadableImage(file, problem)
        if short_side is None or min(height, width) <= short_side:
            return file.image
    return read_pixels(file, short_side)


def content_digest(file: ImageFile) -> str:
    """SHA-256 of a file's bytes (of shape and pixels, if it is decoded); empty if unreadable."""
    if isinstance(file, DecodedImage):
        from hashprompt.data.reading.image_stores import pixel_digest  # imports torch

        return pixel_digest(file.image).hex()
    try:
        digest = file_digest(file).hex()
    except UserError:
        return ""
    return "" if digest == EMPTY else digest


def local_path(path: str | Path) -> Path:
    """A path on this machine; addresses of the web are refused."""
    if re.match("(https?|ftp):/", str(path), re.IGNORECASE):
        raise UserError(f"{path} is an address of the web. Download the image, and give its path.")
    return Path(os.path.expanduser(path))  # that of pathlib raises for `~nobody`


def uint8_array(array: "np.ndarray | Tensor", what: str) -> np.ndarray:
    """The same numbers in main memory, if they are bytes."""
    kind = str(array.dtype).removeprefix("torch.")
    if kind != "uint8":
        hint = ""
        if "float" in kind:
            hint = " Give images as they are, not scaled or normalised (of 0…1: 255 * x, rounded)."
        raise UserError(f"{what} holds numbers of the type {kind}; expected uint8, 0…255.{hint}")
    if not isinstance(array, np.ndarray):
        array = array.detach().cpu().numpy()
    return np.require(array, requirements=["C", "W"])


def pixels_of(array: "np.ndarray | Tensor", what: str) -> np.ndarray:
    """(H, W, 3), (H, W) or (3, H, W) uint8 -> (3, H, W); one or four channels will do as well."""
    image = uint8_array(array, what)
    if image.ndim == 2:
        image = image[None]
    elif image.ndim == 3 and image.shape[2] in CHANNELS:
        image = image.transpose(2, 0, 1)
    if image.ndim != 3 or image.shape[0] not in CHANNELS or 0 in image.shape:
        raise UserError(
            f"{what} has the shape {tuple(array.shape)}; expected (H, W, 3), (H, W) or (3, H, W)."
        )
    return np.repeat(image, 3, axis=0) if len(image) == 1 else image[:3]
