"""Read image files safely: (3, H, W) uint8 comes back, or a reason in words.

Whatever lies in a folder of photos ends here: every mode becomes RGB, of an animation the first
frame is taken, and a file that is broken, empty, huge, endless or no image raises
`UnreadableImage`. Encoded images are opened by `opened` alone. Importing this imports no torch.
"""

import hashlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np
from PIL import Image, ImageOps

from hashprompt.data.reading.threads import Budget
from hashprompt.errors import UserError
from hashprompt.storage.files import open_file

if TYPE_CHECKING:
    from torch import Tensor

# Decoders are chosen by content, from this list alone: some others of Pillow start programs.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
MAX_PIXELS = 89_478_485  # Pillow's own limit: 256 MB decoded
MAX_BYTES = 10**9  # of a file: so many pixels take 716 MB with four channels of 16 bits
# Longer side over shorter. The shorter is scaled to the size of the network before the middle is
# cut out, so that 1 × 1,000,000 pixels would become 32 × 32,000,000, which take 12 GB.
MAX_RATIO = 100
MAX_SCANS = 200  # of a progressive JPEG, which has ten: each goes over all pixels again
PIXEL_BYTES = 5  # that a pixel may take while it is read: 447 MB for the largest image
HELD = {"1": 1, "L": 1, "P": 1, "I;16": 2}  # bytes of a pixel in Pillow's memory; else 4
WEBP_BYTES = 12  # that its decoder takes beside the image: two canvases and a copy
STRIP = 1 << 22  # pixels converted at once: whole copies of a large image would take 2 GB
BLOCK = 1 << 20  # bytes read at once
DECODING = Budget(MAX_PIXELS)  # pixels that all threads together decode at a time
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


def read_image(file: ImageFile, short_side: int | None = None, upright: bool = True) -> "Tensor":
    """What `read_pixels` gives, (3, H, W) uint8, as a tensor."""
    import torch

    return torch.from_numpy(read_pixels(file, short_side, upright))


def read_pixels(file: ImageFile, short_side: int | None = None, upright: bool = True) -> np.ndarray:
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
    with _image_of(file) as image:
        height, width = _final_size(image, short_side, upright)
        pixels = int(_weight(image) * image.width * image.height)
        if short_side is not None:
            image.draft("", (2 * short_side, 2 * short_side))  # a JPEG can be decoded at a fraction
            if not image.info.get("progressive"):  # which is kept whole all the same
                pixels = int(_weight(image) * image.width * image.height)
        with DECODING.taken(pixels), closing(image):  # its memory is free before others begin
            if upright and image.format in TURNABLE:
                ImageOps.exif_transpose(image, in_place=True)
            if image.size != (width, height):
                image = _plain(image).resize((width, height), Image.Resampling.BICUBIC)
            return _pixels(image)


def file_digest(file: ImageFile, start: bytes = b"") -> bytes:
    """SHA-256 of what a file holds, after `start`."""
    digest = hashlib.sha256(start)
    with _in_words(file), opened(file) as content:
        # Not `hashlib.file_digest`: its buffer of 256 kB costs more than a small photo.
        while block := content.read(BLOCK):
            digest.update(block)
    return digest.digest()


def from_pil(image: Image.Image, name: str) -> np.ndarray:
    """(3, H, W) uint8 of an image that was opened by somebody else, as `read_pixels` gives it."""
    with _in_words(Path(name)):
        if image.format is None or image.format in TURNABLE:
            image = ImageOps.exif_transpose(image)
        return _pixels(image)


def image_size(
    file: ImageFile, short_side: int | None = None, upright: bool = True
) -> tuple[int, int]:
    """(height, width) that `read_image` would give, from the header alone."""
    with _image_of(file) as image:
        return _final_size(image, short_side, upright)


def is_animated(file: ImageFile) -> bool:
    """Whether there are frames that `read_image` leaves out."""
    with _image_of(file) as image:
        return image.format != "MPO" and getattr(image, "is_animated", False)


def size_problem(height: int, width: int, most: int = MAX_PIXELS) -> str:
    """What is wrong with the size of an image, in words; empty if nothing is."""
    if height * width > most:
        return f"{width} × {height} pixels; at most {most:,} are read"
    longer, shorter = max(height, width), max(1, min(height, width))
    if longer > MAX_RATIO * shorter:
        needed = 224 * (224 * longer / shorter) * 3 * 4 / 1e9
        return (
            f"{width} × {height} pixels, one side {longer / shorter:,.0f} times the other; at most "
            f"{MAX_RATIO} times is read. Resized to 224 pixels it would take {needed:,.1f} GB"
        )
    return ""


@contextmanager
def opened(file: ImageFile) -> Iterator[BinaryIO]:
    """The encoded image, to be read. Of a path, only what `open_file` lets in."""
    if isinstance(file, Path):
        with open_file(file, MAX_BYTES) as content:
            yield content
    else:
        yield BytesIO(file.read_bytes())


@contextmanager
def _image_of(file: ImageFile) -> Iterator[Image.Image]:
    with _in_words(file), opened(file) as content:
        if not content.read(1):
            raise UnreadableImage(file, "it is empty (0 bytes)")
        content.seek(0)
        with Image.open(content, formats=FORMATS) as image:
            problem = size_problem(image.height, image.width, int(MAX_PIXELS / _weight(image)))
            if problem := problem or _too_many_scans(image, content):
                raise UnreadableImage(file, problem)
            yield image


def _weight(image: Image.Image) -> float:
    """How many pixels of an ordinary image take as much memory as one of this."""
    return max(1.0, _bytes_a_pixel(image) / PIXEL_BYTES)


def _bytes_a_pixel(image: Image.Image) -> float:
    """Bytes that a pixel takes when it takes most: as it is stored, beside what `_plain` makes."""
    held, plain = HELD.get(image.mode, 4), _plain_mode(image)
    most = held if image.mode == plain else held + HELD.get(plain, 4)
    if image.format == "WEBP":
        return most + WEBP_BYTES
    # A progressive JPEG is kept whole, two bytes for each of its own samples, until it is decoded.
    layers = getattr(image, "layer", []) if image.info.get("progressive") else []
    samples = [across * down for _, across, down, _ in layers]
    return max(most, 2 * sum(samples) / max(samples, default=1))


def _too_many_scans(image: Image.Image, content: BinaryIO) -> str:
    if not image.info.get("progressive"):
        return ""
    place = content.tell()
    content.seek(0)
    scans = sum(block.count(b"\xff\xda") for block in iter(partial(content.read, BLOCK), b""))
    content.seek(place)
    problem = f"a progressive JPEG of {scans:,} scans; at most {MAX_SCANS} are read"
    return problem if scans > MAX_SCANS else ""


@contextmanager
def _in_words(file: ImageFile) -> Iterator[None]:
    """Whatever is wrong with a file, as an `UnreadableImage`."""
    try:
        yield
    except UnreadableImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        reason = f"too many pixels; at most {MAX_PIXELS:,} are read"
        raise UnreadableImage(file, reason) from error
    except Image.UnidentifiedImageError as error:
        reason = f"it is no image, or not one of {', '.join(FORMATS)}"
        raise UnreadableImage(file, reason) from error
    except Exception as error:  # broken files make decoders raise almost anything
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UnreadableImage(file, reason.rstrip(".")) from error


def _final_size(image: Image.Image, short_side: int | None, upright: bool) -> tuple[int, int]:
    width, height = image.size
    # Pillow turns a TIFF by itself, and tells its size as it will be.
    may_turn = upright and image.format in TURNABLE and image.format != "TIFF"
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
            raise ValueError("pixels of 32 bits are not read; save it with 8 or 16")
        image = Image.fromarray(((values + 128) // 257).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("floating-point pixels are not read; save it with 8 or 16 bits")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == mode else image.convert(mode)
