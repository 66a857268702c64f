"""What is answered in place of what was asked for."""

from typing import Any

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse

from hashprompt.errors import shortened

FAULT = "Something went wrong here. Try again later."
TOKEN_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>hashprompt</title></head><body>
<h1>This server wants its token</h1>
<p>It printed an address with the token when it started: open that, or type the token here.</p>
<form action="/"><label>Token <input name="token" type="password" required autofocus></label>
<button>Open</button></form></body></html>
"""


class Problem(BaseModel):
    """Why a request was not carried out, and what to do."""

    error: str
    request: str


class Refusal(HTTPException):
    """A request that is not carried out: what is wrong and what to do.

    Args:
        more: beside `error` and `request` in the answer.
        retry_after: seconds after which it may be tried again.
    """

    def __init__(
        self, status: int, error: str, retry_after: int | None = None, **more: Any
    ) -> None:
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        super().__init__(status, error, headers)
        self.more = more


def too_large(what: str, most: int) -> Refusal:
    return Refusal(413, f"{shortened(what)} is too large: at most {most / 1e6:g} MB are taken.")


def token_page() -> HTMLResponse:
    """For people who open the page without the token; programs are told as of any problem."""
    return HTMLResponse(TOKEN_PAGE, 401)


def problem_response(problem: HTTPException, request_id: str) -> JSONResponse:
    content = {"error": problem.detail, "request": request_id, **getattr(problem, "more", {})}
    return JSONResponse(content, problem.status_code, problem.headers)
