"""Taught photos that the user wants to keep (`--photos`), in class folders."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from hashprompt.classifier.sort_journal import folder_names
from hashprompt.data.reading.images import SUFFIXES, file_digest
from hashprompt.serve.uploads import Lesson, TaughtPhoto
from hashprompt.storage.files import (
    LinkError,
    Target,
    in_words,
    inside,
    place_file,
    remove_ours,
)


def kept_paths(folder: Path, lesson: Lesson, names: dict[str, str]) -> dict[str, str]:
    """Where each photo of a lesson is to be kept: by its class, and named by its content.

    Args:
        folder: of all class folders.
        names: which class each label means.
    """
    paths = {}
    for photo, label in lesson.photos:
        source = inside(lesson.folder, *photo.path.split("/"))
        name = file_digest(source).hex()[:32] + _suffix(photo)
        paths[photo.path] = str(inside(folder.resolve(), class_folder(names[label]), name))
    return paths


def class_folder(name: str) -> str:
    """The name of a class, if file systems take it; else with a mark that no other class has.

    It follows from the name alone, so photos of a class lie together whatever else is known.
    """
    (folder,) = folder_names([name])
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return folder if folder == name else f"{folder}-{mark}"


def new_ones(kept: Mapping[str, str]) -> tuple[str, ...]:
    """Those that are not there yet."""
    return tuple(path for path in dict.fromkeys(kept.values()) if not os.path.lexists(path))


def place_photos(folder: Target, kept: Mapping[str, str]) -> None:
    """Put photos, which lie below `folder`, where they are to be kept."""
    for photo, path in kept.items():
        target = _checked(Path(path))
        with in_words(target), suppress(FileExistsError):  # the same photo is there
            place_file(inside(folder, *photo.split("/")), target)


def take_away(placed: Iterable[str]) -> None:
    """Remove photos again, and class folders that are empty then."""
    paths = sorted(map(Path, placed))
    for parent, inner in groupby(paths, lambda path: path.parent):
        with suppress(LinkError):  # then they are no longer where they were put
            remove_ours(_checked(parent), [path.name for path in inner])


def _checked(path: Path) -> Target:
    """Of a path in the folder that was given: no link may lead out of it meanwhile."""
    return inside(path.parent.parent, path.parent.name, path.name)


def _suffix(photo: TaughtPhoto) -> str:
    """Of what the client called it, if that is one of ours; what it is, its content tells."""
    suffix = Path(photo.name).suffix.lower()
    return suffix if suffix in SUFFIXES else SUFFIXES[0]
