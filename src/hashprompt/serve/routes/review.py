"""The review queue: stored unsure photos, to view, name, teach or remove."""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from hashprompt.errors import UserError
from hashprompt.photos.session import Effort
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.http.uploads import PHOTOS, Lesson, TaughtPhoto
from hashprompt.serve.review_queue import PHOTO_ID, thumbnail
from hashprompt.serve.routes.learn import begin, upload_folder
from hashprompt.serve.routes.models import Label, Strict
from hashprompt.serve.service import Service, ServiceOf
from hashprompt.storage.files import Target, inside, place_file

router = APIRouter(tags=["unsure"])
PhotoId = Annotated[str, Field(pattern=PHOTO_ID)]


class KeepIn(Strict):
    on: bool


class PhotosIn(Strict):
    photos: Annotated[list[PhotoId], Field(min_length=1, max_length=1000)]


class TeachIn(PhotosIn):
    label: Label
    effort: Effort | None = None


@router.get("/api/unsure")
def unsure(service: ServiceOf) -> dict[str, Any]:
    """Stored photos in clusters."""
    known = service.known_classes()
    clusters = [
        {**cluster, "likely": cluster["likely"] if cluster["likely"] in known else None}
        for cluster in service.review.clusters()
    ]
    folder = service.settings.for_clients(str(service.private.unsure))
    return {"keep_unsure": service.review.is_on, "folder": folder, "clusters": clusters}


@router.post("/api/unsure/keep")
def keep(body: KeepIn, service: ServiceOf) -> dict[str, bool]:
    """Switch storing on or off. Photos stored before stay."""
    service.review.switch(body.on)
    return {"keep_unsure": service.review.is_on}


@router.get("/api/unsure/{photo}", response_class=Response)
def picture(photo: str, service: ServiceOf) -> Response:
    """A small picture of a photo."""
    path, _ = _found(service, photo)
    try:
        content = thumbnail(path)
    except UserError as error:
        raise Refusal(404, "The photo cannot be read.") from error
    headers = {"Cache-Control": "private, max-age=3600"}
    return Response(content, media_type="image/jpeg", headers=headers)


@router.post("/api/unsure/teach", status_code=202)
def teach(body: TeachIn, request: Request, service: ServiceOf) -> dict[str, Any]:
    """Teach photos with a label. They leave the queue once they are learned."""
    service.jobs.refuse_more()
    names = tuple(dict.fromkeys(body.photos))
    with upload_folder(service, request) as folder:
        lesson = Lesson(folder, body.effort or service.settings.effort)
        for name in names:
            path, file = _found(service, name)
            place_file(path, inside(folder, PHOTOS, name))
            lesson.photos.append(TaughtPhoto(f"{PHOTOS}/{name}", file, body.label.strip()))
        return begin(service, lesson, names).to_dict()


@router.post("/api/unsure/remove")
def remove(body: PhotosIn, service: ServiceOf) -> dict[str, int]:
    """Remove photos from the queue and from the disk."""
    return {"removed": service.review.remove(body.photos)}


def _found(service: Service, name: str) -> tuple[Target, str]:
    found = service.review.photo(name)
    if found is None:
        raise Refusal(404, "There is no such photo. GET /api/unsure lists them.")
    return found
