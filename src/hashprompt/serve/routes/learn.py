"""Teach, plan, and jobs."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool

from hashprompt.photos import ContinualClassifier
from hashprompt.photos.inputs.names import SimilarNames, resolve_names
from hashprompt.photos.session import drop
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.http.uploads import Lesson, LessonForm, LessonReader
from hashprompt.serve.jobs.jobs import Job
from hashprompt.serve.routes.models import PhotoForm, documented
from hashprompt.serve.service import Service, ServiceOf
from hashprompt.storage.files import Target, remove_new
from hashprompt.texts import visible

router = APIRouter(tags=["teach"])


class TeachForm(PhotoForm, LessonForm):
    """Form of `teach` and `plan`."""


@router.post("/api/teach", status_code=202, openapi_extra=documented(TeachForm))
async def teach(request: Request, service: ServiceOf) -> dict[str, Any]:
    """Learn photos, as a job. One job runs, and one more may wait."""
    service.jobs.refuse_more()
    with upload_folder(service, request) as folder:
        lesson = await LessonReader(folder, service.settings).read(request)
        return (await run_in_threadpool(begin, service, lesson)).to_dict()


@router.post("/api/plan", openapi_extra=documented(TeachForm))
async def plan(request: Request, service: ServiceOf) -> dict[str, Any]:
    """Report what teach would do with the same form, and how long it would take."""
    with upload_folder(service, request) as folder:
        lesson = await LessonReader(folder, service.settings).read(request)
        return await to_thread.run_sync(_planned, service, lesson, limiter=service.planning)


@contextmanager
def upload_folder(service: Service, request: Request) -> Iterator[Target]:
    """A folder for an upload, removed at the end unless a job took it over."""
    folder = service.private.upload(request.state.request_id)
    try:
        yield folder
    finally:
        remove_new(folder)


def begin(service: Service, lesson: Lesson, asked: tuple[str, ...] = ()) -> Job:
    """Make a job of a lesson; `asked` are its photos from the review queue."""
    service.refuse_unfinished()
    _resolved(service, lesson)  # refuses names that are not clear
    kept = service.archive.paths(lesson)
    how: dict[str, Any] = {"effort": lesson.effort, "rename": lesson.rename, "asked": asked}
    return service.jobs.add(lesson, kept, **how)


def _resolved(service: Service, lesson: Lesson) -> dict[str, str]:
    """Class of each label.

    Raises:
        Refusal: with pairs of names that may mean the same class, for the client to decide.
    """
    try:
        return resolve_names(lesson.counts, service.known_classes(), lesson.rename)
    except SimilarNames as question:
        given, other = map(visible, question.pairs[0])
        text = (
            f"The names `{given}` and `{other}` differ only by case or blanks. If they are one "
            "class, use one name; else a name that differs by more."
        )
        raise Refusal(409, text, similar=question.pairs) from question


def _planned(service: Service, lesson: Lesson) -> dict[str, Any]:
    service.refuse_unfinished()
    names = _resolved(service, lesson)
    settings, source = service.settings, lesson.write_list("photos.csv")
    classifier = ContinualClassifier(settings.folder, settings.backbone, **settings.options)
    how: dict[str, Any] = {"effort": lesson.effort, "rename": lesson.rename}
    made = classifier.plan(source, unreadable="skip", **how)
    made = replace(made, backbone=Path(made.backbone).name)  # no path of the server
    sent, known = Counter(names[photo.label] for photo in lesson.photos), service.known_classes()
    return {
        "text": settings.for_clients(made.text()),
        "classes": [
            {"label": k, "photos": made.photos.get(k, 0), "sent": n, "new": k not in known}
            for k, n in sorted(sent.items())
        ],
        "notes": [settings.for_clients(note) for note in made.notes],
        "left_out": lesson.left_out,
        "answers_after_seconds": made.first_answer,
        "done_after_seconds": round(sum(made.seconds.values()), 2),
    }


@router.delete("/api/unfinished")
def drop_unfinished(service: ServiceOf) -> dict[str, Any]:
    """Drop an unfinished session that this server did not start."""
    if service.unfinished() is None:
        raise Refusal(404, "There is no such session. GET /api/state shows one as `unfinished`.")
    text = drop(service.store) or "The unfinished session is dropped. Nothing was changed by it."
    return {"version": service.version(), "text": text}


# Jobs. ---------------------------------------------------------------------------------------


def _job(name: str, service: ServiceOf) -> Job:
    job = service.jobs.get(name)
    if job is None:
        raise Refusal(404, "There is no such job. GET /api/jobs lists them.")
    return job


JobOf = Annotated[Job, Depends(_job)]


@router.get("/api/jobs")
def jobs(service: ServiceOf) -> list[dict[str, Any]]:
    """All jobs, newest first."""
    return [job.to_dict() for job in service.jobs.all()]


@router.get("/api/jobs/{name}")
def job(job: JobOf) -> dict[str, Any]:
    """One job."""
    return job.to_dict()


@router.delete("/api/jobs/{name}")
def cancel(job: JobOf, service: ServiceOf) -> dict[str, Any]:
    """Cancel a job, and restore the version before. The message reports the result."""
    return service.learning.cancel(job.id).to_dict()
