"""Answers to photos, and the state of the server."""

import time
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from hashprompt.photos.answers import Answer
from hashprompt.serve.http.forms import WRONG_FORM, FormReader, Write
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.routes.models import PhotoForm, documented
from hashprompt.serve.service import ServiceOf
from hashprompt.serve.settings import Limits

router = APIRouter(tags=["ask"])
TOP = 5  # classes of an answer


@router.post("/api/ask", openapi_extra=documented(PhotoForm))
async def ask(request: Request, service: ServiceOf) -> dict[str, Any]:
    """Classify photos. Answers have the fields of hashprompt predict --json, and unsure."""
    started = time.perf_counter()
    photos = await _received(request, service.settings.limits)
    prediction = await service.predictions.predict(photos)
    service.metrics.ask_seconds.observe(time.perf_counter() - started)
    if service.review.is_on:
        contents = [content for _, content in photos]
        await run_in_threadpool(service.review.keep_all, prediction, contents)
    answers = [_shown(answer, service.settings.sure) for answer in prediction.answers]
    return {"version": prediction.version, "answers": answers}


def _shown(answer: Answer, sure: float) -> dict[str, Any]:
    unsure = answer.error is None and not answer.is_unknown and answer.confidence < sure
    return {**answer.to_dict(TOP), "unsure": unsure}


async def _received(request: Request, limits: Limits) -> list[tuple[str, bytes]]:
    """Names and contents of the photos of a form."""
    photos: list[tuple[str, bytearray]] = []

    def begin(name: str, kind: str) -> Write:
        photos.append((name, bytearray()))
        return photos[-1][1].extend

    await FormReader(request, begin, limits.asked_photos, limits.photo_bytes).read()
    if not photos:
        raise Refusal(400, f"No photo was sent. {WRONG_FORM}")
    return [(name, bytes(content)) for name, content in photos]


@router.get("/api/state")
def state(service: ServiceOf) -> dict[str, Any]:
    """Settings and state of the server."""
    settings, jobs = service.settings, service.jobs.unfinished()
    return {
        "name": settings.name,
        "version": service.version(),
        "classes": len(service.known_classes()),
        "read_only": settings.read_only,
        "keep_unsure": service.review.is_on,
        "keep_photos": settings.photos is not None,
        "effort": settings.effort,
        "limits": settings.limits,
        "job": jobs[0].to_dict() if jobs else None,
        "unfinished": service.unfinished(),  # a session that this server did not start
        "unsure": len(service.review),
    }


@router.get("/api/health")
def health(service: ServiceOf) -> dict[str, Any]:
    """Whether the server runs; no token is needed."""
    return {"status": "ok", "version": service.version()}


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(service: ServiceOf) -> Response:
    """Metrics for Prometheus."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)
