"""What several routes take and return, as the documentation of the API shows it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hashprompt.photos.learn_job import Effort

Label = Annotated[str, Field(min_length=1, max_length=200)]


class Strict(BaseModel):
    """Base of what is taken: nothing is converted, and nothing unknown is passed over."""

    model_config = ConfigDict(strict=True, extra="forbid")


class PhotoForm(BaseModel):
    photos: list[bytes]


class ChangedOut(BaseModel):
    version: int
    text: str


class ProgressOut(BaseModel):
    text: str
    fraction: float
    seconds_left: float | None


class JobOut(BaseModel):
    id: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    label: str
    photos: int
    left_out: int
    effort: Effort
    created: str
    progress: ProgressOut
    message: str | None
    error: str | None
    version: int | None
    report: str | None


def documented(form: type[BaseModel]) -> dict[str, Any]:
    """A multipart form, for the documentation of a route."""
    content = {"multipart/form-data": {"schema": form.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}
