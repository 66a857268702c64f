"""Bodies and answers of several routes, as the documentation of the API shows them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Label = Annotated[str, Field(min_length=1, max_length=200)]


class Strict(BaseModel):
    """Base of request bodies: no conversion of values, no unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid")


class PhotoForm(BaseModel):
    photos: list[bytes]


def documented(form: type[BaseModel]) -> dict[str, Any]:
    """A multipart form, for the documentation of a route."""
    content = {"multipart/form-data": {"schema": form.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}
