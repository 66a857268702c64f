"""Answers to requests that are not carried out."""

from importlib.resources import files
from typing import Any

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse

from hashprompt.errors import shortened

PAGE = files("hashprompt.serve") / "page"
FAULT = "Unexpected error of the server. Try again later."


class Problem(BaseModel):
    """Why a request was not carried out, and what to do."""

    error: str
    request: str


class Refusal(HTTPException):
    """A request that is not carried out: what is wrong and what to do.

    Args:
        retry_after: seconds after which to try again.
        more: fields of the answer besides `error` and `request`.
    """

    def __init__(
        self, status: int, error: str, retry_after: int | None = None, **more: Any
    ) -> None:
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        super().__init__(status, error, headers)
        self.more = more


def too_large(what: str, max_bytes: int) -> Refusal:
    return Refusal(413, f"{shortened(what)} is too large: the limit is {max_bytes / 1e6:g} MB.")


def page_file(name: str) -> bytes:
    """A file of the page, in the package."""
    return (PAGE / name).read_bytes()


def token_page() -> HTMLResponse:
    """For people who open the page without the token; programs get a `Problem`."""
    return HTMLResponse(page_file("token.html"), 401)


def problem_response(problem: HTTPException, request_id: str) -> JSONResponse:
    content = {"error": problem.detail, "request": request_id, **getattr(problem, "more", {})}
    return JSONResponse(content, problem.status_code, problem.headers)
