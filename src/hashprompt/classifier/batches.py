"""What a person gives to `learn` becomes labelled photos, each with its part and its digest."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hashprompt.classifier.given import as_tensor, content_digest, image_file, local_path
from hashprompt.classifier.names import SHOWN, SimilarNames, settle_names
from hashprompt.data.reading.entries import Entry, divided
from hashprompt.data.reading.folders import Tree, images_in, subfolders
from hashprompt.data.reading.image_stores import Photos
from hashprompt.data.reading.lists import listed_entries
from hashprompt.data.reading.opening import open_photos
from hashprompt.data.reading.options import ReadOptions
from hashprompt.data.reading.threads import in_threads
from hashprompt.errors import UserError
from hashprompt.progress import reading_bar

__all__ = ["Batch", "SimilarNames", "gather"]
EXPECTED = (
    "Expected a folder of class folders, a .csv file, a Dataset of (image, label), or images and "
    "labels"
)


@dataclass(frozen=True)
class Batch:
    """The photos of one call of `learn`, N in all.

    Args:
        name: short, for the history.
        photos: N images.
        labels: class name of each.
        parts: whether it is learned or held out for testing.
        digests: SHA-256 of each file's bytes (arrays: of shape and pixels), in hex.
        paths: absolute; empty for images that came from memory.
        integer_labels: whether the labels were given as whole numbers.
        notes: what the user should be told.
    """

    name: str
    photos: Photos
    labels: tuple[str, ...]
    parts: tuple[Literal["train", "test"], ...]
    digests: tuple[str, ...]
    paths: tuple[str, ...]
    integer_labels: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Photo(Entry):
    """An image with its class name settled and its content known."""

    digest: str = ""  # empty if it cannot be read

    @property
    def called(self) -> str:
        return self.name if isinstance(self.file, Path) else str(self.file)


@dataclass(frozen=True)
class Given:
    """Labelled images in one of the forms that `learn` takes, not yet read."""

    name: str
    entries: list[Entry]
    whole_numbers: bool = False
    notes: Sequence[str] = ()


def gather(
    photos: Any,
    labels: Any = None,
    *,
    test: Any = None,
    known: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    seen: Mapping[str, Sequence[Any]] | None = None,
    unreadable: Literal["stop", "skip"] = "stop",
    memory_gb: float = 4.0,
    short_side: int | None = None,
) -> Batch:
    """Collect the photos of one call of `learn`.

    Args:
        photos: a folder of class folders (perhaps inside train/ and test/), a .csv file, a Dataset
            of (image, label), `(images, labels)`, or images alone with `labels`: an array
            (N, H, W, 3), (N, H, W) or (N, 3, H, W) uint8, or a list of paths, Pillow images and
            arrays.
        labels: class of each image, in words or whole numbers.
        test: photos to test with, in any of these forms; else a fifth of each class is held out.
        known: class names so far, by class id.
        rename: given class name -> name to learn it under.
        seen: photos learned before: digest -> class id, part, path.
        unreadable: `stop` at files that cannot be read, or `skip` them.
        memory_gb: photos are kept decoded up to so many GB.
        short_side: reduce larger photos to this when they are read.

    Raises:
        SimilarNames: if it is not clear whether two names mean one class.
        UserError: for whatever else cannot be learned.
    """
    seen = seen or {}
    given = _given(photos, labels)
    entries, notes = given.entries, list(given.notes)
    if test is not None:
        tests = _given(test)
        notes += tests.notes
        entries = [replace(entry, part=entry.part or "train") for entry in entries]
        entries += [replace(entry, part="test") for entry in tests.entries if entry.part != "train"]
    names = settle_names({entry.label for entry in entries}, known, rename or {})
    found, said = _sort_out(_with_digests(entries, names), known, seen)
    notes += said
    reading = ReadOptions(short_side, memory_gb, unreadable)
    images, kept, told = open_photos([photo.file for photo in found], reading, reading_bar)
    notes += told if images.on_disk else told[1:]  # that all fits into memory is no news
    found, told = _divided([found[row] for row in kept])
    notes += told
    kept, said = _check_classes(found, known, seen)
    notes += said
    if lost := sorted(set(names.values()).difference(known, (photo.label for photo in found))):
        notes.append(f"No photo is left of {len(lost)} classes, not learned: {_listed(lost)}.")
    found = [found[row] for row in kept]
    if not any(photo.part == "train" for photo in found):
        raise UserError(" ".join([f"Nothing new to learn from {given.name}.", *notes]))
    return Batch(
        name=given.name,
        photos=images.select(torch.tensor(kept, dtype=torch.int64)),
        labels=tuple(photo.label for photo in found),
        parts=tuple("test" if photo.part == "test" else "train" for photo in found),
        digests=tuple(photo.digest for photo in found),
        paths=tuple(str(p.file.absolute()) if isinstance(p.file, Path) else "" for p in found),
        integer_labels=given.whole_numbers and all(name.isdigit() for name in names.values()),
        notes=tuple(notes),
    )


# The forms in which photos are given. --------------------------------------------------------


def _given(photos: Any, labels: Any = None) -> Given:
    if labels is None and isinstance(photos, tuple) and len(photos) == 2:
        photos, labels = photos
    photos, labels = _unwrapped(photos), _unwrapped(labels)
    if isinstance(photos, str | Path):
        if labels is not None:
            raise UserError(f"{photos} comes with labels, but a path brings its own. {EXPECTED}.")
        path = local_path(photos)
        return _from_list(path) if path.suffix.lower() == ".csv" else _from_folder(path)
    if labels is not None:
        return _from_images(photos, labels)
    if isinstance(photos, list | tuple | np.ndarray | Tensor):
        raise UserError(f"The images come without labels. {EXPECTED}.")
    if hasattr(photos, "__getitem__") and hasattr(photos, "__len__"):
        return _from_dataset(photos)
    raise UserError(f"Cannot learn from a {type(photos).__name__}. {EXPECTED}.")


def _unwrapped(column: Any) -> Any:
    """A column of a pandas table as an array; anything else as it is."""
    return column.to_numpy() if hasattr(column, "to_numpy") else column


def _from_folder(folder: Path) -> Given:
    loose = images_in(folder, []) if folder.is_dir() else []
    if loose and not subfolders(folder):
        raise UserError(
            f"{folder} holds images but no class folders. Put the images of each class into a "
            "folder with its name, and give the folder above."
        )
    tree = Tree(folder, "classes")
    tree.walk()
    groups = sorted({entry.group for entry in tree.entries if entry.group})
    if groups:
        shown = _listed(groups)
        raise UserError(
            f"{folder} holds {len(groups)} folders of class folders ({shown}). Learn one after the "
            f"other, first {folder / groups[0]}."
        )
    notes = tree.notes()
    if loose:
        shown = _listed([path.name for path in loose])
        notes.append(f"{len(loose)} images lie beside the class folders and are ignored ({shown}).")
    return Given(folder.resolve().name, tree.entries, notes=notes)


def _from_list(file: Path) -> Given:
    if not file.is_file():
        raise UserError(f"{file} does not exist. {EXPECTED}.")
    entries, groups = listed_entries(file)
    if groups:
        names = _listed(sorted({entry.group for entry in entries}))
        raise UserError(
            f"{file} has a column `{groups[:-1]}` ({names}). Learn its parts one after the other: "
            "write a .csv file for each, without that column."
        )
    return Given(file.stem, entries)


def _from_images(images: Any, labels: Any) -> Given:
    if isinstance(images, np.ndarray) and images.dtype.kind in "OU":
        images = images.tolist()
    if isinstance(images, np.ndarray | Tensor):
        if images.ndim not in (3, 4):
            raise UserError(
                f"The images have the shape {tuple(images.shape)}; expected (N, H, W, 3), "
                "(N, H, W) or (N, 3, H, W)."
            )
        images = as_tensor(images, "the array of images")
    elif not isinstance(images, list | tuple):
        raise UserError(
            f"The images are a {type(images).__name__}; expected an array or a list of paths, "
            "Pillow images or arrays."
        )
    names, whole = _label_names(labels)
    if len(images) != len(names):
        raise UserError(f"{len(images)} images, but {len(names)} labels. Give one for each image.")
    if not len(images):
        raise UserError(f"There are no images. {EXPECTED}.")
    pairs = enumerate(zip(images, names, strict=True))
    entries = [_entry(image, i, name) for i, (image, name) in pairs]
    return Given(f"{len(entries)} images", entries, whole)


def _from_dataset(dataset: Any) -> Given:
    kind = type(dataset).__name__
    images, labels = [], []
    for index in range(len(dataset)):
        try:
            item = dataset[index]
        except Exception as error:  # the code is the user's own
            raise UserError(f"Item {index} of {kind} cannot be read: {error!r}.") from error
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise UserError(
                f"Item {index} of {kind} is a {type(item).__name__}. Expected a pair of an image "
                "and its label."
            )
        images.append(item[0])
        labels.append(item[1])
    given = _from_images(images, labels)
    names = _class_names(dataset)
    if not given.whole_numbers or not names:
        return replace(given, name=kind)
    beyond = [entry.label for entry in given.entries if int(entry.label) >= len(names)]
    if beyond:
        raise UserError(f"{kind} names {len(names)} classes, but holds the label {beyond[0]}.")
    entries = [replace(entry, label=names[int(entry.label)]) for entry in given.entries]
    return Given(kind, entries)


def _class_names(dataset: Any) -> list[str]:
    """The names that torchvision's data sets have; a `Subset` passes them on."""
    names = getattr(dataset, "classes", None)
    if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        return list(names)
    inner = getattr(dataset, "dataset", None)
    return [] if inner is None else _class_names(inner)


def _entry(image: Any, index: int, label: str) -> Entry:
    file = image_file(image, f"image {index}")
    return Entry(file, Path(file).as_posix() if isinstance(file, Path) else str(file), label)


def _label_names(labels: Any) -> tuple[list[str], bool]:
    """Labels as names, and whether they are whole numbers."""
    if isinstance(labels, np.ndarray | Tensor):
        if labels.ndim != 1:
            raise UserError(f"The labels have the shape {tuple(labels.shape)}; expected (N,).")
        labels = labels.tolist()
    if not isinstance(labels, list | tuple):
        raise UserError(
            f"The labels are a {type(labels).__name__}; expected a list or an array of words or "
            "whole numbers."
        )
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


# Photos that are there twice, and what is left. ------------------------------------------------


def _with_digests(entries: Sequence[Entry], names: Mapping[str, str]) -> list[Photo]:
    digests = in_threads(content_digest, [entry.file for entry in entries])
    return [
        Photo(entry.file, entry.name, names[entry.label], entry.part, digest=digest)
        for entry, digest in zip(entries, digests, strict=True)
    ]


def _sort_out(
    photos: Sequence[Photo], known: Sequence[str], seen: Mapping[str, Sequence[Any]]
) -> tuple[list[Photo], list[str]]:
    """The photos that are new and of one clear label; and what to say of the others."""
    copies: dict[str, list[Photo]] = defaultdict(list)
    for number, photo in enumerate(photos):
        copies[photo.digest or f"unreadable {number}"].append(photo)
    kept: list[Photo] = []
    relabelled: list[str] = []
    unclear: list[str] = []
    counts: Counter[str] = Counter()
    for digest, same in copies.items():
        labels = {photo.label: photo.called for photo in same}
        if digest in seen:
            first = known[seen[digest][0]]
            counts["before"] += len(same)
            changed = labels.keys() - {first}
            relabelled += [f"{labels[now]} ({now}, was {first})" for now in sorted(changed)]
        elif len(labels) > 1:
            counts["unclear"] += len(same)
            unclear.append(" = ".join(f"{called} ({label})" for label, called in labels.items()))
        else:
            learned = [photo for photo in same if photo.part != "test"]
            tested = len(same) - len(learned)
            kept += (learned or same)[:1]
            counts["again"] += len(learned or same) - 1
            counts["overlap"] += tested if learned else 0
    told = (
        (counts["before"], f"of {len(photos)} photos were learned before and are left out."),
        (
            len(relabelled),
            "photos that were learned before have another label now; the label of then stays: "
            f"{_listed(relabelled)}.",
        ),
        (
            counts["unclear"],
            "photos are left out, because the same photo has several labels and nobody can tell "
            f"which is right: {_listed(unclear)}.",
        ),
        (counts["again"], "photos are copies of others in their class and count once."),
        (counts["overlap"], "test photos are training photos too and are left out of the test."),
    )
    return kept, [f"{count} {note}" for count, note in told if count]


def _divided(photos: Sequence[Photo]) -> tuple[list[Photo], tuple[str, ...]]:
    """Photos with their parts; what has no file name is drawn by its digest."""
    named = [p if isinstance(p.file, Path) else replace(p, name=p.digest) for p in photos]
    entries, _, told = divided(named, "given")
    parted = zip(photos, entries, strict=True)
    return [replace(photo, part=entry.part) for photo, entry in parted], told


def _check_classes(
    photos: Sequence[Photo], known: Sequence[str], seen: Mapping[str, Sequence[Any]]
) -> tuple[list[int], list[str]]:
    """Which photos belong to classes that are learned; and what to say of classes."""
    trained = {photo.label for photo in photos if photo.part == "train"}
    tested = {photo.label for photo in photos if photo.part == "test"}
    learned = trained.union(known)
    kept = [row for row, photo in enumerate(photos) if photo.label in learned]
    notes = []
    if strangers := sorted(tested - learned):
        notes.append(
            f"{len(photos) - len(kept)} test photos are left out, because their classes have no "
            f"training photos: {_listed(strangers)}."
        )
    tested.update(known[row[0]] for row in seen.values() if row[1] == "test")
    if untested := sorted(trained - tested):
        notes.append(
            f"No test photos for {len(untested)} classes: they are learned, but nobody can tell "
            f"how well: {_listed(untested)}."
        )
    return kept, notes


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more
