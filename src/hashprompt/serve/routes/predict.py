"""Ask, and the state of the server."""

import time

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from hashprompt.photos.answers import Answer
from hashprompt.photos.learn_job import Effort
from hashprompt.serve.http.forms import WRONG_FORM, FormReader, Write
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.predict_queue import Prediction
from hashprompt.serve.routes.models import JobOut, PhotoForm, documented
from hashprompt.serve.service import Service, ServiceOf
from hashprompt.serve.settings import Limits

router = APIRouter(tags=["ask"])
TOP = 5
Photos = list[tuple[str, bytearray]]


class Share(BaseModel):
    label: str
    probability: float | None


class Near(BaseModel):
    """A class that a photo reminds of, and the session that it came from."""

    label: str
    session: str
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


class StateOut(BaseModel):
    name: str
    version: int
    classes: int
    read_only: bool
    keep_unsure: bool
    keep_photos: bool
    effort: Effort
    limits: Limits
    job: JobOut | None
    unfinished: str | None  # photos of a session that was begun elsewhere and is not finished
    unsure: int


class HealthOut(BaseModel):
    status: str = "ok"
    version: int


@router.post("/api/ask", openapi_extra=documented(PhotoForm))
async def ask(request: Request, service: ServiceOf) -> AnswersOut:
    """What is in photos; an image that cannot be read has an `error` in place of an answer."""
    started = time.perf_counter()
    photos = await _received(request, service)
    prediction = await service.predictions.predict([(name, bytes(c)) for name, c in photos])
    service.metrics.ask_seconds.observe(time.perf_counter() - started)
    if service.review.is_on:
        await run_in_threadpool(_keep, service, prediction, photos)
    shown = [answer_out(answer, service.settings.sure) for answer in prediction.answers]
    return AnswersOut(version=prediction.version, answers=shown)


async def _received(request: Request, service: Service) -> Photos:
    """The photos of a form, in memory."""
    photos: Photos = []
    limits = service.settings.limits

    def begin(name: str, kind: str) -> Write:
        if len(photos) >= limits.asked_photos:
            raise Refusal(413, f"Ask about at most {limits.asked_photos} photos at a time.")
        photos.append((name, bytearray()))
        return photos[-1][1].extend

    await FormReader(begin, limits.photo_bytes).read(request)
    if not photos:
        raise Refusal(400, f"No photo was sent. {WRONG_FORM}")
    return photos


def answer_out(answer: Answer, sure: float) -> AnswerOut:
    """An answer as the API gives it."""
    shown = answer.to_dict(TOP)
    return AnswerOut(
        file=answer.name,
        label=None if answer.label is None else str(answer.label),
        probability=shown["confidence"],
        top=[Share(label=k, probability=v) for k, v in shown["probabilities"].items()],
        unknown=shown["unknown"],
        is_unknown=shown["is_unknown"],
        unsure=not answer.is_unknown and answer.confidence < sure if answer.error is None else None,
        reminds_of=[
            Near(label=near["class"], session=near["learned"], distance=near["distance"])
            for near in shown["reminds_of"]
        ],
        error=answer.error,
    )


def _keep(service: Service, prediction: Prediction, photos: Photos) -> None:
    rows = zip(prediction.answers, prediction.features, photos, strict=True)
    for answer, feature, (_, content) in rows:
        if feature is not None:
            service.review.keep(answer, feature, bytes(content))


@router.get("/api/state")
def state(service: ServiceOf) -> StateOut:
    """Settings and state of the server."""
    settings, unfinished = service.settings, service.jobs.unfinished()
    return StateOut(
        name=settings.name,
        version=service.version(),
        classes=len(service.known_classes()),
        read_only=settings.read_only,
        keep_unsure=service.review.is_on,
        keep_photos=settings.photos is not None,
        effort=settings.effort,
        limits=settings.limits,
        job=JobOut(**unfinished[0].to_dict()) if unfinished else None,
        unfinished=service.unfinished(),
        unsure=len(service.review),
    )


@router.get("/api/health")
def health(service: ServiceOf) -> HealthOut:
    """Whether the server lives; no token is needed."""
    return HealthOut(version=service.version())


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(service: ServiceOf) -> Response:
    """Numbers for Prometheus."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)
