"""Photos to teach: received into a private folder, with their labels."""

import csv
import io
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, BinaryIO

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, Json, StringConstraints, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from hashprompt.data.reading.images import looks_like_image
from hashprompt.errors import shortened
from hashprompt.photos.session import Effort
from hashprompt.serve.http.forms import WRONG_FORM, FormReader, Write, is_zip
from hashprompt.serve.http.problems import Refusal, too_large
from hashprompt.serve.http.zips import BROKEN, ZipError, zip_files
from hashprompt.serve.settings import ServeSettings
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
    "The class of the photos is missing. Give a `label`, or files named `class/photo.jpg`, or one "
    ".zip file of class folders."
)
ONE_ZIP = "Send either one .zip file or photos, not both."
Name = Annotated[str, Field(max_length=MAX_LABEL)]


class LessonForm(BaseModel):
    """Photos to teach, and fields: `label` is the class of all photos. Without a label, files are
    named `class/photo.jpg`, or there is one .zip file of class folders. `rename` is a JSON object
    of class names to change.
    """

    label: Annotated[Name, StringConstraints(strip_whitespace=True)] = ""
    effort: Effort | None = None
    rename: Json[dict[str, Name]] = {}


@dataclass(frozen=True)
class TaughtPhoto:
    """A received photo: its path below the lesson's folder, the client's name for it, its class."""

    path: str
    name: str
    label: str = ""


@dataclass
class Lesson:
    """Photos with their labels, in a folder of the server."""

    folder: Target
    effort: Effort
    rename: dict[str, str] = field(default_factory=dict)  # class names to change
    photos: list[TaughtPhoto] = field(default_factory=list)
    left_out: int = 0  # files that are not photos

    @property
    def counts(self) -> Counter[str]:
        return Counter(photo.label for photo in self.photos)

    def title(self) -> str:
        """The class, or the number of classes."""
        labels = list(self.counts)
        return labels[0] if len(labels) == 1 else f"{len(labels)} classes"

    def write_list(self, name: str, paths: dict[str, str] | None = None) -> Target:
        """Write a CSV file for `learn` next to the photos.

        Args:
            paths: of photos that are stored elsewhere.
        """
        # By place: an archive names photos by their content, so one may be there twice.
        rows = {
            ((paths or {}).get(photo.path, photo.path), photo.label): shortened(photo.name)
            for photo in self.photos
        }
        text = io.StringIO()
        table = csv.writer(text)
        table.writerow(("path", "label", "name"))
        table.writerows((*place, name) for place, name in rows.items())
        target = inside(self.folder, name)
        write_atomically(target, text.getvalue().encode())
        return target


class LessonReader:
    """Receives a form of photos to teach into a folder.

    Photos get numbers as names: no name of a file or a class that a client sends becomes a path.
    """

    def __init__(self, folder: Target, settings: ServeSettings) -> None:
        self._lesson, self._limits = Lesson(folder, settings.effort), settings.limits
        self._zip: Target | None = None
        self._file: BinaryIO = io.BytesIO()  # that is being received
        make_private_folder(inside(folder, PHOTOS))

    async def read(self, request: Request) -> Lesson:
        lesson, limits = self._lesson, self._limits
        try:
            reader = FormReader(request, self._begin, limits.photos, limits.photo_bytes)
            fields = await reader.read()
        except OSError as error:
            reason = reason_of(error)
            raise Refusal(503, f"The server cannot store the photos: {reason}.", 60) from error
        finally:
            self._file.close()
        try:
            form = LessonForm.model_validate({k: value for k, value in fields.items() if value})
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from error
        lesson.effort, lesson.rename = form.effort or lesson.effort, form.rename
        await run_in_threadpool(self._set_labels, form.label)  # a large zip takes long
        if not lesson.photos:
            raise Refusal(400, f"No photo was sent. {WRONG_FORM}")
        return lesson

    def _begin(self, name: str, kind: str) -> Write:
        """Begin a file of the form."""
        if self._zip is not None or (self._lesson.photos and is_zip(name)):
            raise Refusal(400, ONE_ZIP)
        if is_zip(name):
            self._zip = inside(self._lesson.folder, ZIP)
            return self._create(self._zip)
        if _is_photo(name, kind.startswith("image/")):
            return self._begin_photo(name)
        self._leave_out(name)
        return lambda block: None

    def _begin_photo(self, name: str) -> Write:
        if len(self._lesson.photos) >= self._limits.photos:
            raise Refusal(413, f"Teach at most {self._limits.photos:,} photos at a time.")
        path = f"{PHOTOS}/{len(self._lesson.photos) + 1:06d}"
        self._lesson.photos.append(TaughtPhoto(path, name))
        return self._create(inside(self._lesson.folder, *path.split("/")))

    def _create(self, target: Target) -> Write:
        self._file.close()
        self._file = create_file(target)
        return self._file.write

    def _leave_out(self, name: str) -> None:
        """Count a file that is no photo, unless systems hide it: then nobody chose to send it."""
        self._lesson.left_out += not _path(name).name.startswith(".")

    # Labels. -------------------------------------------------------------------------------

    def _set_labels(self, label: str) -> None:
        if self._zip is not None:
            if label:
                raise Refusal(400, "A .zip file has its own classes: leave out the label.")
            self._unpack(self._zip)
        self._lesson.photos = [
            replace(photo, label=label or _folder_of(photo.name)) for photo in self._lesson.photos
        ]

    def _unpack(self, packed: Target) -> None:
        try:
            with open_file(packed) as file:
                self._unpack_photos(file)
        except ZipError as error:
            raise Refusal(400, f"The .zip file is not unpacked: {shortened(error)}.") from error
        except BROKEN as error:
            reason = shortened(error) or "it is broken"
            raise Refusal(400, f"The .zip file cannot be read: {reason}.") from error
        finally:
            remove_file(packed)
        if not self._lesson.photos:
            raise Refusal(400, f"There are no photos in the .zip file. {NO_CLASS}")

    def _unpack_photos(self, file: BinaryIO) -> None:
        limits = self._limits
        for parts, blocks in zip_files(file, limits.zip_members, limits.unpacked_bytes):
            name, size = "/".join(parts), 0
            if not _is_photo(name):
                self._leave_out(name)
                continue
            write = self._begin_photo(name)
            with closing(self._file):
                for block in blocks:
                    size += len(block)
                    if size > limits.photo_bytes:
                        raise too_large(name, limits.photo_bytes)
                    write(block)


def _path(name: str) -> PurePosixPath:
    """A client's name of a file, whatever its system."""
    return PurePosixPath(name.replace("\\", "/"))


def _folder_of(name: str) -> str:
    """The class of `class/photo.jpg`, also below other folders."""
    label = _path(name).parent.name
    if label in ("", ".."):
        raise Refusal(400, NO_CLASS)
    if len(label) > MAX_LABEL:
        raise Refusal(400, f"The class {shortened(label)} has more than {MAX_LABEL} letters.")
    return label


def _is_photo(name: str, is_image: bool = False) -> bool:
    """Whether a name, or a content type, promises an image; hidden files do not."""
    parts = _path(name).parts
    hidden = any(part.startswith((".", "__MACOSX")) for part in parts if part not in ("..", "/"))
    return bool(parts) and not hidden and (is_image or looks_like_image(Path(parts[-1])))
