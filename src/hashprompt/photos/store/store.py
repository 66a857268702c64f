"""Versions of a classifier on disk: each complete or not there, one of them the current one.

    birds/classifier.json      which version is the current one; written last by every commit
    birds/versions/0001/       version.json, tensors.safetensors, photos.json
    birds/learning/            only during a session, or after one was interrupted

A version counts once `classifier.json` names it: a folder in `versions/` with a number above its
`newest` is what a killed commit left, and the next commit removes it.
"""

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashprompt.engine.checkpoint import FILES as CHECKPOINTS
from hashprompt.errors import UserError
from hashprompt.photos.onnx.description import MODEL
from hashprompt.photos.store.schemas import Header, Holder, PhotoRecord, PhotoRows, VersionInfo
from hashprompt.storage.files import (
    Target,
    copy_file,
    explain_write_errors,
    inside,
    new_folder,
    read_file,
    reason_of,
    remove_file,
    remove_left_overs,
    remove_ours,
    rename,
    sync_folder,
    temporary_name,
    write_atomically,
)
from hashprompt.storage.json_files import (
    OTHER_CONTENT,
    DamagedError,
    check_schema,
    parse_json,
    read_json,
    write_json,
)
from hashprompt.storage.lock import InUseError, locked
from hashprompt.storage.tensor_files import bytes_to_tensors, tensor_bytes

if TYPE_CHECKING:
    from torch import Tensor

HEADER = "classifier.json"
INFO, TENSORS, PHOTOS = VERSION_FILES = ("version.json", "tensors.safetensors", "photos.json")
HOLDER = ".holder.json"
RECORD, FIT = "session.json", "fit"  # in `learning/`: the session, the checkpoints of its fit
OURS = {"learning", "versions"}  # what a folder may hold before its first version


@dataclass(frozen=True)
class Version:
    """One state of the classifier; `info` is its `version.json`."""

    number: int
    folder: Path
    info: dict[str, Any]


class Store:
    """The folder of one classifier. Opening and reading write nothing."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            UserError: if the path is a file, or a folder with something else in it.
        """
        self.folder = Path(folder)
        self._holder: int | None = None  # the thread that holds the lock
        self._refuse_what_is_not_ours()

    @property
    def learning(self) -> Target:
        return inside(self.folder, "learning")

    @property
    def _versions(self) -> Target:
        return inside(self.folder, "versions")

    @property
    def _header(self) -> Target:
        return inside(self.folder, HEADER)

    @property
    def is_new(self) -> bool:
        """No version is finished yet."""
        return not self._header.exists()

    # Reading. ------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """The content of `classifier.json`."""
        if self.is_new:
            text = f"{self.folder} holds no classifier yet. "
            if self.learning.is_dir():
                text += f"Its first session is unfinished: hashprompt learn {self.folder} --resume"
            else:
                text += f"Make one: hashprompt learn {self.folder} PHOTOS"
            raise UserError(text)
        return read_json(self._header, Header, "Put back a copy of this file.")

    def current(self) -> int:
        """The number of the version that answers."""
        return int(self.header()["current"])

    def numbers(self) -> list[int]:
        """All versions kept, damaged ones too."""
        newest = self.header()["newest"]
        return [number for number in _numbered(self._versions) if number <= newest]

    def version(self, number: int | None = None) -> Version:
        """One version, by default the current one."""
        current = self.current()
        number = current if number is None else number
        if number != current and number not in self.numbers():
            there = ", ".join(map(str, self.numbers()))
            raise UserError(f"{self.folder} has no version {number}. There are: {there}.")
        with self._way_back(number):
            return self._read(number)

    def tensors(self, version: Version) -> "dict[str, Tensor]":
        """What the version has learned, checked against its checksum."""
        return bytes_to_tensors(version.folder / TENSORS, self._content(version, TENSORS))

    def photos(self, version: Version | None) -> dict[str, PhotoRecord]:
        """All photos so far by SHA-256, checked; none without a version."""
        if version is None:
            return {}
        path, classes = version.folder / PHOTOS, len(version.info["classes"])
        with self._way_back(version.number):
            try:
                rows = parse_json(_checked(version, PHOTOS))
            except ValueError as error:
                raise DamagedError(path, str(error)) from error
            check_schema(path, rows, PhotoRows)
            found = {digest: PhotoRecord(*row) for digest, row in rows.items()}
            if any(max(row.label, row.predicted or 0) >= classes for row in found.values()):
                raise DamagedError(path, "a photo has a class that is not there")
        return found

    def check(self, version: Version) -> None:
        """Raise an error unless its files hold what was written."""
        for name in (TENSORS, PHOTOS):
            self._content(version, name)

    def size(self, version: Version) -> int:
        """Bytes on disk; a link counts as itself."""
        return sum(path.lstat().st_size for path in version.folder.iterdir())

    # Writing. ------------------------------------------------------------------------------

    @contextmanager
    def lock(self, doing: str) -> Iterator[None]:
        """Be the only writer; within it, the same thread may lock again.

        Args:
            doing: shown to whoever comes second, e.g. `learning photos/2026-05`.

        Raises:
            UserError: at once, if another holds it.
        """
        if self._holder == threading.get_ident():
            yield
            return
        note = inside(self.folder, HOLDER)
        in_use = f"{self.folder} is in use"
        with locked(self.folder, lambda: f"{in_use}: {_holder(note)}. Try again later."):
            try:
                with suppress(UserError):  # the disk is full; the note is only for others
                    write_json(note, {"pid": os.getpid(), "doing": doing, "since": _now()})
                self._holder = threading.get_ident()
                yield
            finally:
                self._holder = None
                with suppress(OSError):
                    remove_file(note)

    def is_free(self) -> bool:
        """Whether nobody writes to the classifier at the moment."""
        try:
            with self.lock("looking for others"):
                return True
        except InUseError:
            return False

    def commit(
        self,
        header: Mapping[str, Any],
        info: Mapping[str, Any],
        tensors: "Mapping[str, Tensor]",
        photos: Mapping[str, PhotoRecord],
    ) -> Version:
        """Keep a new version and make it the current one; a kill leaves the old or the new one.

        Sets number, created and files of `info`, and current, newest and created of `header`;
        the parent, unless `info` names one, is the current version.
        """
        with self.lock("saving a version"):
            old = {} if self.is_new else self.header()
            self._clean()
            number = old.get("newest", 0) + 1
            parent = info["parent"] if "parent" in info else old.get("current")
            info = {**info, "number": number, "parent": parent, "created": _now()}
            content = tensor_bytes(tensors)
            header = {**header, "current": number, "newest": number}
            header["created"] = old.get("created") or header.get("created") or info["created"]
            folder = self._place(number)
            place = temporary_name(folder)
            try:
                info = _write_version(place, info, content, photos)
                with explain_write_errors(folder):
                    rename(place, folder)
                sync_folder(self._versions)
                write_json(self._header, header)
                sync_folder(self.folder)
            except UserError:
                self._clean()
                raise
            return Version(number, folder, info)

    def go_to(self, number: int | None = None) -> Version:
        """Make the parent of the current version, or any kept version, the current one."""
        with self.lock("undoing"):
            version = self.version(self._parent() if number is None else number)
            self.check(version)
            write_json(self._header, {**self.header(), "current": version.number})
            sync_folder(self.folder)
            return version

    def export(self, target: Path, number: int | None, extra_files: Mapping[str, Path]) -> Path:
        """Copy one version into a new folder, complete or not at all.

        Args:
            target: must not exist, or be empty.
            number: the current version if None.
            extra_files: copied into it under these names, e.g. the weights of the backbone.
        """
        version = self.version(number)
        header = {**self.header(), "current": version.number, "newest": version.number}
        # Where the photos are is private.
        photos = {key: row._replace(path="") for key, row in self.photos(version).items()}
        info = {**version.info, "notes": []}  # which name photos too
        tensors = self._content(version, TENSORS)
        with new_folder(target) as place:
            folder = inside(place, "versions", version.folder.name)
            _write_version(folder, info, tensors, photos)
            for name, path in extra_files.items():
                copy_file(path, inside(place, name))
            write_json(inside(place, HEADER), header)
        return target

    # Helpers. ------------------------------------------------------------------------------

    def _refuse_what_is_not_ours(self) -> None:
        if self.folder.is_file():
            raise UserError(f"{self.folder} is a file. A classifier is a folder: give its path.")
        if not self.folder.is_dir() or not self.is_new:
            return
        try:
            # Hidden files do not count: .lock, .git, .DS_Store.
            names = {p.name for p in self.folder.iterdir() if not p.name.startswith(".")}
            finished = _numbered(self._versions)
        except OSError as error:
            raise UserError(f"Cannot read {self.folder}: {reason_of(error)}.") from error
        if MODEL in names:
            raise UserError(
                f"{self.folder} is a classifier that was exported to ONNX. It can classify "
                f"(hashprompt predict {self.folder} IMAGES), but has no versions."
            )
        if names - OURS:
            raise UserError(
                f"{self.folder} is not a classifier: it holds {min(names - OURS)!r} and no "
                f"{HEADER}. Give a classifier, an empty folder, or a new name."
            )
        # A kill just before the end of the first commit leaves version 1 beside learning/.
        if finished and not (finished == [1] and self.learning.is_dir()):
            raise UserError(
                f"{self.folder / HEADER} is missing, but there are versions. Put back a copy."
            )

    def _place(self, number: int) -> Target:
        return inside(self.folder, "versions", f"{number:04d}")

    def _read(self, number: int) -> Version:
        path = inside(self._place(number), INFO)
        try:
            info = read_json(path, VersionInfo, "")
        except FileNotFoundError as error:
            raise DamagedError(path, "it is missing") from error
        if info["number"] != number:
            raise DamagedError(path, f"it is of version {info['number']}")
        return Version(number, self._place(number), info)

    def _content(self, version: Version, name: str) -> bytes:
        with self._way_back(version.number):
            return _checked(version, name)

    @contextmanager
    def _way_back(self, number: int) -> Iterator[None]:
        """If a version is damaged, name the last sound one before it."""
        try:
            yield
        except DamagedError as error:
            problem, current = f"{error.path} is damaged ({error.reason}).", self.current()
            advice = "No earlier version is sound. Put back a copy, or learn into a new folder."
            if number != current:
                advice = f"Version {current}, the current one, does not need it."
            elif sound := [n for n in self.numbers() if n < number and self._is_sound(n)]:
                advice = (
                    f"Version {sound[-1]} is the last sound one before it; go back to it: "
                    f"hashprompt undo {self.folder} --to {sound[-1]}"
                )
            raise UserError(f"{problem} {advice}") from error

    def _is_sound(self, number: int) -> bool:
        try:
            version = self._read(number)
            return bool(_checked(version, TENSORS) and _checked(version, PHOTOS))
        except UserError:
            return False

    def _parent(self) -> int:
        current = self.version()
        parent = current.info["parent"]
        if parent is None:
            raise UserError(f"Version {current.number} of {self.folder} is its first.")
        if parent not in self.numbers():
            raise UserError(f"Version {parent}, the one before, is not in {self.folder}.")
        return int(parent)

    def drop_learning(self) -> None:
        """Remove the unfinished session, if there is one."""
        folders = ("checkpoints", f"{FIT}/checkpoints")
        saved = [f"{folder}/{name}" for folder in folders for name in CHECKPOINTS]
        remove_ours(self.learning, (RECORD, *saved))

    def _clean(self) -> None:
        """Remove what a killed or failed commit left."""
        newest = 0 if self.is_new else self.header()["newest"]
        remove_left_overs(self._versions, (self._place(newest + 1).name,))
        for number in _numbered(self._versions):
            if number > newest:
                remove_ours(self._place(number), VERSION_FILES)


def _checked(version: Version, name: str) -> bytes:
    path = inside(version.folder, name)
    try:
        content = read_file(path)
    except FileNotFoundError as error:
        raise DamagedError(path, "it is missing") from error
    if hashlib.sha256(content).hexdigest() != version.info["files"][name]:
        raise DamagedError(path, OTHER_CONTENT)
    return content


def _write_version(
    place: Target, info: Mapping[str, Any], tensors: bytes, photos: Mapping[str, PhotoRecord]
) -> dict[str, Any]:
    """Write the three files and return the content of `version.json`."""
    contents = {TENSORS: tensors, PHOTOS: json.dumps(photos, separators=(",", ":")).encode()}
    for name, content in contents.items():
        write_atomically(inside(place, name), content)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    written = write_json(inside(place, INFO), {**info, "files": sums})
    sync_folder(place)
    return written


def _numbered(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(
        int(path.name)
        for path in folder.iterdir()
        if re.fullmatch("[0-9]{4,9}", path.name) and path.is_dir() and not path.is_symlink()
    )


def _holder(note: Target) -> str:
    """Who holds the lock."""
    try:
        holder = read_json(note, Holder, "")
        return f"process {holder['pid']} is {holder['doing']} since {holder['since']}"
    except (OSError, UserError):
        return "another process is writing to it"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
