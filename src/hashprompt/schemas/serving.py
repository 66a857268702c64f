"""The files of a server's private folder."""

from typing import Annotated, Literal

from pydantic import Field

from hashprompt.storage.schema import Count, Schema

PHOTO_ID = "^[0-9a-f]{32}$"
JOB_ID = "^[0-9]{14}-[0-9a-f]{8}$"
Share = Annotated[float, Field(ge=0, le=1)]


class Serving(Schema):
    """`serving.json`: what is switched on."""

    keep_unsure: bool


class StoredJob(Schema):
    """`jobs/ID/job.json`: a learn."""

    id: Annotated[str, Field(pattern=JOB_ID)]
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    label: str
    photos: Count
    effort: Literal["instant", "quick", "normal", "best"]
    rename: dict[str, str]
    source: Annotated[str, Field(pattern="^[-0-9a-z]+[.]csv$")]  # the list of its photos
    created: str
    asked: list[Annotated[str, Field(pattern=PHOTO_ID)]]  # photos that leave the unsure ones
    left_out: Count = 0  # files that came along and are no photos
    kept: dict[str, str] = Field(default_factory=dict)  # its photos -> where they are kept
    placed: list[str] | None = None  # those of them that it has put there
    message: str | None
    error: str | None
    version: Count | None
    report: str | None


class UnsurePhoto(Schema):
    """`unsure/ID.json`: a photo of the review queue."""

    id: Annotated[str, Field(pattern=PHOTO_ID)]
    file: str
    label: str
    probability: Share
    unknown: Share
    is_unknown: bool
    when: str
    feature: Annotated[str, Field(max_length=100_000)]  # (D,) float16 in base64
