"""Teach, plan, and follow jobs."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from hashprompt.photos import ContinualClassifier
from hashprompt.photos.inputs.names import SimilarNames, resolve_names
from hashprompt.photos.learn_job import Effort
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.http.uploads import Lesson, LessonForm, LessonReader
from hashprompt.serve.jobs.jobs import Job
from hashprompt.serve.jobs.rollback import drop_unfinished
from hashprompt.serve.photo_archive import kept_paths
from hashprompt.serve.routes.models import ChangedOut, JobOut, PhotoForm, documented
from hashprompt.serve.service import Service, ServiceOf, request_id
from hashprompt.storage.files import Target, remove_new
from hashprompt.texts import visible

router = APIRouter(tags=["teach"])
POLL = 0.25  # seconds between two looks at a job that somebody follows
ALIVE = 15.0  # seconds after which a silent stream says that it lives
Received = tuple[Lesson, Effort, dict[str, str]]  # `rename` is the last


class TeachForm(PhotoForm, LessonForm):
    """What `teach` and `plan` take."""


class JobsOut(BaseModel):
    jobs: list[JobOut]


class PlannedClass(BaseModel):
    label: str
    photos: int  # that would be learned or held out
    sent: int  # broken ones and those that it knows already among them
    new: bool


class PlanOut(BaseModel):
    text: str
    classes: list[PlannedClass]
    notes: list[str]  # why photos are left out, among others
    left_out: int  # files that are not photos
    answers_after_seconds: float
    done_after_seconds: float


@router.post(
    "/api/teach", status_code=202, response_model=JobOut, openapi_extra=documented(TeachForm)
)
async def teach(request: Request, service: ServiceOf) -> dict[str, Any]:
    """Learn photos, as a job: one runs, one more may wait."""
    service.jobs.refuse_more()
    with upload_folder(service, request) as folder:
        received = await _received(service, request, folder)
        return (await run_in_threadpool(begin, service, *received)).to_dict()


@router.post("/api/plan", openapi_extra=documented(TeachForm))
async def plan(request: Request, service: ServiceOf) -> PlanOut:
    """What `teach` would do with the same form, and how long it would take; nothing is kept."""
    with upload_folder(service, request) as folder:
        received = await _received(service, request, folder)
        if service.is_planning:  # not before: who sends slowly must not keep others from it
            raise Refusal(503, "Another plan is being made. Try again soon.", 2)
        service.is_planning = True
        try:
            return await run_in_threadpool(_planned, service, *received)
        finally:
            service.is_planning = False


@contextmanager
def upload_folder(service: Service, request: Request) -> Iterator[Target]:
    """A folder for an upload, gone at the end unless a job took it over."""
    folder = service.private.upload(request_id(request))
    try:
        yield folder
    finally:
        remove_new(folder)


async def _received(service: Service, request: Request, folder: Target) -> Received:
    lesson, form = await LessonReader(folder, service.settings.limits).read(request)
    return lesson, form.effort or service.settings.effort, form.rename


def begin(
    service: Service,
    lesson: Lesson,
    effort: Effort,
    rename: dict[str, str],
    asked: tuple[str, ...] = (),
) -> Job:
    """Make a job of a lesson."""
    service.jobs.refuse_more()
    service.refuse_unfinished()
    names = _resolved(service, lesson, rename)
    keep_in = service.settings.photos
    kept = kept_paths(keep_in, lesson, names) if keep_in else {}
    return service.jobs.add(lesson, kept, effort=effort, rename=rename, asked=asked)


def _resolved(service: Service, lesson: Lesson, rename: dict[str, str]) -> dict[str, str]:
    """Which class each label means.

    Raises:
        Refusal: with the pairs of names that may mean the same, for the client to decide.
    """
    try:
        return resolve_names(lesson.counts, service.known_classes(), rename)
    except SimilarNames as question:
        given, other = map(visible, question.pairs[0])
        text = (
            f"The names `{given}` and `{other}` differ only by case or blanks. If they are one "
            "class, use one name; else a name that differs by more."
        )
        raise Refusal(409, text, similar=question.pairs) from question


def _planned(service: Service, lesson: Lesson, effort: Effort, rename: dict[str, str]) -> PlanOut:
    service.refuse_unfinished()
    names = _resolved(service, lesson, rename)
    source = lesson.write_list("photos.csv")
    settings = service.settings
    classifier = ContinualClassifier(settings.folder, settings.backbone, **settings.options)
    made = classifier.plan(source, effort=effort, rename=rename, unreadable="skip")
    weights = Path(made.backbone).name  # of a file, the name is enough
    sent = Counter(names[label] for _, label in lesson.photos)
    known = service.known_classes()
    return PlanOut(
        text=settings.for_clients(replace(made, backbone=weights).text()),
        classes=[
            PlannedClass(label=k, photos=made.photos.get(k, 0), sent=n, new=k not in known)
            for k, n in sorted(sent.items())
        ],
        notes=[settings.for_clients(note) for note in made.notes],
        left_out=lesson.left_out,
        answers_after_seconds=made.first_answer,
        done_after_seconds=round(sum(made.seconds.values()), 2),
    )


@router.delete("/api/unfinished")
def drop(service: ServiceOf) -> ChangedOut:
    """Drop a session that was begun outside of this server and is not finished."""
    if service.unfinished() is None:
        raise Refusal(404, "There is no such session. GET /api/state names one as `unfinished`.")
    text = drop_unfinished(service.store)
    return ChangedOut(version=service.version(), text=text)


# Jobs. ---------------------------------------------------------------------------------------


@router.get("/api/jobs", response_model=JobsOut)
def jobs(service: ServiceOf) -> dict[str, Any]:
    """All jobs, the newest first."""
    return {"jobs": [job.to_dict() for job in service.jobs.all()]}


@router.get("/api/jobs/{name}", response_model=JobOut)
def job(name: str, service: ServiceOf) -> dict[str, Any]:
    """One job."""
    return _found(service, name).to_dict()


@router.delete("/api/jobs/{name}", response_model=JobOut)
def cancel(name: str, service: ServiceOf) -> dict[str, Any]:
    """Cancel a job; an ended one stays as it is. `message` says at last what is left of it."""
    return service.learning.cancel(_found(service, name).id).to_dict()


@router.get("/api/jobs/{name}/events", response_class=StreamingResponse)
async def events(name: str, service: ServiceOf) -> StreamingResponse:
    """The job at every change, as server-sent events, until it has ended."""
    _found(service, name)
    if service.followers >= service.settings.limits.streams:
        raise Refusal(503, "Too many clients follow jobs. Ask for the job itself instead.", 5)
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(
        _followed(service, name), media_type="text/event-stream", headers=headers
    )


async def _followed(service: Service, name: str) -> AsyncIterator[str]:
    service.followers += 1
    last, silent = "", 0.0
    try:
        while (job := service.jobs.get(name)) is not None:
            data = JobOut(**job.to_dict()).model_dump_json()
            if data != last or silent >= ALIVE:
                yield f"event: job\ndata: {data}\n\n"
                last, silent = data, 0.0
            if job.is_settled:
                return
            await asyncio.sleep(POLL)
            silent += POLL
    finally:
        service.followers -= 1


def _found(service: Service, name: str) -> Job:
    job = service.jobs.get(name)
    if job is None:
        raise Refusal(404, "There is no such job. GET /api/jobs lists them.")
    return job
