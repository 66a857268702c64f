"""Pieces that pages are made of: one file, light and dark, no scripts, nothing from elsewhere."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from string import Template
from typing import Any

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1d2126; --soft: #5c6570; --paper: #f4f5f7;
  --card: #ffffff; --line: #dde1e6; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --soft: #a2abb6;
  --paper: #121417; --card: #1c1f24; --line: #343a42; --accent: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 1120px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.7rem; } h2 { margin: 2.5rem 0 .8rem; font-size: 1.2rem; }
.lead { margin: .2rem 0 1.5rem; color: var(--soft); }
.grid { display: grid; gap: 1rem; }
.metrics { grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); }
.columns { grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
.card, figure { margin: 0; padding: 1rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; }
.card b { display: block; font-size: 2.2rem; line-height: 1.2; color: var(--accent); }
.card p, figcaption { margin: .3rem 0 0; color: var(--soft); font-size: .88rem; }
.warning { margin-bottom: 1rem; border-left: 5px solid #d55e00; }
img { display: block; width: 100%; height: auto; }
table { border-collapse: collapse; min-width: 60%; } .scroll { overflow-x: auto; }
th, td { padding: .3rem .9rem .3rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { font-weight: 600; white-space: nowrap; }
td { min-width: 3.2rem; font-variant-numeric: tabular-nums; }
pre { margin: 0; padding: 1rem; white-space: pre-wrap; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; }
summary { cursor: pointer; } figure + details, details > .card { margin-top: .6rem; }
.small b { font-size: 1.5rem; white-space: nowrap; }
.notes { padding-left: 2rem; }
.photos { grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); }
.photos figure { padding: .6rem; } .photos .lost { border-color: #d55e00; }
.photos img { height: 140px; object-fit: contain; }
.photos figcaption { overflow-wrap: anywhere; line-height: 1.35; }
.photos strong { color: var(--ink); } .lost em { color: #d55e00; font-style: normal; }
</style>
</head>
<body>
$body
</body>
</html>
""")


def make_page(title: str, parts: Iterable[str]) -> str:
    """A page with a title (text) and its parts (HTML); empty parts are left out."""
    return PAGE.substitute(title=escape(title), body="\n".join(filter(None, parts)))


def figure(light: bytes, dark: bytes, alt: str, caption: str) -> str:
    """A figure from its PNGs on light and on dark paper; `alt` and `caption` are text."""
    return (
        f'<figure><picture><source srcset="{data_url(dark)}" '
        f'media="(prefers-color-scheme: dark)"><img src="{data_url(light)}" '
        f'alt="{escape(alt)}"></picture>'
        f"<figcaption>{escape(caption, quote=False)}</figcaption></figure>\n"
    )


def data_url(image: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


def card(name: str, value: str, meaning: str) -> str:
    """A headline number; all three are text."""
    texts = (escape(text, quote=False) for text in (name, value, meaning))
    return '<div class="card">{}<b>{}</b><p>{}</p></div>\n'.format(*texts)


def warning(text: str) -> str:
    return f'<div class="card warning">{escape(text, quote=False)}</div>'


def paragraph(text: str) -> str:
    return f"<p>{escape(text, quote=False)}</p>" if text else ""


def section(title: str, content: str) -> str:
    return f"<h2>{title}</h2>\n{content}" if content else ""


def pairs(values: Mapping[str, Any] | None) -> str:
    return table([], [[name, value] for name, value in (values or {}).items()])


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table whose first column names the rows; empty without rows. Cells are any JSON value."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        f"<tr><th>{escape(plain(first))}</th>{''.join(f'<td>{_cell(v)}</td>' for v in rest)}</tr>"
        for first, *rest in rows
    )
    return f'<div class="card scroll"><table><tr>{head}</tr>{body}</table></div>'


def _cell(value: Any) -> str:
    text = f"{value:,}" if type(value) is int else plain(value)
    if len(text) <= 100:
        return escape(text)
    return f"<details><summary>{escape(text[:90])}…</summary>{escape(text)}</details>"


def plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
