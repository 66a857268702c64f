"""The page, and the list of routes for people."""

import html
import re
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from hashprompt.serve.http.guard import COOKIE, page_tokens
from hashprompt.serve.http.problems import Refusal
from hashprompt.serve.service import ServiceOf

router = APIRouter(include_in_schema=False)
PAGE = files("hashprompt.serve") / "page"
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@router.get("/")
def page(request: Request, service: ServiceOf) -> Response:
    """The page; opened with the token, it remembers it."""
    response = HTMLResponse(_asset("index.html"))
    token = service.settings.token
    if token is not None and page_tokens(request.scope):  # the guard has compared them
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
    return response


@router.get("/static/{name}")
def static(name: str) -> Response:
    """Scripts, style and pictures of the page."""
    found = re.fullmatch("[a-z-]+([.][a-z]+)", name)
    if not found or found[1] not in KINDS:
        raise Refusal(404, "There is no such file.")
    return Response(_asset(name), media_type=KINDS[found[1]], headers={"Cache-Control": "no-cache"})


def _asset(name: str) -> bytes:
    """A file of the package."""
    try:
        return (PAGE / name).read_bytes()
    except FileNotFoundError:
        raise Refusal(404, "There is no such file.") from None


@router.get("/docs")
def docs(request: Request) -> HTMLResponse:
    """The routes, made of /openapi.json; nothing is loaded from elsewhere."""
    api: dict[str, Any] = request.app.openapi()
    rows = []
    for path, methods in api["paths"].items():
        for method, route in methods.items():
            told = html.escape(route.get("description") or route.get("summary") or "")
            name = html.escape(f"{method.upper()} {path}")
            rows.append(f"<tr><td><code>{name}</code></td><td>{told}</td></tr>")
    title = html.escape(api["info"]["title"])
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="/static/app.css"></head><body class="docs"><main>'
        f'<h1>{title}</h1><p>For programs: <a href="/openapi.json">openapi.json</a>.</p>'
        f"<table><thead><tr><th>Route</th><th>What it does</th></tr></thead><tbody>"
        f"{''.join(rows)}</tbody></table></main></body></html>"
    )
