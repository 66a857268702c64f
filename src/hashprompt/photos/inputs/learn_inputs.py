"""The forms in which `learn` takes labelled images: folder, CSV file, Dataset, arrays, lists."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from hashprompt.data.reading.folders import Entry, list_folder, subfolders, walk_classes
from hashprompt.data.reading.lists import listed_entries
from hashprompt.errors import UserError
from hashprompt.photos.inputs.image_files import as_image_file, local_path, uint8_array
from hashprompt.photos.inputs.names import shorten
from hashprompt.photos.sorting.journal import left_out, refuse_unfinished
from hashprompt.texts import counted

EXPECTED = (
    "Expected a folder of class folders, a .csv file, a Dataset of (image, label), or images and "
    "labels"
)


@dataclass(frozen=True)
class LabelledImages:
    """Images with their labels, not yet read."""

    name: str
    entries: list[Entry]
    integer_labels: bool = False
    notes: Sequence[str] = ()


def labelled_images(photos: Any, labels: Any = None) -> LabelledImages:
    """The images and labels in what `learn` was given; its `photos` and `labels`."""
    if labels is None and isinstance(photos, tuple) and len(photos) == 2:
        photos, labels = photos
    photos, labels = _without_pandas(photos), _without_pandas(labels)
    if isinstance(photos, str | Path):
        if labels is not None:
            raise UserError(f"{photos} comes with labels, but a path has its own. {EXPECTED}.")
        path = local_path(photos)
        return _from_list(path) if path.suffix.lower() == ".csv" else _from_folder(path)
    if labels is not None:
        return _from_images(photos, labels)
    if isinstance(photos, list | tuple | np.ndarray | Tensor):
        raise UserError(f"The images come without labels. {EXPECTED}.")
    if hasattr(photos, "__getitem__") and hasattr(photos, "__len__"):
        return _from_dataset(photos)
    raise UserError(f"Cannot learn from a {type(photos).__name__}. {EXPECTED}.")


def _without_pandas(column: Any) -> Any:
    """A column of a pandas table as an array; anything else as it is."""
    return column.to_numpy() if hasattr(column, "to_numpy") else column


def _from_folder(folder: Path) -> LabelledImages:
    loose = list_folder(folder).images if folder.is_dir() else []
    if loose and not subfolders(folder):
        raise UserError(f"{folder} holds images but no class folders. Make one for each class.")
    no_classes = []
    if folder.is_dir():
        refuse_unfinished(folder)
        no_classes = left_out(folder)
    entries, notes = walk_classes(folder, "classes", no_classes)
    groups = sorted({entry.group for entry in entries if entry.group})
    if groups:
        shown = shorten(groups)
        raise UserError(
            f"{folder} holds {len(groups)} folders of class folders ({shown}). Learn them in turn."
        )
    if waiting := [name for name in no_classes if (folder / name).is_dir()]:
        notes.append(
            f"Left out: {len(waiting)} folders of a sort that are no classes yet "
            f"({shorten(waiting)}). Rename a folder to a class to learn it."
        )
    # The contact sheets of a sort stay, even if their clusters have been renamed.
    sheets = {f"{name}.jpg" for name in no_classes}
    if strays := [path.name for path in loose if path.name not in sheets]:
        ignored = counted(len(strays), "image", "images")
        notes.append(f"Ignored: {ignored} outside the class folders ({shorten(strays)}).")
    return LabelledImages(folder.resolve().name, entries, notes=notes)


def _from_list(file: Path) -> LabelledImages:
    if not os.path.exists(file):
        raise UserError(f"{file} does not exist. {EXPECTED}.")
    entries, groups = listed_entries(file)
    if groups:
        names = shorten(sorted({entry.group for entry in entries}))
        raise UserError(
            f"{file} has a column `{groups[:-1]}` ({names}). Write a .csv file for each of them."
        )
    return LabelledImages(file.stem, entries)


def _from_images(images: Any, labels: Any) -> LabelledImages:
    if isinstance(images, np.ndarray) and images.dtype.kind in "OU":
        images = images.tolist()
    if isinstance(images, np.ndarray | Tensor):
        if images.ndim not in (3, 4):
            expected = "expected (N, H, W, 3), (N, H, W) or (N, 3, H, W)"
            raise UserError(f"The images have the shape {tuple(images.shape)}; {expected}.")
        images = uint8_array(images, "the array of images")
    elif not isinstance(images, list | tuple):
        raise UserError(f"The images are a {type(images).__name__}; expected a list or an array.")
    names, are_integers = _label_names(labels)
    if len(images) != len(names):
        raise UserError(f"{len(images)} images, but {len(names)} labels. Give one for each image.")
    if not len(images):
        raise UserError(f"There are no images. {EXPECTED}.")
    pairs = enumerate(zip(images, names, strict=True))
    entries = [_entry(image, i, name) for i, (image, name) in pairs]
    return LabelledImages(f"{len(entries)} images", entries, are_integers)


def _from_dataset(dataset: Any) -> LabelledImages:
    kind = type(dataset).__name__
    images, labels = [], []
    for index in range(len(dataset)):
        try:
            item = dataset[index]
        except Exception as error:  # the code is the user's own
            raise UserError(f"Item {index} of {kind} cannot be read: {error!r}.") from error
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise UserError(
                f"Item {index} of {kind} is a {type(item).__name__}; expected (image, label)."
            )
        images.append(item[0])
        labels.append(item[1])
    found = _from_images(images, labels)
    names = _dataset_classes(dataset)
    if not found.integer_labels or not names:
        return replace(found, name=kind)
    beyond = [entry.label for entry in found.entries if int(entry.label) >= len(names)]
    if beyond:
        raise UserError(f"{kind} names {len(names)} classes, but holds the label {beyond[0]}.")
    entries = [replace(entry, label=names[int(entry.label)]) for entry in found.entries]
    return LabelledImages(kind, entries)


def _dataset_classes(dataset: Any) -> list[str]:
    """The names that torchvision's data sets have; a `Subset` passes them on."""
    names = getattr(dataset, "classes", None)
    if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        return list(names)
    inner = getattr(dataset, "dataset", None)
    return [] if inner is None else _dataset_classes(inner)


def _entry(image: Any, index: int, label: str) -> Entry:
    file = as_image_file(image, f"image {index}")
    return Entry(file, Path(file).as_posix() if isinstance(file, Path) else str(file), label)


def _label_names(labels: Any) -> tuple[list[str], bool]:
    """Labels as names, and whether they are whole numbers."""
    if isinstance(labels, np.ndarray | Tensor):
        if labels.ndim != 1:
            raise UserError(f"The labels have the shape {tuple(labels.shape)}; expected (N,).")
        labels = labels.tolist()
    if not isinstance(labels, list | tuple):
        raise UserError(f"The labels are a {type(labels).__name__}; expected a list or an array.")
    plain = [label.item() if isinstance(label, np.generic | Tensor) else label for label in labels]
    numbers = [label for label in plain if not isinstance(label, str)]
    for label in numbers:
        if isinstance(label, bool) or not isinstance(label, Integral) or label < 0:
            nan = isinstance(label, float) and math.isnan(label)
            hint = " A missing value is no class: leave such images out." if nan else ""
            raise UserError(f"Label {label!r}; expected words or whole numbers from 0.{hint}")
    if 0 < len(numbers) < len(plain):
        raise UserError(f"Some labels are words and some are numbers, like {numbers[0]}. Use one.")
    return [str(label) for label in plain], bool(numbers)
