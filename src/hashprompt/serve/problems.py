"""What is answered in place of what was asked for."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

FAULT = "Something went wrong here. Try again later."


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


def problem_response(problem: HTTPException, request_id: str) -> JSONResponse:
    content = {"error": problem.detail, "request": request_id, **getattr(problem, "more", {})}
    return JSONResponse(content, problem.status_code, problem.headers)
