"""Ask, and how the server is."""

import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse

from hashprompt.photos.answers import Answer
from hashprompt.serve.answering import Answered
from hashprompt.serve.http.uploads import AskedFile, Question
from hashprompt.serve.models import PHOTO_FORM, AnswersOut, HealthOut, StateOut
from hashprompt.serve.service import Service, ServiceOf

router = APIRouter(tags=["ask"])
TOP = 5


@router.post("/api/ask", response_model=AnswersOut, openapi_extra=PHOTO_FORM)
async def ask(request: Request, service: ServiceOf) -> dict[str, Any]:
    """What is in photos; an image that cannot be read has an `error` in place of an answer."""
    started = time.perf_counter()
    with Question.received(service.settings.limits, service.budget) as question:
        await question.read(request)
        photos = [(file.name, bytes(file.content)) for file in question.files]
        answered = await service.answering.ask(photos)
        service.metrics.took(time.perf_counter() - started)
        if service.asked.is_on:
            await run_in_threadpool(_keep, service, answered, question.files)
    shown = [answer_out(answer, service.settings.sure) for answer in answered.answers]
    return {"version": answered.version, "answers": shown}


def answer_out(answer: Answer, sure: float) -> dict[str, Any]:
    """An answer as the API gives it."""
    told = answer.to_dict(TOP)
    return {
        "file": answer.name,
        "label": None if answer.label is None else str(answer.label),
        "probability": told["confidence"],
        "top": [{"label": k, "probability": v} for k, v in told["probabilities"].items()],
        "unknown": told["unknown"],
        "is_unknown": told["is_unknown"],
        "unsure": _is_unsure(answer, sure) if answer.error is None else None,
        "reminds_of": [
            {"label": near["class"], "learn": near["learned"], "distance": near["distance"]}
            for near in told["reminds_of"]
        ],
        "error": answer.error,
    }


def _is_unsure(answer: Answer, sure: float) -> bool:
    return not answer.is_unknown and answer.confidence < sure


def _keep(service: Service, answered: Answered, files: list[AskedFile]) -> None:
    for answer, feature, file in zip(answered.answers, answered.features, files, strict=True):
        if feature is not None:
            service.asked.keep(answer, feature, bytes(file.content))


@router.get("/api/state", response_model=StateOut)
def state(service: ServiceOf) -> dict[str, Any]:
    """What the server is about."""
    settings, unfinished = service.settings, service.jobs.unfinished()
    limits = settings.limits
    shown = ("photos", "asked_photos", "photo_bytes", "body_bytes", "asked_bytes")
    return {
        "name": settings.name,
        "version": service.version(),
        "classes": len(service.known_classes()),
        "read_only": settings.read_only,
        "keep_asked": service.asked.is_on,
        "keep_photos": settings.photos is not None,
        "effort": settings.effort,
        "limits": {name: getattr(limits, name) for name in shown},
        "job": unfinished[0].to_dict() if unfinished else None,
        "unfinished": service.unfinished(),
        "unsure": len(service.asked),
    }


@router.get("/api/health", response_model=HealthOut)
def health(service: ServiceOf) -> dict[str, Any]:
    """Whether the server lives; no token is needed."""
    return {"status": "ok", "version": service.version()}


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(service: ServiceOf) -> str:
    """Numbers for Prometheus."""
    return service.metrics.text()
