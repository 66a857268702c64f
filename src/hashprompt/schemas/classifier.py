"""The files of a classifier's folder."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from hashprompt.storage.schema import Count, Pair, Schema, Seconds, Sha256, Usage, Values

Positive = Annotated[int, Field(ge=1, lt=10**9)]


def _is_time(text: str) -> str:
    datetime.fromisoformat(text).astimezone()
    return text


def _is_confusion(row: list[str | int]) -> list[str | int]:
    if [type(part) for part in row] != [str, str, int]:
        raise ValueError("expected two names of classes and how often")
    return row


Time = Annotated[str, Field(max_length=40), AfterValidator(_is_time)]


class StoredPreprocessing(Schema):
    """How images must look for the backbone."""

    mean: Annotated[list[float], Field(min_length=3, max_length=3)]
    std: Annotated[list[float], Field(min_length=3, max_length=3)]
    interpolation: str


class StoredBackbone(Schema):
    """Which backbone a classifier was taught with."""

    name: str
    sha256: Sha256
    image_size: Annotated[int, Field(ge=1, le=10_000)]
    preprocessing: StoredPreprocessing
    plain: Values | None  # sizes of the plain ViT that it is


class Fixed(Schema):
    """What the first learn fixes."""

    seed: int
    options: Values
    backbone: StoredBackbone


class Header(Fixed):
    """`classifier.json`."""

    current: Positive
    newest: Positive
    created: Time

    @model_validator(mode="after")
    def _current_is_there(self) -> Self:
        if self.current > self.newest:
            raise ValueError("`current` is a version after the newest")
        return self


class VersionInfo(Schema):
    """`versions/N/version.json`; counts by class are [right, tested] or [training, held out]."""

    number: Positive
    parent: Positive | None
    created: Time
    files: dict[str, Sha256]
    job: str
    source: str
    classes: Annotated[list[str], Field(min_length=1)]
    integer_labels: bool
    batches: Annotated[list[list[Count]], Field(min_length=1)]
    batch_names: list[str]
    images: dict[str, Pair]
    training: Values
    usage: Usage | None
    sizes: dict[str, Count]
    notes: list[str]
    temperature: Annotated[float, Field(gt=0)]
    calibration: Values
    distances: list[float]
    accuracy: dict[str, Pair]
    before: dict[str, Pair]
    after: dict[str, Pair]
    confusions: list[
        Annotated[list[str | int], Field(min_length=3, max_length=3), AfterValidator(_is_confusion)]
    ]
    seconds: dict[str, Seconds]
    total_seconds: Seconds
    # Not in older files:
    is_look: bool = False  # of the first step of a learn: prompts were not trained
    batch_counts: list[list[Count]] | None = None  # training photos, beside `batches`
    edit: str | None = None  # what was done to the version before, if nothing was learned

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        classes = set(self.classes)
        if len(classes) < len(self.classes):
            raise ValueError("`classes` has a name twice")
        if self.parent is not None and self.parent >= self.number:
            raise ValueError("`parent` is not an earlier version")
        if len(self.batches) != len(self.batch_names):
            raise ValueError("`batch_names` has other learns than `batches`")
        counts_of = self.batches if self.batch_counts is None else self.batch_counts
        if [*map(len, counts_of)] != [*map(len, self.batches)]:
            raise ValueError("`batch_counts` has other classes than `batches`")
        if any(label >= len(classes) for batch in self.batches for label in batch):
            raise ValueError("`batches` has a class that is not there")
        if self.images.keys() != classes or self.accuracy.keys() != classes:
            raise ValueError("`images` or `accuracy` has other classes than `classes`")
        if not (self.before.keys() <= classes and self.after.keys() <= classes):
            raise ValueError("`before` or `after` has a class that is not there")
        if any({*row[:2]} - classes for row in self.confusions):
            raise ValueError("`confusions` has a class that is not there")
        for counts in (self.accuracy, self.before, self.after):
            if any(right > tested for right, tested in counts.values()):
                raise ValueError("more photos are right than were tested")
        if self.integer_labels:
            for name in self.classes:
                int(name)
        return self


PhotoRow = Annotated[tuple[Count, Literal["train", "test"], str, Count | None], Field(strict=False)]
PhotoRows = dict[Sha256, PhotoRow]  # `versions/N/photos.json`; see `PhotoRecord`


class Job(Schema):
    """`learning/job.json`."""

    parent: Positive | None
    source: str | None
    test: str | None
    effort: Literal["instant", "quick", "normal", "best"]
    rename: dict[str, str]
    unreadable: Literal["stop", "skip"]
    header: Fixed
    training: Values
    fingerprint: str
    forgets: str | None = None
    replaces: Positive | None = None


class SortJob(Schema):
    """`.sorting/job.json`: what an unfinished sort does."""

    inbox: str
    model: str | None
    version: Positive | None
    backbone: str | None = None  # SHA-256 of what answers where there is no model
    copies: bool
    move: bool
    sure: float
    unknown_threshold: float
    first_group: Count


class SortedFolder(Schema):
    """`.sorted.json`: folders among sorted ones that are no classes."""

    no_classes: list[str]


class Holder(Schema):
    """`.holder.json`: who writes to the folder."""

    pid: Count
    doing: str
    since: str
