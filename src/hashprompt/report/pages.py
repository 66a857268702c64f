"""Self-contained HTML pages from the templates in this folder."""

import base64
import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from hashprompt.texts import counted, visible

if TYPE_CHECKING:
    from jinja2 import Environment


class PageFigure(NamedTuple):
    """A figure as PNGs on light and on dark paper."""

    light: bytes
    dark: bytes
    alt: str
    caption: str


def render_template(name: str, **content: Any) -> str:
    """The page of a template; whatever it shows of `content` is escaped."""
    return _environment().get_template(name).render(content)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only pages need it

    environment = Environment(
        loader=PackageLoader("hashprompt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    for function in (cell_text, counted, data_url, decimals, percent, plain):
        environment.filters[function.__name__] = function
    return environment


def _shown(value: Any) -> Any:
    """Whatever a template shows: text is `visible`, HTML is left unchanged."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def data_url(image: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def plain(value: Any) -> str:
    """Any JSON value as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cell_text(value: Any) -> str:
    return f"{value:,}" if type(value) is int else plain(value)


def decimals(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def percent(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:.{digits}f} %"
