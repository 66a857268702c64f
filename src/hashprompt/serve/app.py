"""The application: routes, errors in words, and the guard around them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from hashprompt import __version__
from hashprompt.errors import UserError, shortened
from hashprompt.serve.http.guard import Guard
from hashprompt.serve.http.problems import FAULT, Refusal, problem_response
from hashprompt.serve.models import Problem
from hashprompt.serve.routes import history, learn, pages, predict, review
from hashprompt.serve.service import Service

ROUTERS = (predict.router, learn.router, history.router, review.router, pages.router)


def create_app(service: Service) -> ASGIApp:
    """A server as an ASGI application, which starts the service unless that was done before."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(service.start)
        try:
            yield
        finally:
            await run_in_threadpool(service.stop)

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
    for kind in (HTTPException, UserError, RequestValidationError, Exception):
        app.add_exception_handler(kind, _in_words)
    return Guard(app, service.settings, service.metrics)


async def _in_words(request: Request, error: Exception) -> Response:
    """What was wrong with a request, as all problems are told."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        text = f"{where}: {first['msg']}" if where else str(first["msg"])
        error = Refusal(422, f"The request is not as expected: {shortened(text, 200)}.")
    elif isinstance(error, UserError):
        error = Refusal(400, str(error))
    elif not isinstance(error, HTTPException):  # the guard writes it to the log
        error = Refusal(503, FAULT, 5)
    error.detail = request.app.state.service.settings.for_clients(error.detail)
    return problem_response(error, str(request.state.request_id))
