"""The page, and the list of routes for people."""

import html

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from hashprompt.serve.http.guard import COOKIE, page_tokens
from hashprompt.serve.http.problems import page_file
from hashprompt.serve.service import ServiceOf

router = APIRouter(include_in_schema=False)


@router.get("/")
def page(request: Request, service: ServiceOf) -> Response:
    """The page. A token in its address becomes a cookie."""
    response = HTMLResponse(page_file("index.html"))
    token = service.settings.token
    if token is not None and page_tokens(request):  # the guard has compared them
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
    return response


@router.get("/docs")
def docs(request: Request) -> HTMLResponse:
    """The routes of /openapi.json as a table; the page loads nothing from other sites."""
    rows = [
        f"<tr><td><code>{method.upper()} {path}</code></td>"
        f"<td>{html.escape(route.get('description', ''))}</td></tr>"
        for path, methods in request.app.openapi()["paths"].items()
        for method, route in methods.items()
    ]
    template = page_file("docs.html").decode()
    return HTMLResponse(template.replace("<!-- rows -->", "".join(rows)))
