"""Read image files of unknown origin: (3, H, W) uint8, or an error with the reason.

Every mode becomes RGB, the first frame of an animation is used, and a file that is broken, empty,
huge, endless or not an image raises `UnreadableImage`. Only `opened` opens encoded images. Imports
no torch.
"""

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from hashprompt.data.reading.threads import Budget
from hashprompt.errors import UserError
from hashprompt.storage.files import open_file

if TYPE_CHECKING:
    from torch import Tensor

# Decoders are chosen by content, only from this list: some others of Pillow start programs.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
MAX_PIXELS = 89_478_485  # Pillow's own limit: 256 MB decoded
MAX_BYTES = 10**9  # of a file: so many pixels take 716 MB with four channels of 16 bits
# Longer side over shorter. The shorter is scaled to the input size before the centre is cut out:
# 1 × 1,000,000 pixels would become 32 × 32,000,000, which take 12 GB.
MAX_RATIO = 100
MAX_SCANS = 200  # of a progressive JPEG; ten are usual, and each costs a pass over all pixels
PIXEL_BYTES = 5  # allowed per pixel while reading: 447 MB for the largest image
MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2}  # bytes per pixel in Pillow; 4 for others
WEBP_BYTES = 12  # its decoder takes in addition: two canvases and a copy
STRIP = 1 << 22  # pixels converted at once: whole copies of a large image would take 2 GB
BLOCK = 1 << 20  # bytes read at once
DECODING = Budget(MAX_PIXELS)  # pixels that all threads together decode at once
ROTATABLE = ("JPEG", "MPO", "WEBP", "TIFF")  # formats whose header holds the camera orientation
TURN_TAG, QUARTER_TURNS = 0x0112, (5, 6, 7, 8)


class ImageFile(Protocol):
    """A source of an encoded image: a `Path`, or a row of a table."""

    def read_bytes(self) -> bytes: ...


class UnreadableImage(UserError):  # noqa: N818 (a finding about a file)
    """An image file that cannot be used, with the reason."""

    def __init__(self, file: ImageFile, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"Cannot read {file}: {reason}. Replace or remove it.")


def looks_like_image(path: Path) -> bool:
    """Whether a file has the suffix of an image."""
    return path.suffix.lower() in SUFFIXES


def read_image(file: ImageFile, short_side: int | None = None, upright: bool = True) -> "Tensor":
    """The result of `read_pixels` as a tensor, (3, H, W) uint8."""
    import torch

    return torch.from_numpy(read_pixels(file, short_side, upright))


def read_pixels(file: ImageFile, short_side: int | None = None, upright: bool = True) -> np.ndarray:
    """Decode an image to RGB.

    Grey images get three equal channels, 16 bits become 8, transparency is dropped (as
    torchvision's loaders do), and of an animation the first frame is taken.

    Args:
        file: a path, or anything with `read_bytes`.
        short_side: reduce larger images to this shorter side.
        upright: apply the EXIF orientation.

    Returns:
        (3, H, W) uint8.
    """
    with _image_of(file) as image:
        height, width = _final_size(image, short_side, upright)
        pixels = int(_weight(image) * image.width * image.height)
        if short_side is not None:
            image.draft("", (2 * short_side, 2 * short_side))  # a JPEG can be decoded at a fraction
            if not image.info.get("progressive"):  # which is always decoded in full
                pixels = int(_weight(image) * image.width * image.height)
        with DECODING.taken(pixels), closing(image):  # memory is free before others begin
            if upright and image.format in ROTATABLE:
                ImageOps.exif_transpose(image, in_place=True)
            if image.size != (width, height):
                image = _plain(image).resize((width, height), Image.Resampling.BICUBIC)
            return _pixels(image)


def file_digest(file: ImageFile, start: bytes = b"") -> bytes:
    """SHA-256 of `start` and the content of a file."""
    digest = hashlib.sha256(start)
    with _as_unreadable(file), opened(file) as content:
        # Not `hashlib.file_digest`: its buffer of 256 kB costs more than a small photo.
        while block := content.read(BLOCK):
            digest.update(block)
    return digest.digest()


def from_pil(image: Image.Image, name: str) -> np.ndarray:
    """(3, H, W) uint8 of an image that another program opened, as from `read_pixels`."""
    with _as_unreadable(Path(name)):
        if image.format is None or image.format in ROTATABLE:
            image = ImageOps.exif_transpose(image)
        return _pixels(image)


def image_size(
    file: ImageFile, short_side: int | None = None, upright: bool = True
) -> tuple[int, int]:
    """(height, width) of the result of `read_image`, from the header."""
    with _image_of(file) as image:
        return _final_size(image, short_side, upright)


def size_problem(height: int, width: int, max_pixels: int = MAX_PIXELS) -> str:
    """Why an image of this size is refused; empty if it is not."""
    if height * width > max_pixels:
        return f"{width} × {height} pixels; at most {max_pixels:,} are read"
    if max(height, width) > MAX_RATIO * max(1, min(height, width)):
        return f"{width} × {height} pixels; one side is more than {MAX_RATIO} times the other"
    return ""


@contextmanager
def opened(file: ImageFile) -> Iterator[BinaryIO]:
    """The encoded image, opened for reading; paths are checked by `open_file`."""
    if isinstance(file, Path):
        with open_file(file, MAX_BYTES) as content:
            yield content
    else:
        yield BytesIO(file.read_bytes())


@contextmanager
def _image_of(file: ImageFile) -> Iterator[Image.Image]:
    with _as_unreadable(file), opened(file) as content:
        if not content.read(1):
            raise UnreadableImage(file, "it is empty (0 bytes)")
        content.seek(0)
        with Image.open(content, formats=FORMATS) as image:
            max_pixels = int(MAX_PIXELS / _weight(image))
            problem = size_problem(image.height, image.width, max_pixels)
            if problem := problem or _scan_problem(image, content):
                raise UnreadableImage(file, problem)
            yield image


def _weight(image: Image.Image) -> float:
    """Memory per pixel, relative to an ordinary image."""
    return max(1.0, _bytes_a_pixel(image) / PIXEL_BYTES)


def _bytes_a_pixel(image: Image.Image) -> float:
    """The peak bytes per pixel: as stored, and next to the result of `_plain`."""
    held, plain = MODE_BYTES.get(image.mode, 4), _plain_mode(image)
    most = held if image.mode == plain else held + MODE_BYTES.get(plain, 4)
    if image.format == "WEBP":
        return most + WEBP_BYTES
    # A progressive JPEG is held with two bytes per sample until it is decoded.
    layers = getattr(image, "layer", []) if image.info.get("progressive") else []
    samples = [across * down for _, across, down, _ in layers]
    return max(most, 2 * sum(samples) / max(samples, default=1))


def _scan_problem(image: Image.Image, content: BinaryIO) -> str:
    """Why a progressive JPEG is refused; empty if it is not."""
    if not image.info.get("progressive"):
        return ""
    place = content.tell()
    content.seek(0)
    scans = sum(block.count(b"\xff\xda") for block in iter(partial(content.read, BLOCK), b""))
    content.seek(place)
    problem = f"a progressive JPEG of {scans:,} scans; at most {MAX_SCANS} are read"
    return problem if scans > MAX_SCANS else ""


@contextmanager
def _as_unreadable(file: ImageFile) -> Iterator[None]:
    """Turn every error of a file into an `UnreadableImage`."""
    try:
        yield
    except UnreadableImage:
        raise
    except Exception as error:  # broken files make decoders raise almost anything
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
            reason = f"too many pixels; at most {MAX_PIXELS:,} are read"
        elif isinstance(error, UnidentifiedImageError):
            reason = f"it is no image, or not one of {', '.join(FORMATS)}"
        raise UnreadableImage(file, reason.rstrip(".")) from error


def _final_size(image: Image.Image, short_side: int | None, upright: bool) -> tuple[int, int]:
    width, height = image.size
    # Pillow rotates a TIFF itself, and reports the final size.
    may_turn = upright and image.format in ROTATABLE and image.format != "TIFF"
    if may_turn and image.getexif().get(TURN_TAG) in QUARTER_TURNS:
        width, height = height, width
    if short_side is None or min(width, height) <= short_side:
        return height, width
    scale = short_side / min(width, height)
    return max(short_side, round(height * scale)), max(short_side, round(width * scale))


def _pixels(image: Image.Image) -> np.ndarray:
    """(3, H, W) uint8 of an image in any mode."""
    pixels = np.empty((3, image.height, image.width), dtype=np.uint8)
    for box in _strips(image):
        whole = box == (0, 0, *image.size)
        strip = np.asarray(_converted(image if whole else image.crop(box)))
        pixels[:, box[1] : box[3]] = strip.transpose(2, 0, 1)
    return pixels


def _plain(image: Image.Image) -> Image.Image:
    """An image in any mode as RGB, or as grey, which takes a quarter of the memory."""
    mode, strips = _plain_mode(image), _strips(image)
    if len(strips) == 1 or image.mode == mode:
        return _converted(image, mode)
    plain = Image.new(mode, image.size)
    for box in strips:
        plain.paste(_converted(image.crop(box), mode), box)
    return plain


def _plain_mode(image: Image.Image) -> str:
    return "L" if image.mode in ("1", "L", "LA") or image.mode.startswith("I") else "RGB"


def _strips(image: Image.Image) -> list[tuple[int, int, int, int]]:
    """Boxes (left, top, right, bottom), one below the other, that cover an image."""
    width, height = image.size
    rows = max(1, STRIP // width)
    return [(0, top, width, min(top + rows, height)) for top in range(0, height, rows)]


def _converted(image: Image.Image, mode: str = "RGB") -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits: Pillow's own conversion would cut off at 255
        values = np.asarray(image).astype(np.int32)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError("pixels of 32 bits are not read; save it with 8 or 16 bits")
        image = Image.fromarray(((values + 128) // 257).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("floating-point pixels are not read; save it with 8 or 16 bits")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == mode else image.convert(mode)
