"""What a person gives to `predict` becomes images, and what comes back is told in words."""

import csv
import glob
import json
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from hashprompt.classifier.given import CHANNELS, as_tensor, image_file, local_path, read_given
from hashprompt.data.reading.entries import in_natural_order
from hashprompt.data.reading.images import SUFFIXES, UnreadableImage, looks_like_image
from hashprompt.data.reading.threads import reading_threads
from hashprompt.errors import UserError

AHEAD = 16  # images decoded while earlier ones are used; a large photo takes 40 MB
Kind = Literal["one", "many", "array"]


class Question(NamedTuple):
    """One image to be named: decoded, (3, H, W) uint8, or the reason why it is not."""

    name: str
    image: Tensor | None
    error: str | None = None


class Item(NamedTuple):
    """One image as it was given, or the reason why there is none."""

    name: str
    given: Any
    error: str | None = None


class Questions:
    """Images that are decoded in threads, shortly before they are asked for."""

    def __init__(self, items: Sequence[Item], short_side: int | None = None) -> None:
        self.items, self.short_side = items, short_side

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Question]:
        coming: deque[Question | Future[Question]] = deque()
        try:
            for item in self.items:
                coming.append(self._start(item))
                if len(coming) > AHEAD:
                    yield _result(coming.popleft())
            while coming:
                yield _result(coming.popleft())
        finally:  # nobody wants the rest
            for question in coming:
                if isinstance(question, Future):
                    question.cancel()

    def _start(self, item: Item) -> "Question | Future[Question]":
        # A thread would only cost time for one image. A Pillow image may be in the list twice, and
        # two threads must not load it at once.
        if len(self.items) == 1 or isinstance(item.given, Image.Image):
            return self._read(item)
        return reading_threads().submit(self._read, item)

    def _read(self, item: Item) -> Question:
        if item.error is not None:
            return Question(item.name, None, item.error)
        try:
            image = read_given(image_file(item.given, item.name), self.short_side)
        except UnreadableImage as problem:
            return Question(item.name, None, problem.reason)
        except UserError as problem:
            return Question(item.name, None, str(problem))
        return Question(item.name, image)


def _result(question: "Question | Future[Question]") -> Question:
    return question.result() if isinstance(question, Future) else question


def questions(what: Any, short_side: int | None = None) -> tuple[Questions, Kind]:
    """The images of a question, and in which form the answer is expected.

    Args:
        what: a file, the bytes of one, a Pillow image or an array (H, W, 3), (H, W), (3, H, W)
            uint8, which is `one`; a folder, a pattern such as `other/*.jpg` or a list of all
            these, which are `many`; an array of images (N, …) or of paths, which is an `array`.
        short_side: reduce larger images to this.

    Raises:
        UserError: for something that holds no images at all. What is wrong with one item is said
            in its `Question.error`.
    """
    if hasattr(what, "to_numpy"):  # a column of a pandas table
        what = what.to_numpy()
    if isinstance(what, str | Path):
        items, kind = _at(what)
    elif isinstance(what, np.ndarray | Tensor):
        items, kind = _in_array(what)
    elif isinstance(what, bytes | bytearray | memoryview):
        items, kind = [Item("image", what)], "one"
    elif isinstance(what, Image.Image):
        items, kind = [Item(_file_name(what) or "image", what)], "one"
    elif isinstance(what, list | tuple | Iterator):
        items, kind = _in_list(what), "many"
    else:
        raise UserError(
            f"Cannot find images in a {type(what).__name__}. Give a path, a folder, a pattern, "
            "bytes, a Pillow image, an array or a list of these."
        )
    return Questions(items, short_side), kind


def _at(place: str | Path) -> tuple[list[Item], Kind]:
    """The image file at a path, or the image files of a folder or a pattern."""
    try:
        path = str(local_path(place))
    except UserError as problem:
        return [Item(_shown(place), None, str(problem))], "one"
    if os.path.isdir(path):
        found, none = _in_folder(path), f"no images in this folder ({', '.join(SUFFIXES[:4])}, …)"
    elif glob.has_magic(path) and not os.path.lexists(path):
        files = filter(os.path.isfile, glob.glob(path, recursive=True))
        found, none = sorted(files), "no file matches this pattern"
    else:
        return [Item(_shown(place), Path(path))], "one"
    items = [Item(_shown(file), Path(file)) for file in found]
    return items or [Item(_shown(place), None, none)], "many"


def _in_folder(folder: str) -> list[str]:
    """Image files in a folder and the folders inside, sorted; hidden ones are passed over."""
    found: list[str] = []
    for place, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if not name.startswith((".", "__MACOSX"))]
        images = (n for n in names if looks_like_image(Path(n)) and not n.startswith("."))
        found += [os.path.join(place, name) for name in images]
    return sorted(found)


def _in_array(array: np.ndarray | Tensor) -> tuple[list[Item], Kind]:
    if isinstance(array, np.ndarray) and array.dtype.kind in "OU":
        if array.ndim != 1:
            raise UserError(f"An array of paths has the shape {array.shape}; expected (N,).")
        return [_single(item, index) for index, item in enumerate(array.tolist())], "array"
    shape = tuple(array.shape)
    # (1, H, W) is a batch: grey images that are asked about in pieces may leave a piece of one.
    if len(shape) == 2 or (len(shape) == 3 and (shape[2] in CHANNELS or shape[0] == 3)):
        return [Item("image", array)], "one"
    if len(shape) not in (3, 4):
        raise UserError(
            f"The array has the shape {shape}; expected one image (H, W, 3), (H, W) or (3, H, W), "
            "or N of them."
        )
    return [_single(image, i) for i, image in enumerate(as_tensor(array, "the array"))], "array"


def _in_list(given: Iterable[Any]) -> list[Item]:
    items: list[Item] = []
    for index, item in enumerate(given):
        if isinstance(item, list | tuple):
            raise UserError(f"Item {index} is itself a {type(item).__name__}. Give one flat list.")
        items += _at(item)[0] if isinstance(item, str | Path) else [_single(item, index)]
    return items


def _single(item: Any, index: int) -> Item:
    """Exactly one image: the answers to an array are an array of the same length."""
    if isinstance(item, str | Path):
        return Item(_shown(item), item)
    return Item(_file_name(item) or f"image {index}", item)


def _file_name(image: Any) -> str:
    """Where a Pillow image was opened, if it says so."""
    name = getattr(image, "filename", "") if isinstance(image, Image.Image) else ""
    return _shown(name) if isinstance(name, str | Path) else ""


def _shown(path: str | Path) -> str:
    """A path that can be printed, even if its bytes are no UTF-8."""
    return str(path).encode(errors="replace").decode()


# Answers. ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What a classifier says of one image.

    Args:
        name: of the image: its path, if it has one.
        label: the most likely class, as it was named when it was learned.
        confidence: its probability.
        probabilities: of all classes, the most likely first.
        unknown: how far the image is from all that was learned, 0…1.
        is_unknown: whether that is too far to trust the label.
        reminds_of: the nearest classes: `class`, when it was `learned`, `distance`.
        error: why there is no answer; then all else is empty.
    """

    name: str
    label: str | int | None = None
    confidence: float = 0.0
    probabilities: dict[str, float] = field(default_factory=dict)
    unknown: float = 0.0
    is_unknown: bool = False
    reminds_of: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None

    def top(self, k: int | None = None) -> list[tuple[str, float]]:
        """The k most likely classes, or all, with their probabilities."""
        if k is not None and k < 1:
            raise UserError(f"top={k}: ask for one class at least.")
        return list(self.probabilities.items())[:k]

    def to_dict(self, top: int | None = None) -> dict[str, Any]:
        """All of it as plain values, for JSON; an error leaves the others empty."""
        answered = self.error is None
        return {
            "name": self.name,
            "label": self.label,
            "confidence": _number(self.confidence) if answered else None,
            "unknown": _number(self.unknown) if answered else None,
            "is_unknown": bool(self.is_unknown) if answered else None,
            "probabilities": {name: _number(share) for name, share in self.top(top)},
            "reminds_of": [
                {**near, "distance": _number(near["distance"])} for near in self.reminds_of
            ],
            "error": self.error,
        }

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.name}: error: {self.error}"
        sure = f"{100 * self.confidence:.0f} %"
        if self.is_unknown:
            nearest = self.top(1)[0][0] if self.probabilities else self.label
            return f"{self.name}: unknown (looks most like {nearest}, {sure})"
        return f"{self.name}: {self.label} ({sure})"


def _number(value: float) -> float | None:
    """A plain number; JSON has no word for the others."""
    return float(value) if math.isfinite(value) else None


def to_json(answers: Iterable[Answer], top: int | None = None) -> str:
    """A list with an object for each answer."""
    told = [answer.to_dict(top) for answer in answers]
    return json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False)


def to_csv(answers: Iterable[Answer], top: int | None = None) -> str:
    """A line for each answer, with the `top` classes, or with a column for every class."""
    answers = list(answers)
    classes = in_natural_order({name for answer in answers for name in answer.probabilities})
    wide = [f"p_{name}" for name in classes]
    if top is not None:
        ranks = range(1, min(top, len(classes)) + 1)
        wide = [column for rank in ranks for column in (f"label_{rank}", f"p_{rank}")]
    columns = ["name", "label", "confidence", "unknown", "is_unknown", "error", *wide]
    written = StringIO()
    table = csv.DictWriter(written, columns, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(_row(answer, top) for answer in answers)
    return written.getvalue()


def _row(answer: Answer, top: int | None) -> dict[str, str]:
    row = {"name": answer.name, "error": answer.error or ""}
    if answer.error is not None:
        return row
    row["label"] = "" if answer.label is None else str(answer.label)
    row["confidence"], row["unknown"] = f"{answer.confidence:.6g}", f"{answer.unknown:.6g}"
    row["is_unknown"] = str(answer.is_unknown).lower()
    for rank, (name, share) in enumerate(answer.top(top), start=1):
        if top is None:
            row[f"p_{name}"] = f"{share:.6g}"
        else:
            row[f"label_{rank}"], row[f"p_{rank}"] = name, f"{share:.6g}"
    return row
