"""The review queue: unsure photos, to be looked at, named and taught."""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from hashprompt.errors import UserError
from hashprompt.photos.learn_job import Effort
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.http.uploads import PHOTOS, Lesson, TaughtPhoto
from hashprompt.serve.review_queue import PHOTO_ID
from hashprompt.serve.routes.learn import begin, upload_folder
from hashprompt.serve.routes.models import JobOut, Label, Strict
from hashprompt.serve.service import ServiceOf
from hashprompt.storage.files import inside, make_private_folder, place_file

router = APIRouter(tags=["unsure"])
NO_PHOTO = "There is no such photo. GET /api/unsure lists them."
PhotoId = Annotated[str, Field(pattern=PHOTO_ID)]


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
    keep_unsure: bool
    folder: str  # where they are, next to that of the classifier
    groups: list[UnsureGroup]


class KeepIn(Strict):
    on: bool


class KeepOut(BaseModel):
    keep_unsure: bool


class PhotosIn(Strict):
    photos: Annotated[list[PhotoId], Field(min_length=1, max_length=1000)]


class TeachIn(PhotosIn):
    label: Label
    effort: Effort | None = None


class RemovedOut(BaseModel):
    removed: int


@router.get("/api/unsure", response_model=UnsureOut)
def unsure(service: ServiceOf) -> dict[str, Any]:
    """Photos that were unknown or unsure, in clusters."""
    known = set(service.known_classes())
    groups = [
        {**group, "likely": group["likely"] if group["likely"] in known else None}
        for group in service.review.groups()
    ]
    folder = service.settings.for_clients(str(service.private.unsure))
    return {"keep_unsure": service.review.is_on, "folder": folder, "groups": groups}


@router.post("/api/unsure/keep")
def keep(body: KeepIn, service: ServiceOf) -> KeepOut:
    """Keep such photos from now on, or no more; those that are kept stay."""
    service.review.switch(body.on)
    return KeepOut(keep_unsure=service.review.is_on)


@router.get("/api/unsure/{photo}", response_class=Response)
def thumbnail(photo: str, service: ServiceOf) -> Response:
    """A small picture of a photo."""
    try:
        content = service.review.thumbnail(photo)
    except (KeyError, UserError) as error:
        raise Refusal(404, NO_PHOTO) from error
    headers = {"Cache-Control": "private, max-age=3600"}
    return Response(content, media_type="image/jpeg", headers=headers)


@router.post("/api/unsure/teach", status_code=202, response_model=JobOut)
def teach(body: TeachIn, request: Request, service: ServiceOf) -> dict[str, Any]:
    """Teach photos under a label; they leave the list when they are learned."""
    service.jobs.refuse_more()
    effort = body.effort or service.settings.effort
    names = tuple(dict.fromkeys(body.photos))
    with upload_folder(service, request) as folder:
        make_private_folder(inside(folder, PHOTOS))
        photos = []
        for name in names:
            known = service.review.photo(name)
            if known is None:
                raise Refusal(404, NO_PHOTO)
            place_file(service.review.path(name), inside(folder, PHOTOS, name))
            photos.append((TaughtPhoto(f"{PHOTOS}/{name}", known["file"]), body.label.strip()))
        return begin(service, Lesson(folder, photos, 0), effort, {}, names).to_dict()


@router.post("/api/unsure/remove")
def remove(body: PhotosIn, service: ServiceOf) -> RemovedOut:
    """Remove photos from the list and from the disk."""
    return RemovedOut(removed=service.review.remove(body.photos))
