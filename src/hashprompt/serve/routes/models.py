"""Bodies and answers of several routes, as the documentation of the API shows them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from hashprompt.photos.learn_job import Effort
from hashprompt.serve.jobs.jobs import Progress, State

Label = Annotated[str, Field(min_length=1, max_length=200)]


class Strict(BaseModel):
    """Base of request bodies: no conversion of values, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid")


class PhotoForm(BaseModel):
    photos: list[bytes]


class ChangedOut(BaseModel):
    version: int
    text: str


class JobOut(BaseModel):
    id: str
    state: State
    label: str
    photos: int
    left_out: int
    effort: Effort
    created: str
    progress: Progress
    message: str | None
    error: str | None
    version: int | None
    report: str | None


def documented(form: type[BaseModel]) -> dict[str, Any]:
    """A multipart form, for the documentation of a route."""
    content = {"multipart/form-data": {"schema": form.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}
