"""The application: routes, errors in words, and the guard around them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from hashprompt import __version__
from hashprompt.errors import UserError, shortened
from hashprompt.serve.guard import Guard
from hashprompt.serve.learning import Learn, LearnProcess
from hashprompt.serve.metrics import Metrics
from hashprompt.serve.models import Problem
from hashprompt.serve.problems import Refusal, problem_response
from hashprompt.serve.routes import asking, pages, past, teaching, unsure
from hashprompt.serve.service import Service
from hashprompt.serve.settings import ServeSettings

ROUTERS = (asking.router, teaching.router, past.router, unsure.router, pages.router)


def create_app(
    settings: ServeSettings, start_learn: Callable[[dict[str, Any]], Learn] = LearnProcess
) -> ASGIApp:
    """A server as an ASGI application.

    Args:
        start_learn: begins a learn; by default in a process of its own.

    Raises:
        UserError: if the folder is no classifier.
    """
    metrics = Metrics()
    service = Service(settings, metrics, start_learn)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        running = service.running()
        await run_in_threadpool(running.__enter__)
        try:
            yield
        finally:
            await run_in_threadpool(running.__exit__, None, None, None)

    app = FastAPI(
        title="hashprompt serve",
        version=__version__,
        summary="Teach and ask a classifier that keeps learning.",
        docs_url=None,  # FastAPI's own load from another host
        redoc_url=None,
        lifespan=lifespan,
        responses={"4XX": {"model": Problem}, "503": {"model": Problem}},
    )
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router)
    app.add_exception_handler(HTTPException, _in_words)
    app.add_exception_handler(UserError, _in_words)
    app.add_exception_handler(RequestValidationError, _in_words)
    return Guard(app, settings, metrics)


async def _in_words(request: Request, error: Exception) -> Response:
    """What was wrong with a request, as all problems are told."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        text = f"{where}: {first['msg']}" if where else str(first["msg"])
        error = Refusal(422, f"The request is not as expected: {shortened(text, 200)}.")
    elif isinstance(error, UserError):
        error = Refusal(400, _without_paths(request, str(error)))
    assert isinstance(error, HTTPException)
    return problem_response(error, str(request.state.request_id))


def _without_paths(request: Request, text: str) -> str:
    """Where the classifier lies is nothing for clients."""
    folder = request.app.state.service.settings.folder
    for parent in (folder.resolve().parent, folder.parent):
        text = text.replace(f"{parent}/", "") if str(parent) not in (".", "/") else text
    return text
