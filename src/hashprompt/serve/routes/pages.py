"""The page, and the list of routes for people."""

import html
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from hashprompt.serve.http.guard import COOKIE, page_tokens
from hashprompt.serve.service import ServiceOf

router = APIRouter(include_in_schema=False)
PAGE = files("hashprompt.serve") / "page"


@router.get("/")
def page(request: Request, service: ServiceOf) -> Response:
    """The page; opened with the token, it remembers it."""
    response = HTMLResponse((PAGE / "index.html").read_bytes())
    token = service.settings.token
    if token is not None and page_tokens(request):  # the guard has compared them
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
    return response


@router.get("/docs")
def docs(request: Request) -> HTMLResponse:
    """The routes, made of /openapi.json; nothing is loaded from elsewhere."""
    api: dict[str, Any] = request.app.openapi()
    rows = []
    for path, methods in api["paths"].items():
        for method, route in methods.items():
            text = html.escape(route.get("description") or route.get("summary") or "")
            name = html.escape(f"{method.upper()} {path}")
            rows.append(f"<tr><td><code>{name}</code></td><td>{text}</td></tr>")
    title = html.escape(api["info"]["title"])
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="/static/app.css"></head><body class="docs"><main>'
        f'<h1>{title}</h1><p>For programs: <a href="/openapi.json">openapi.json</a>.</p>'
        f"<table><thead><tr><th>Route</th><th>Purpose</th></tr></thead><tbody>"
        f"{''.join(rows)}</tbody></table></main></body></html>"
    )
