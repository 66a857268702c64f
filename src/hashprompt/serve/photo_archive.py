"""Taught photos that the user wants to keep (`--photos`), in class folders."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from hashprompt.data.reading.images import SUFFIXES, file_digest
from hashprompt.errors import UserError
from hashprompt.photos.inputs.image_files import content_digest
from hashprompt.photos.sorting.journal import folder_names
from hashprompt.serve.http.uploads import Lesson
from hashprompt.storage.files import (
    LinkError,
    Target,
    explain_write_errors,
    inside,
    listed,
    place_file,
    remove_ours,
)

DIGITS = 32  # of a photo's SHA-256, which are its name
Moves = dict[str, str | None]  # kept photos, from path to path; None: they are removed


def kept_paths(folder: Path, lesson: Lesson, names: dict[str, str]) -> dict[str, str]:
    """Where to keep each photo of a lesson: in the folder of its class, named by its content.

    Args:
        folder: of all class folders.
        names: class of each label.
    """
    paths = {}
    for photo in lesson.photos:
        suffix = Path(photo.name).suffix.lower()
        digest = file_digest(inside(lesson.folder, *photo.path.split("/"))).hex()[:DIGITS]
        name = digest + (suffix if suffix in SUFFIXES else SUFFIXES[0])
        paths[photo.path] = str(_class_folder(folder, names[photo.label]) / name)
    return paths


def _class_folder(folder: Path, name: str) -> Target:
    """Folder of a class: its name, or if file systems refuse that, a valid name with a mark.

    The mark follows from the class name, so photos of a class always lie together.
    """
    (valid,) = folder_names([name])
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return inside(folder.resolve(), valid if valid == name else f"{valid}-{mark}")


def new_ones(kept: Mapping[str, str]) -> tuple[str, ...]:
    """Paths where no photo is yet."""
    return tuple(path for path in dict.fromkeys(kept.values()) if not os.path.lexists(path))


def place_photos(folder: Target, kept: Mapping[str, str]) -> None:
    """Put photos, which lie below `folder`, where they are to be kept."""
    for photo, path in kept.items():
        _place(inside(folder, *photo.split("/")), path)


def take_away(placed: Iterable[str]) -> None:
    """Remove photos again, and class folders that are empty then."""
    for path in map(Path, placed):
        with suppress(LinkError):  # a folder became a link: the photo is elsewhere
            remove_ours(_checked(path.parent), [path.name])


# Edits of the classes, and undo. -----------------------------------------------------------------


def moved_by_edit(folder: Path, classes: Iterable[str], into: str | None) -> Moves:
    """New paths of kept photos of classes that become one class, or are forgotten."""
    home = _class_folder(folder, into) if into is not None else None
    photos = [photo for name in classes for photo in _kept_photos(folder, name)]
    return {str(p): str(home / p.name) if home else None for p in photos if p.parent != home}


def moved_by_undo(folder: Path, before: Mapping[str, str], after: Mapping[str, str]) -> Moves:
    """New paths of kept photos whose class has another name in the restored version.

    Args:
        before, after: class of each photo, by its SHA-256, in the version left and the restored.
    """
    new = {digest: after.get(digest, name) for digest, name in before.items()}
    by_name = {digest[:DIGITS]: _class_folder(folder, name) for digest, name in new.items()}
    changed = {name for digest, name in before.items() if new[digest] != name}
    photos = [photo for name in changed for photo in _kept_photos(folder, name)]
    homes = {photo: by_name.get(photo.stem, photo.parent) for photo in photos}
    return {str(p): str(home / p.name) for p, home in homes.items() if home != p.parent}


def move_photos(moved: Moves) -> None:
    """Move or remove photos; none is removed before all others have their new place.

    Raises:
        UserError: if one cannot be placed.
    """
    for old, new in moved.items():
        if new is not None:
            _place(Path(old), new)
    take_away(moved)


def _kept_photos(folder: Path, name: str) -> list[Target]:
    """Kept photos of a class, without other files in the same folder."""
    with suppress(LinkError, UserError):  # a link, or no such folder
        place = _class_folder(folder, name)
        files = [entry.name for entry in listed(place) if entry.is_file(follow_symlinks=False)]
        return [inside(place, file) for file in files if _is_ours(place / file)]
    return []


def _is_ours(photo: Path) -> bool:
    """Whether the name of a file follows from its content."""
    return len(photo.stem) == DIGITS and content_digest(photo)[:DIGITS] == photo.stem


def _place(source: Path, path: str) -> None:
    target = _checked(Path(path))
    if not _is_ours(target):  # else the same photo is there
        with explain_write_errors(target):
            place_file(source, target)


def _checked(path: Path) -> Target:
    """A path in the folder of photos, which no link may lead out of meanwhile."""
    return inside(path.parent.parent, path.parent.name, path.name)
