"""Taught photos that the user wants to keep (`--photos`), named by their content.

Only the classifier knows their classes (`photos.json`), so renames, merges and undo move nothing.
"""

import csv
import io
import logging
import os
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from hashprompt.data.reading.images import SUFFIXES, file_digest
from hashprompt.errors import UserError
from hashprompt.photos.inputs.image_files import content_digest
from hashprompt.photos.store.store import Store
from hashprompt.serve.http.monitoring import log
from hashprompt.serve.http.uploads import Lesson
from hashprompt.storage.files import (
    Target,
    explain_write_errors,
    inside,
    listed,
    place_file,
    reason_of,
    remove_file,
    remove_left_overs,
    write_atomically,
)

LIST = "taught-photos.csv"


class PhotoArchive:
    """The folder of stored photos.

    Args:
        folder: None if photos are not stored.
        store: of the classifier that learns them.
    """

    def __init__(self, folder: Path | None, store: Store) -> None:
        self._folder, self._store = folder, store
        self._listing = threading.Lock()

    def paths(self, lesson: Lesson) -> dict[str, str]:
        """Where to keep each photo of a lesson."""
        if self._folder is None:
            return {}
        paths = {}
        for photo in lesson.photos:
            suffix = Path(photo.name).suffix.lower()
            digest = file_digest(inside(lesson.folder, *photo.path.split("/"))).hex()
            name = digest + (suffix if suffix in SUFFIXES else SUFFIXES[0])
            paths[photo.path] = str(inside(self._folder.resolve(), name))
        return paths

    def delete(self, name: str) -> int:
        """Delete the photos of a class, before it is forgotten; returns their number.

        Raises:
            UserError: if one cannot be deleted.
        """
        photos = self._stored(_photos_of(self._store, name)) if self._folder else []
        try:
            for photo in photos:
                remove_file(photo)
        except OSError as error:
            raise UserError(
                f"The stored photos of `{name}` cannot be deleted ({reason_of(error)}), so it is "
                "not forgotten. Make their folder writable and repeat this."
            ) from error
        return len(photos)

    def remove_unlearned(self, placed: Collection[str], version: int | None) -> None:
        """Remove photos again, except those that were learned.

        Args:
            placed: their paths.
            version: the one that has learned them; None if the session failed.
        """
        with suppress(UserError):  # the version is damaged
            learned = self._store.photos(self._store.version(version)) if version else ()
            take_away([path for path in placed if Path(path).stem not in learned])

    def write_list(self) -> None:
        """List the stored photos with their present classes, in a form that `learn` reads."""
        if self._folder is None or self._store.is_new:
            return
        try:
            with self._listing:
                version = self._store.version()
                classes, records = version.info["classes"], self._store.photos(version)
                text = io.StringIO()
                table = csv.writer(text)
                table.writerow(("path", "label"))
                for photo in self._stored(records):
                    table.writerow((photo.name, classes[records[photo.stem].label]))
                write_atomically(inside(self._folder, LIST), text.getvalue().encode())
        except UserError as error:  # the next change writes it again
            log("stored photos not listed", logging.WARNING, error=str(error))

    def _stored(self, digests: Collection[str]) -> list[Target]:
        """Which of some photos are stored."""
        entries = listed(self._folder) if self._folder and self._folder.is_dir() else []
        files = [Path(entry) for entry in entries if entry.is_file(follow_symlinks=False)]
        return [inside(file.parent, file.name) for file in files if file.stem in digests]


def new_ones(kept: Mapping[str, str]) -> tuple[str, ...]:
    """Paths where no photo is yet."""
    return tuple(path for path in dict.fromkeys(kept.values()) if not os.path.lexists(path))


def place_photos(folder: Target, kept: Mapping[str, str]) -> None:
    """Put photos, which lie below `folder`, where they are to be kept."""
    _remove_left_overs(kept.values())
    for photo, path in kept.items():
        target = _checked(path)
        if content_digest(target) != target.stem:  # else the same photo is there
            with explain_write_errors(target):
                place_file(inside(folder, *photo.split("/")), target)


def take_away(placed: Collection[str]) -> None:
    """Remove photos again."""
    _remove_left_overs(placed)
    for path in placed:
        with suppress(UserError, OSError):  # a link took its place, say
            remove_file(_checked(path))


def _remove_left_overs(paths: Collection[str]) -> None:
    """Remove what a kill left while photos were placed at these paths."""
    for folder in {Path(path).parent for path in paths}:
        remove_left_overs(folder, {Path(path).name for path in paths})


def _checked(path: str) -> Target:
    """A path where no link has taken the place of the photo."""
    return inside(Path(path).parent, Path(path).name)


def _photos_of(store: Store, name: str) -> set[str]:
    """SHA-256 of the photos of a class, with those of sessions that were undone.

    A class of another version is the same if it has this name or one of its photos.
    """
    current = _by_class(store, store.current())
    found = set(current.pop(name))
    for number in store.numbers():
        with suppress(UserError):  # a damaged version
            for other, photos in _by_class(store, number).items():
                if other == name or not photos.isdisjoint(found):
                    found |= photos
    return found.difference(*current.values())


def _by_class(store: Store, number: int) -> dict[str, set[str]]:
    version = store.version(number)
    photos: dict[str, set[str]] = {name: set() for name in version.info["classes"]}
    for digest, record in store.photos(version).items():
        photos[version.info["classes"][record.label]].add(digest)
    return photos
