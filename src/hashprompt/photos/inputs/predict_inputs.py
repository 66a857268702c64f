"""Images for `predict`: found, named and decoded."""

import glob
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from PIL import Image

from hashprompt.data.reading.folders import images_below
from hashprompt.data.reading.images import SUFFIXES, UnreadableImage
from hashprompt.data.reading.threads import reading_threads
from hashprompt.errors import UserError
from hashprompt.photos.inputs.image_files import (
    CHANNELS,
    as_image_file,
    decode_image,
    is_array,
    local_path,
    uint8_array,
)

if TYPE_CHECKING:
    from torch import Tensor

PREFETCH = 16  # images decoded while earlier ones are used; a large photo takes 40 MB
Kind = Literal["one", "many", "array"]


class InputImage(NamedTuple):
    """One image to predict: as given, or decoded to (3, H, W) uint8; or why there is none."""

    name: str
    image: Any
    error: str | None = None


def read_inputs(items: Sequence[InputImage], short_side: int | None = None) -> Iterator[InputImage]:
    """The same images, decoded in threads shortly before they are needed."""
    pending: deque[Callable[[], InputImage]] = deque()
    for item in items:
        # A thread would only cost time for one image. A Pillow image may be in the list twice, and
        # two threads must not load it at once.
        if len(items) == 1 or isinstance(item.image, Image.Image):
            pending.append(partial(_read, item, short_side))
        else:
            pending.append(reading_threads().submit(_read, item, short_side).result)
        if len(pending) > PREFETCH:
            yield pending.popleft()()
    while pending:
        yield pending.popleft()()


def _read(item: InputImage, short_side: int | None) -> InputImage:
    if item.error is not None:
        return item
    try:
        return InputImage(item.name, decode_image(as_image_file(item.image, item.name), short_side))
    except UserError as error:
        reason = error.reason if isinstance(error, UnreadableImage) else str(error)
        return InputImage(item.name, None, reason)


def load_inputs(what: Any, short_side: int | None = None) -> tuple[Iterator[InputImage], Kind]:
    """The images to predict, and in which form the answer is expected.

    Args:
        what: a file, the bytes of one, a Pillow image or an array (H, W, 3), (H, W), (3, H, W)
            uint8, which is `one`; a folder, a pattern such as `other/*.jpg` or a list of all
            these, which are `many`; an array of images (N, …) or of paths, which is an `array`.
        short_side: reduce larger images to this.

    Raises:
        UserError: for something that holds no images at all. The problem of a single item is its
            `InputImage.error`.
    """
    if hasattr(what, "to_numpy"):  # a column of a pandas table
        what = what.to_numpy()
    if isinstance(what, str | Path):
        items, kind = _at(what)
    elif is_array(what):
        items, kind = _in_array(what)
    elif isinstance(what, bytes | bytearray | memoryview):
        items, kind = [InputImage("image", what)], "one"
    elif isinstance(what, Image.Image):
        items, kind = [InputImage(_file_name(what) or "image", what)], "one"
    elif isinstance(what, list | tuple | Iterator):
        items, kind = _in_list(what), "many"
    else:
        raise UserError(f"Cannot find images in a {type(what).__name__}. Give paths or images.")
    return read_inputs(items, short_side), kind


def _at(place: str | Path) -> tuple[list[InputImage], Kind]:
    """The image file at a path, or the image files of a folder or a pattern."""
    try:
        path = str(local_path(place))
    except UserError as error:
        return [InputImage(_shown(place), None, str(error))], "one"
    if os.path.isdir(path):
        files = sorted(map(str, images_below(Path(path))))
        problem = f"no images in this folder ({', '.join(SUFFIXES[:4])}, …)"
    elif glob.has_magic(path) and not os.path.lexists(path):
        matches = (match for match in glob.glob(path, recursive=True) if not os.path.isdir(match))
        files, problem = sorted(matches), "no file matches this pattern"
    else:
        return [InputImage(_shown(place), Path(path))], "one"
    items = [InputImage(_shown(file), Path(file)) for file in files]
    return items or [InputImage(_shown(place), None, problem)], "many"


def _in_array(array: "np.ndarray | Tensor") -> tuple[list[InputImage], Kind]:
    if isinstance(array, np.ndarray) and array.dtype.kind in "OU":
        if array.ndim != 1:
            raise UserError(f"An array of paths has the shape {array.shape}; expected (N,).")
        return [_single(item, index) for index, item in enumerate(array.tolist())], "array"
    shape = tuple(array.shape)
    # (1, H, W) is a batch: a batch of grey images may have one.
    if len(shape) == 2 or (len(shape) == 3 and (shape[2] in CHANNELS or shape[0] == 3)):
        return [InputImage("image", array)], "one"
    if len(shape) not in (3, 4):
        raise UserError(
            f"The array has the shape {shape}; expected (H, W, 3), (H, W), (3, H, W) or N of them."
        )
    return [_single(image, i) for i, image in enumerate(uint8_array(array, "the array"))], "array"


def _in_list(images: Iterable[Any]) -> list[InputImage]:
    items: list[InputImage] = []
    for index, item in enumerate(images):
        if isinstance(item, list | tuple):
            raise UserError(f"Item {index} is itself a {type(item).__name__}. Give one flat list.")
        items += _at(item)[0] if isinstance(item, str | Path) else [_single(item, index)]
    return items


def _single(item: Any, index: int) -> InputImage:
    """Exactly one image: the answers to an array are an array of the same length."""
    if isinstance(item, str | Path):
        return InputImage(_shown(item), item)
    return InputImage(_file_name(item) or f"image {index}", item)


def _file_name(image: Any) -> str:
    """Where a Pillow image was opened, if that is known."""
    name = getattr(image, "filename", "") if isinstance(image, Image.Image) else ""
    return _shown(name) if isinstance(name, str | Path) else ""


def _shown(path: str | Path) -> str:
    """A path that can be printed, even if its bytes are no UTF-8."""
    return str(path).encode(errors="replace").decode()
