"""Taught photos that the user wants to keep (`--photos`), in class folders."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from hashprompt.data.reading.images import SUFFIXES, file_digest
from hashprompt.errors import UserError
from hashprompt.photos.inputs.image_files import content_digest
from hashprompt.photos.sorting.journal import folder_names
from hashprompt.serve.http.uploads import Lesson, TaughtPhoto
from hashprompt.storage.files import (
    LinkError,
    Target,
    in_words,
    inside,
    listed,
    place_file,
    remove_ours,
)

DIGITS = 32  # of a photo's SHA-256, which are its name


def kept_paths(folder: Path, lesson: Lesson, names: dict[str, str]) -> dict[str, str]:
    """Where each photo of a lesson is to be kept: by its class, and named by its content.

    Args:
        folder: of all class folders.
        names: which class each label means.
    """
    paths = {}
    for photo, label in lesson.photos:
        source = inside(lesson.folder, *photo.path.split("/"))
        name = file_digest(source).hex()[:DIGITS] + _suffix(photo)
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


# What edits of the classes and undo mean for them. -----------------------------------------------


def kept_photos(folder: Path, name: str) -> list[Target]:
    """Photos of a class that were kept; files that somebody else put beside them are left out.

    One of ours is known by its name, which its content gives it.
    """
    with suppress(LinkError, UserError):  # it is a link, or not there
        place = inside(folder.resolve(), class_folder(name))
        files = [entry.name for entry in listed(place) if entry.is_file(follow_symlinks=False)]
        return [inside(place, file) for file in files if _is_ours(place / file)]
    return []


def moved_by_edit(folder: Path, classes: Iterable[str], into: str) -> dict[str, str]:
    """Where kept photos of classes that get one name go: from path to path."""
    home = inside(folder.resolve(), class_folder(into))
    photos = [photo for name in classes for photo in kept_photos(folder, name)]
    return {str(photo): str(home / photo.name) for photo in photos if photo.parent != home}


def moved_by_undo(
    folder: Path, before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, str]:
    """Where kept photos go whose class has another name in the version that answers now.

    Args:
        before, after: the class of each photo, by its SHA-256, in the version left and in this one.
    """
    moved: dict[str, str] = {}
    for name in {name for digest, name in before.items() if after.get(digest, name) != name}:
        files = {photo.stem: photo for photo in kept_photos(folder, name)}
        for digest, new in after.items():
            if before.get(digest) == name != new and digest[:DIGITS] in files:
                photo = files[digest[:DIGITS]]
                moved[str(photo)] = str(inside(folder.resolve(), class_folder(new)) / photo.name)
    return moved


def move_photos(moved: Mapping[str, str]) -> None:
    """Put photos elsewhere, all of them before one is removed.

    Raises:
        UserError: if they cannot be put there.
    """
    for old, new in moved.items():
        target = _checked(Path(new))
        with in_words(target):
            if not _is_ours(target):  # else the same photo is there
                place_file(Path(old), target)
    take_away(moved)


def forget_photos(folder: Path, name: str) -> str:
    """Remove the kept photos of a class; in words, what went and what stays."""
    photos = kept_photos(folder, name)
    take_away(map(str, photos))
    left = len(kept_photos(folder, name))
    told = f"Photos of it that were kept, and are removed: {len(photos) - left}."
    told += f" {left} could not be removed: delete them in the folder of --photos." if left else ""
    return told if photos else "No photo of it was kept."


def _is_ours(photo: Path) -> bool:
    return len(photo.stem) == DIGITS and content_digest(photo)[:DIGITS] == photo.stem


def _checked(path: Path) -> Target:
    """Of a path in the folder that was given: no link may lead out of it meanwhile."""
    return inside(path.parent.parent, path.parent.name, path.name)


def _suffix(photo: TaughtPhoto) -> str:
    """Of what the client called it, if that is one of ours; what it is, its content tells."""
    suffix = Path(photo.name).suffix.lower()
    return suffix if suffix in SUFFIXES else SUFFIXES[0]
