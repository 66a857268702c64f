"""What the API takes and gives, as its documentation shows it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hashprompt.schemas.serving import PHOTO_ID

Label = Annotated[str, Field(min_length=1, max_length=200)]
PhotoId = Annotated[str, Field(pattern=PHOTO_ID)]
PhotoIds = Annotated[list[PhotoId], Field(min_length=1, max_length=1000)]
EffortName = Literal["instant", "quick", "normal", "best"]


class Strict(BaseModel):
    """Base of what is taken: nothing is converted, and nothing unknown is passed over."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Problem(BaseModel):
    """Why a request was not carried out, and what to do."""

    error: str
    request: str


class Share(BaseModel):
    label: str
    probability: float | None


class Near(BaseModel):
    """A class that a photo reminds of, and the learn that it came from."""

    label: str
    learn: str
    distance: float | None


class AnswerOut(BaseModel):
    file: str
    label: str | None
    probability: float | None
    top: list[Share]
    unknown: float | None
    is_unknown: bool | None
    unsure: bool | None
    reminds_of: list[Near]
    error: str | None


class AnswersOut(BaseModel):
    version: int
    answers: list[AnswerOut]


class ProgressOut(BaseModel):
    text: str
    fraction: float
    seconds_left: float | None


class JobOut(BaseModel):
    id: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    kind: Literal["learn"]
    label: str
    photos: int
    left_out: int
    effort: EffortName
    created: str
    progress: ProgressOut
    message: str | None
    error: str | None
    version: int | None
    report: str | None


class JobsOut(BaseModel):
    jobs: list[JobOut]


class LimitsOut(BaseModel):
    photos: int
    asked_photos: int
    photo_bytes: int
    body_bytes: int
    asked_bytes: int


class StateOut(BaseModel):
    name: str
    version: int
    classes: int
    read_only: bool
    keep_asked: bool
    keep_photos: bool
    effort: EffortName
    limits: LimitsOut
    job: JobOut | None
    unfinished: str | None  # what a learn was of that was begun elsewhere and not finished
    unsure: int


class HealthOut(BaseModel):
    status: Literal["ok"]
    version: int


class PlannedClass(BaseModel):
    label: str
    photos: int  # that would be learned or held out
    sent: int  # broken ones and those that it knows already among them
    new: bool


class PlanOut(BaseModel):
    text: str
    classes: list[PlannedClass]
    notes: list[str]  # why photos are left out, among others
    left_out: int  # files that are no photos
    answers_after_seconds: float
    done_after_seconds: float


class VersionOut(BaseModel):
    number: int
    when: str
    kind: Literal["learn", "look", "edit", "damaged"]
    text: str
    classes: int
    photos: int
    accuracy: float | None
    held_out: int
    seconds: float
    undone: bool


class HistoryOut(BaseModel):
    version: int
    versions: list[VersionOut]


class ClassOut(BaseModel):
    name: str
    photos: int
    accuracy: float | None
    held_out: int
    learns: list[int]


class ClassesOut(BaseModel):
    classes: list[ClassOut]


class ChangedOut(BaseModel):
    version: int
    text: str


class UndoIn(Strict):
    to: Annotated[int, Field(ge=1, lt=10**9)] | None = None


class RenameIn(Strict):
    old: Label
    new: Label


class MergeIn(Strict):
    classes: Annotated[list[Label], Field(min_length=2, max_length=1000)]
    into: Label


class ForgetIn(Strict):
    name: Label


class UnsurePhoto(BaseModel):
    id: str
    file: str
    label: str
    probability: float
    unknown: float
    when: str


class UnsureGroup(BaseModel):
    id: str
    likely: str | None
    photos: list[UnsurePhoto]


class UnsureOut(BaseModel):
    keep_asked: bool
    folder: str  # where they are, beside that of the classifier
    groups: list[UnsureGroup]


class KeepIn(Strict):
    on: bool


class KeepOut(BaseModel):
    keep_asked: bool


class UnsureTeachIn(Strict):
    photos: PhotoIds
    label: Label
    effort: EffortName | None = None


class PhotosIn(Strict):
    photos: PhotoIds


class RemovedOut(BaseModel):
    removed: int


PHOTO_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["photos"],
                    "properties": {
                        "photos": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                        }
                    },
                }
            }
        },
    }
}


def lesson_form() -> dict[str, Any]:
    """The form of `teach` and `plan`."""
    import copy

    form = copy.deepcopy(PHOTO_FORM)
    schema = form["requestBody"]["content"]["multipart/form-data"]["schema"]
    schema["properties"] |= {
        "label": {
            "type": "string",
            "description": "The class of all photos. Without it files are called "
            "`class/photo.jpg`, or there is one .zip file of class folders.",
        },
        "effort": {"type": "string", "enum": ["instant", "quick", "normal", "best"]},
        "rename": {"type": "string", "description": "A JSON object of class names to change."},
    }
    return form
