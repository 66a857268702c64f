"""The files of a classifier's folder."""

from datetime import datetime
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, Strict, model_validator

from hashprompt.storage.schema import Count, Pair, Schema, Seconds, Sha256, Values

Positive = Annotated[int, Field(ge=1, lt=10**9)]


def _is_time(text: str) -> str:
    datetime.fromisoformat(text).astimezone()
    return text


Time = Annotated[str, Field(max_length=40), AfterValidator(_is_time)]


class StoredPreprocessing(Schema):
    """How images are prepared for the backbone."""

    mean: Annotated[list[float], Field(min_length=3, max_length=3)]
    std: Annotated[list[float], Field(min_length=3, max_length=3)]
    interpolation: str


class StoredBackbone(Schema):
    """The backbone of a classifier."""

    name: str
    sha256: Sha256
    image_size: Annotated[int, Field(ge=1, le=10_000)]
    preprocessing: StoredPreprocessing
    plain: Values | None  # sizes of the plain ViT that it is


class FixedChoices(Schema):
    """What the first session fixes."""

    seed: int
    options: Values
    backbone: StoredBackbone


class Header(FixedChoices):
    """`classifier.json`."""

    current: Positive
    newest: Positive
    created: Time

    @model_validator(mode="after")
    def _current_is_there(self) -> Self:
        if self.current > self.newest:
            raise ValueError("`current` is a version after the newest")
        return self


class StoredFiles(Schema):
    """SHA-256 of the other files of a version."""

    tensors: Sha256 = Field(alias="tensors.safetensors")
    photos: Sha256 = Field(alias="photos.json")


class VersionInfo(Schema):
    """`versions/N/version.json`; counts by class are [right, tested] or [training, held out]."""

    number: Positive
    parent: Positive | None
    created: Time
    files: StoredFiles
    session: str  # fingerprint, or what was edited
    source: str
    classes: Annotated[list[str], Field(min_length=1)]
    integer_labels: bool
    frozen_fit: bool  # nothing was trained in this session (yet)
    edit: str | None  # what was done to the version before, if nothing was learned
    batches: Annotated[list[list[Count]], Field(min_length=1)]  # classes of each session
    batch_names: list[str]
    images: dict[str, Pair]
    training: Values
    sizes: dict[str, Count]
    notes: list[str]
    temperature: Annotated[float, Field(gt=0)]
    calibration: Values
    distances: list[float]
    accuracy: dict[str, Pair]
    before: dict[str, Pair]
    after: dict[str, Pair]
    confusions: list[Annotated[tuple[str, str, Count], Field(strict=False)]]
    seconds: dict[str, Seconds]
    total_seconds: Seconds

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """What any reader relies on: a stranger may have written the file, checksum and all."""
        classes = set(self.classes)
        named = {*self.before, *self.after, *(name for row in self.confusions for name in row[:2])}
        labels = [label for batch in self.batches for label in batch]
        others = (self.images.keys() ^ classes) | (self.accuracy.keys() ^ classes)
        problems = {
            "`classes` has a name twice": len(classes) < len(self.classes),
            "`parent` is not an earlier version": (self.parent or 0) >= self.number,
            "`batches` and `batch_names` differ": len(self.batches) != len(self.batch_names),
            "`batches` has a class that is not there": max(labels, default=0) >= len(classes),
            "`images` or `accuracy` has other classes": others,
            "`before`, `after` or `confusions` has a class that is not there": named - classes,
        }
        for problem, is_there in problems.items():
            if is_there:
                raise ValueError(problem)
        if self.integer_labels:
            for name in self.classes:
                int(name)
        return self


ClassId = Annotated[Count, Strict()]


class PhotoRecord(NamedTuple):
    """A photo in `versions/N/photos.json`; its key is the SHA-256 of the file."""

    label: ClassId
    part: Literal["train", "test"]
    path: str  # of held-out photos on disk, else empty
    predicted: ClassId | None  # of held-out photos

    @property
    def can_be_tested(self) -> bool:
        return self.part == "test" and bool(self.path)


PhotoRows = dict[Sha256, PhotoRecord]


class Holder(Schema):
    """`.holder.json`: who writes to the folder."""

    pid: Count
    doing: str
    since: str
