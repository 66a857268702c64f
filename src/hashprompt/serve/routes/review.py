"""Photos that it was unsure about: look at them, name them, teach them."""

from typing import Any

from fastapi import APIRouter, Request, Response

from hashprompt.errors import UserError
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.http.uploads import PHOTOS, Lesson, TaughtPhoto
from hashprompt.serve.models import (
    JobOut,
    KeepIn,
    KeepOut,
    PhotosIn,
    RemovedOut,
    UnsureOut,
    UnsureTeachIn,
)
from hashprompt.serve.routes.learn import begin, chosen_effort
from hashprompt.serve.service import ServiceOf, request_id
from hashprompt.storage.files import inside, make_private_folder, place_file, remove_new

router = APIRouter(tags=["unsure"])
NO_PHOTO = "There is no such photo. GET /api/unsure lists them."


@router.get("/api/unsure", response_model=UnsureOut)
def unsure(service: ServiceOf) -> dict[str, Any]:
    """Photos that were asked about and unknown or unsure, in groups of likeness."""
    known = set(service.known_classes())
    groups = [
        {**group, "likely": group["likely"] if group["likely"] in known else None}
        for group in service.asked.groups()
    ]
    folder = service.settings.for_clients(str(service.private.asked))
    return {"keep_asked": service.asked.is_on, "folder": folder, "groups": groups}


@router.post("/api/unsure/keep", response_model=KeepOut)
def keep(body: KeepIn, service: ServiceOf) -> dict[str, Any]:
    """Keep such photos from now on, or no more; those that are kept stay."""
    service.asked.switch(body.on)
    return {"keep_asked": service.asked.is_on}


@router.get("/api/unsure/{photo}", response_class=Response)
def thumbnail(photo: str, service: ServiceOf) -> Response:
    """A small picture of a photo."""
    if service.asked.photo(photo) is None:
        raise Refusal(404, NO_PHOTO)
    try:
        content = service.asked.thumbnail(photo)
    except (KeyError, UserError) as error:  # removed meanwhile
        raise Refusal(404, NO_PHOTO) from error
    headers = {"Cache-Control": "private, max-age=3600"}
    return Response(content, media_type="image/jpeg", headers=headers)


@router.post("/api/unsure/teach", status_code=202, response_model=JobOut)
def teach(body: UnsureTeachIn, request: Request, service: ServiceOf) -> dict[str, Any]:
    """Teach photos under a label; they leave the list when they are learned."""
    service.jobs.refuse_more()
    effort = chosen_effort(service, body.effort)
    folder = service.private.upload(request_id(request))
    try:
        make_private_folder(inside(folder, PHOTOS))
        photos = []
        for name in dict.fromkeys(body.photos):
            known = service.asked.photo(name)
            if known is None:
                raise Refusal(404, NO_PHOTO)
            place_file(service.asked.path(name), inside(folder, PHOTOS, name))
            photos.append((TaughtPhoto(f"{PHOTOS}/{name}", known["file"]), body.label.strip()))
        lesson = Lesson(folder, photos, 0)
        return begin(service, lesson, effort, {}, tuple(dict.fromkeys(body.photos))).to_dict()
    finally:
        remove_new(folder)


@router.post("/api/unsure/remove", response_model=RemovedOut)
def remove(body: PhotosIn, service: ServiceOf) -> dict[str, Any]:
    """Remove photos from the list and from the disk."""
    return {"removed": service.asked.remove(body.photos)}
