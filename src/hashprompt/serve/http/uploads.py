"""Photos that arrive: to ask about, which stay in memory, or to teach, which go to the disk."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from hashprompt.data.fetching.archives import BROKEN, Refused, zip_files
from hashprompt.data.reading.images import looks_like_image
from hashprompt.errors import shortened
from hashprompt.serve.http.forms import WRONG_FORM, FormReader
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.settings import Limits
from hashprompt.storage.files import (
    Target,
    create_file,
    inside,
    make_private_folder,
    open_file,
    reason_of,
    remove_file,
    write_atomically,
)

PHOTOS, ZIP = "photos", "class-folders.zip"
LONGEST_LABEL = 200
NO_CLASS = (
    "It is not clear which class the photos are of. Give a `label`, or files named "
    "`class/photo.jpg`, or one .zip file of class folders."
)


# To ask. -------------------------------------------------------------------------------------


class MemoryBudget:
    """Bytes of all questions that are being received or answered."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, count: int) -> None:
        if count > self.left:
            raise Refusal(503, "Too many photos are being asked about. Try again soon.", 2)
        self.left -= count

    def give_back(self, count: int) -> None:
        self.left += count


@dataclass
class AskedFile:
    """A photo to ask about."""

    name: str
    content: bytearray = field(default_factory=bytearray)


class Question:
    """Photos that a form brings, in memory; `close` it after the answer."""

    def __init__(self, limits: Limits, budget: MemoryBudget) -> None:
        self.files: list[AskedFile] = []
        self._limits, self._budget, self._taken = limits, budget, 0

    @classmethod
    @contextmanager
    def received(cls, limits: Limits, budget: MemoryBudget) -> "Iterator[Question]":
        question = cls(limits, budget)
        try:
            yield question
        finally:
            budget.give_back(question._taken)

    async def read(self, request: Request) -> None:
        await FormReader(self.begin).read(request)
        if not self.files:
            raise Refusal(400, f"No photo was sent. {WRONG_FORM}")

    def begin(self, name: str, kind: str) -> "Question":
        if len(self.files) >= self._limits.asked_photos:
            most = self._limits.asked_photos
            raise Refusal(413, f"Ask about at most {most} photos at a time.")
        self.files.append(AskedFile(name))
        return self

    def write(self, block: bytes) -> None:
        file = self.files[-1]
        check_photo_size(len(file.content) + len(block), file.name, self._limits)
        self._budget.take(len(block))
        self._taken += len(block)
        file.content += block

    def close(self) -> None:
        """A file is complete."""


def check_photo_size(size: int, name: str, limits: Limits) -> None:
    if size > limits.photo_bytes:
        raise Refusal(
            413,
            f"{shortened(name)} is too large: a photo may have {limits.photo_bytes / 1e6:.0f} MB.",
        )


# To teach. -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaughtPhoto:
    """A photo that was received: where it lies below the folder, and what the client said of it."""

    path: str
    name: str
    is_image: bool = False  # whatever its name ends in


@dataclass(frozen=True)
class Lesson:
    """Photos with their labels, in a folder of the server's."""

    folder: Target
    photos: list[tuple[TaughtPhoto, str]]
    left_out: int  # files that are no photos

    @property
    def counts(self) -> Counter[str]:
        return Counter(label for _, label in self.photos)

    def title(self) -> str:
        """The class, or how many there are."""
        labels = list(self.counts)
        return labels[0] if len(labels) == 1 else f"{len(labels)} classes"

    def write_list(self, name: str, paths: dict[str, str] | None = None) -> Target:
        """A CSV file for `learn`, beside the photos; `paths` tells where else some lie."""
        text = io.StringIO()
        table = csv.writer(text)
        table.writerow(("path", "label", "name"))
        names = {  # by place: kept by its content, a photo may be there twice
            ((paths or {}).get(photo.path, photo.path), label): shortened(photo.name)
            for photo, label in self.photos
        }
        table.writerows((path, label, name) for (path, label), name in names.items())
        target = inside(self.folder, name)
        write_atomically(target, text.getvalue().encode())
        return target


class LessonReader:
    """Receives a form of photos to teach into a folder.

    What a client calls a file or a class never becomes a path: photos get numbers for names.
    """

    def __init__(self, folder: Target, limits: Limits) -> None:
        self.folder, self._limits = folder, limits
        self._photos: list[TaughtPhoto] = []
        self._zip: Target | None = None
        self._left_out = self._size = 0
        self._file: BinaryIO | None = None
        make_private_folder(inside(folder, PHOTOS))

    async def read(self, request: Request) -> tuple[Lesson, dict[str, str]]:
        """The lesson, and the other fields of the form."""
        try:
            fields = await FormReader(self.begin).read(request)
        except OSError as error:
            reason = reason_of(error)
            raise Refusal(503, f"The server cannot store the photos: {reason}.", 60) from error
        label = fields.get("label", "").strip()
        if len(label) > LONGEST_LABEL:
            raise Refusal(400, f"The label is longer than {LONGEST_LABEL} letters.")
        photos = await run_in_threadpool(self._labelled, label)  # a large zip takes long
        if not photos:
            raise Refusal(400, f"No photo was sent. {WRONG_FORM}")
        return Lesson(self.folder, photos, self._left_out), fields

    # Receiving. ----------------------------------------------------------------------------

    def begin(self, name: str, kind: str) -> "LessonReader":
        if name.lower().endswith(".zip"):
            if self._zip is not None or self._photos:
                raise Refusal(400, "Send one .zip file alone, or photos.")
            self._zip = inside(self.folder, ZIP)
            self._file = create_file(self._zip)
        else:
            if self._zip is not None:
                raise Refusal(400, "Send one .zip file alone, or photos.")
            self._begin_photo(name, kind.startswith("image/"))
        self._size = 0
        return self

    def _begin_photo(self, name: str, is_image: bool = False) -> None:
        if len(self._photos) >= self._limits.photos:
            raise Refusal(413, f"Teach at most {self._limits.photos:,} photos at a time.")
        path = f"{PHOTOS}/{len(self._photos) + 1:06d}"
        self._photos.append(TaughtPhoto(path, name, is_image))
        self._file = create_file(inside(self.folder, *path.split("/")))
        self._size = 0

    def write(self, block: bytes) -> None:
        assert self._file is not None
        self._size += len(block)
        if self._zip is None:
            check_photo_size(self._size, self._photos[-1].name, self._limits)
        self._file.write(block)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # Labels. -------------------------------------------------------------------------------

    def _labelled(self, label: str) -> list[tuple[TaughtPhoto, str]]:
        if self._zip is not None:
            if label:
                raise Refusal(400, "A .zip file brings its own classes: leave out the label.")
            return self._unpacked()
        if label:
            return [(photo, label) for photo in self._photos]
        named = [(photo, _folder_of(photo.name)) for photo in self._photos]
        return [pair for pair in named if self._is_wanted(pair[0], pair[1])]

    def _is_wanted(self, photo: TaughtPhoto, label: str) -> bool:
        """Whether a file of a folder is a photo; others, like .DS_Store, are not kept."""
        if _is_photo(photo.name, photo.is_image):
            if not label:
                raise Refusal(400, NO_CLASS)
            return True
        self._leave_out(photo.name)
        remove_file(inside(self.folder, *photo.path.split("/")))
        return False

    def _leave_out(self, name: str) -> None:
        """Count it, unless it is one of those that systems hide: nobody meant these."""
        self._left_out += not PurePosixPath(name.replace("\\", "/")).name.startswith(".")

    def _unpacked(self) -> list[tuple[TaughtPhoto, str]]:
        packed = inside(self.folder, ZIP)
        try:
            with open_file(packed) as file:
                labels = [*self._unpack(file)]
        except Refused as error:
            raise Refusal(400, f"The .zip file is not unpacked: {shortened(error)}.") from error
        except BROKEN as error:
            reason = shortened(error) or "it is broken"
            raise Refusal(400, f"The .zip file cannot be read: {reason}.") from error
        finally:
            self.close()
            remove_file(packed)
        if not labels:
            raise Refusal(400, f"There are no photos in the .zip file. {NO_CLASS}")
        return list(zip(self._photos, labels, strict=True))

    def _unpack(self, file: BinaryIO) -> Iterator[str]:
        """Write photos under numbers; yields the label of each."""
        limits, self._zip = self._limits, None
        for parts, blocks in zip_files(file, limits.zip_members, limits.unpacked_bytes):
            if not _is_photo("/".join(parts)):
                self._leave_out(parts[-1])
                continue
            if len(parts) < 2:
                raise Refusal(400, NO_CLASS)
            self._begin_photo("/".join(parts))
            for block in blocks:
                self.write(block)
            self.close()
            yield _checked_label(parts[-2])


def _folder_of(name: str) -> str:
    """The class of `class/photo.jpg`, also below other folders; empty if there is none."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    label = parts[-2] if len(parts) > 1 else ""
    return "" if label in ("/", "..") else _checked_label(label)


def _checked_label(label: str) -> str:
    if len(label) > LONGEST_LABEL:
        raise Refusal(400, f"The class {shortened(label)} has more than {LONGEST_LABEL} letters.")
    return label


def _is_photo(name: str, is_image: bool = False) -> bool:
    """By its name, which promises an image unless it is known to be one; hidden ones are not."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    hidden = any(part.startswith((".", "__MACOSX")) for part in parts if part not in ("..", "/"))
    return bool(parts) and not hidden and (is_image or looks_like_image(Path(parts[-1])))


def renamed_classes(text: str | None) -> dict[str, str]:
    """The field `rename`: a JSON object of names."""
    if not text:
        return {}
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, 'Send rename as JSON: {"Robin": "robin"}.') from error
    is_object = isinstance(names, dict) and len(names) <= 1000
    if not is_object or not all(isinstance(n, str) and len(n) <= 200 for n in names.values()):
        raise Refusal(400, 'Send rename as JSON: {"Robin": "robin"}.')
    return dict(names)
