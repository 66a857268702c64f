"""Photos that arrive to be taught: received into a private folder, with their labels."""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, BinaryIO

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, Json, StringConstraints, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from hashprompt.data.fetching.archives import BROKEN, ArchiveError, zip_files
from hashprompt.data.reading.images import looks_like_image
from hashprompt.errors import shortened
from hashprompt.photos.learn_job import Effort
from hashprompt.serve.http.forms import WRONG_FORM, FormReader, Write, is_zip
from hashprompt.serve.http.problems import Refusal, too_large
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
MAX_LABEL = 200
NO_CLASS = (
    "It is not clear which class the photos are of. Give a `label`, or files named "
    "`class/photo.jpg`, or one .zip file of class folders."
)
ONE_ZIP = "Send one .zip file and nothing else, or photos."
Name = Annotated[str, Field(max_length=MAX_LABEL)]


class LessonForm(BaseModel):
    """Fields of a form of photos to teach, and how its files are named."""

    label: Annotated[Name, StringConstraints(strip_whitespace=True)] = Field(
        "",
        description="The class of all photos. Without a label, files are named `class/photo.jpg`, "
        "or there is one .zip file of class folders.",
    )
    effort: Effort | None = None
    rename: Json[dict[str, Name]] = Field({}, description="A JSON object of class names to change.")


@dataclass(frozen=True)
class TaughtPhoto:
    """A photo that was received: its path below the folder, and what the client said of it."""

    path: str
    name: str
    is_image: bool = False  # whatever its name ends in


@dataclass(frozen=True)
class Lesson:
    """Photos with their labels, in a folder of the server's."""

    folder: Target
    photos: list[tuple[TaughtPhoto, str]]
    left_out: int  # files that are not photos

    @property
    def counts(self) -> Counter[str]:
        return Counter(label for _, label in self.photos)

    def title(self) -> str:
        """The class, or how many there are."""
        labels = list(self.counts)
        return labels[0] if len(labels) == 1 else f"{len(labels)} classes"

    def write_list(self, name: str, paths: dict[str, str] | None = None) -> Target:
        """A CSV file for `learn`, next to the photos; `paths` tells where else some lie."""
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

    What a client calls a file or a class never becomes a path: photos are numbered.
    """

    def __init__(self, folder: Target, limits: Limits) -> None:
        self.folder, self._limits = folder, limits
        self._photos: list[TaughtPhoto] = []
        self._zip: Target | None = None
        self._left_out = 0
        self._file: BinaryIO = io.BytesIO()  # that is being received
        make_private_folder(inside(folder, PHOTOS))

    async def read(self, request: Request) -> tuple[Lesson, LessonForm]:
        """The lesson, and the fields of the form."""
        try:
            fields = await FormReader(self._begin, self._limits.photo_bytes).read(request)
        except OSError as error:
            reason = reason_of(error)
            raise Refusal(503, f"The server cannot store the photos: {reason}.", 60) from error
        finally:
            self._file.close()
        try:
            form = LessonForm.model_validate({k: value for k, value in fields.items() if value})
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from error
        photos = await run_in_threadpool(self._labelled, form.label)  # a large zip takes long
        if not photos:
            raise Refusal(400, f"No photo was sent. {WRONG_FORM}")
        return Lesson(self.folder, photos, self._left_out), form

    def _begin(self, name: str, kind: str) -> Write:
        if self._zip is not None or (self._photos and is_zip(name)):
            raise Refusal(400, ONE_ZIP)
        if not is_zip(name):
            return self._begin_photo(name, kind.startswith("image/"))
        self._zip = inside(self.folder, ZIP)
        return self._create(self._zip)

    def _begin_photo(self, name: str, is_image: bool = False) -> Write:
        if len(self._photos) >= self._limits.photos:
            raise Refusal(413, f"Teach at most {self._limits.photos:,} photos at a time.")
        path = f"{PHOTOS}/{len(self._photos) + 1:06d}"
        self._photos.append(TaughtPhoto(path, name, is_image))
        return self._create(inside(self.folder, *path.split("/")))

    def _create(self, target: Target) -> Write:
        self._file.close()
        self._file = create_file(target)
        return self._file.write

    # Labels. -------------------------------------------------------------------------------

    def _labelled(self, label: str) -> list[tuple[TaughtPhoto, str]]:
        if self._zip is not None:
            if label:
                raise Refusal(400, "A .zip file brings its own classes: leave out the label.")
            return self._unpacked(self._zip)
        if label:
            return [(photo, label) for photo in self._photos]
        named = [(photo, _folder_of(photo.name)) for photo in self._photos]
        return [pair for pair in named if self._is_wanted(*pair)]

    def _is_wanted(self, photo: TaughtPhoto, label: str) -> bool:
        """Whether a file of a folder is a photo; others, like .DS_Store, are not kept."""
        if not _is_photo(photo.name, photo.is_image):
            self._leave_out(photo.name)
            remove_file(inside(self.folder, *photo.path.split("/")))
            return False
        if not label:
            raise Refusal(400, NO_CLASS)
        return True

    def _leave_out(self, name: str) -> None:
        """Count a file, unless it is one that systems hide: nobody meant these."""
        self._left_out += not _path(name).name.startswith(".")

    def _unpacked(self, packed: Target) -> list[tuple[TaughtPhoto, str]]:
        try:
            with open_file(packed) as file:
                labels = [*self._unpack(file)]
        except ArchiveError as error:
            raise Refusal(400, f"The .zip file is not unpacked: {shortened(error)}.") from error
        except BROKEN as error:
            reason = shortened(error) or "it is broken"
            raise Refusal(400, f"The .zip file cannot be read: {reason}.") from error
        finally:
            remove_file(packed)
        if not labels:
            raise Refusal(400, f"There are no photos in the .zip file. {NO_CLASS}")
        return list(zip(self._photos, labels, strict=True))

    def _unpack(self, file: BinaryIO) -> Iterator[str]:
        """Write photos under numbers; yields the label of each."""
        limits = self._limits
        for parts, blocks in zip_files(file, limits.zip_members, limits.unpacked_bytes):
            name, size = "/".join(parts), 0
            if not _is_photo(name):
                self._leave_out(name)
                continue
            if len(parts) < 2:
                raise Refusal(400, NO_CLASS)
            write = self._begin_photo(name)
            with closing(self._file):
                for block in blocks:
                    size += len(block)
                    if size > limits.photo_bytes:
                        raise too_large(name, limits.photo_bytes)
                    write(block)
            yield _checked_label(parts[-2])


def _path(name: str) -> PurePosixPath:
    """What a client calls a file, by whatever system."""
    return PurePosixPath(name.replace("\\", "/"))


def _folder_of(name: str) -> str:
    """The class of `class/photo.jpg`, also below other folders; empty if there is none."""
    label = _path(name).parent.name
    return "" if label == ".." else _checked_label(label)


def _checked_label(label: str) -> str:
    if len(label) > MAX_LABEL:
        raise Refusal(400, f"The class {shortened(label)} has more than {MAX_LABEL} letters.")
    return label


def _is_photo(name: str, is_image: bool = False) -> bool:
    """By its name, which promises an image unless it is known to be one; hidden ones are not."""
    parts = _path(name).parts
    hidden = any(part.startswith((".", "__MACOSX")) for part in parts if part not in ("..", "/"))
    return bool(parts) and not hidden and (is_image or looks_like_image(Path(parts[-1])))
