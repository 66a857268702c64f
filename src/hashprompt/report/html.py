"""One self-contained page per run: headline numbers, figures, protocol, how to reproduce it."""

import base64
import json
import shlex
from collections.abc import Iterable, Sequence
from functools import partial
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from hashprompt.engine.checkpoint import write_atomically
from hashprompt.report import ResultData, read_result
from hashprompt.report.figures import FIGURES, render

METRICS = {
    "FAA": "Final average accuracy: the mean over all tasks, after the last one. Higher is better.",
    "CAA": "Cumulative average accuracy: the mean of the averages after each task. "
    "Higher is better.",
    "FM": "Forgetting: the points a task loses on average between its best moment and the end. "
    "Lower is better.",
    "BWT": "Backward transfer: the mean change of a task from just learned to the end. "
    "Below zero is forgetting.",
}

CAPTIONS = {
    "accuracy_matrix": "Read a row from left to right to see what later tasks do to one task. "
    "The diagonal is accuracy right after learning; the last column is what remains.",
    "accuracy_curves": "The gap between new classes and the average is what was forgotten or "
    "confused. Where task inference is low, images are sent to the wrong task's prompt.",
    "usage_per_task": "One row per task. A bright column is an expert that many tasks share; "
    "bright cells scattered over the row are experts a task keeps to itself.",
    "usage_overall": "Bars far above the dashed line are experts that carry most of the work. "
    "Entropy 1 is even use, 0 a single expert.",
    "routing_entropy": "Near the bound the chosen experts are mixed equally; near zero one of "
    "them decides.",
    "parameters": "Prompts and routers are what the method learns; statistics are stored class "
    "Gaussians. The frozen backbone is not counted.",
    "timings": "Seconds each phase took, per task, on the machine of this run.",
}

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
th { font-weight: 600; white-space: nowrap; } td { font-variant-numeric: tabular-nums; }
pre { margin: 0; padding: 1rem; white-space: pre-wrap; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; }
summary { cursor: pointer; }
</style>
</head>
<body>
$body
</body>
</html>
""")


def write_report(run_dir: Path) -> Path:
    """Write figures/*.png and report.html beside result.json; the path of the page."""
    result = read_result(run_dir)
    figures = []
    for name, draw in FIGURES.items():
        light = render(partial(draw, result))
        dark = render(partial(draw, result), dark=True)
        if light and dark:
            write_atomically(run_dir / "figures" / f"{name}.png", light)
            figures.append(_figure(name, light, dark))
    page = run_dir / "report.html"
    write_atomically(page, render_page(result, figures).encode())
    return page


def render_page(result: ResultData, figures: Iterable[str]) -> str:
    """The page of a run, given its figures as HTML."""
    config = result["config"]
    title = f"{config['method']} on {config['stream']}"
    lead = " · ".join(
        f"{name} {config[name]}"
        for name in ("preset", "backbone", "seed")
        if config.get(name) is not None
    )
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(lead)}</p>',
        _legacy_warning(result["protocol"].get("legacy")),
        f'<div class="grid metrics">{"".join(_metrics(result["metrics"]))}</div>',
        f'<h2>Figures</h2>\n<div class="grid columns">{"".join(figures)}</div>',
        _section("Reproduce", f"<pre>{escape(reproduce_command(config))}</pre>"),
        _section("Protocol", _pairs(result["protocol"])),
        '<div class="grid columns"><div>',
        _section("Options", _pairs(config.get("options"))),
        "</div><div>",
        _section("Images through the backbone", _pairs(result.get("passes"))),
        _section("Versions", _pairs(result.get("versions"))),
        "</div></div>",
        _section("Accuracy in numbers", _matrix(result["accuracy"])),
        _section("Diagnostics per task", _records(result.get("diagnostics"))),
    ]
    return PAGE.substitute(title=escape(title), body="\n".join(filter(None, parts)))


def reproduce_command(config: dict[str, Any]) -> str:
    """The command line that repeats a run, every option spelt out so that defaults may change."""
    flags = [
        f"--{name} {shlex.quote(str(config[name]))}"
        for name in ("method", "preset", "stream", "backbone", "seed")
        if config.get(name) is not None
    ]
    options = [
        f"--set {shlex.quote(f'{name}={_plain(value)}')}"
        for name, value in config.get("options", {}).items()
    ]
    return " ".join(["hashprompt run", *flags, *options])


def _metrics(metrics: dict[str, float | None]) -> Iterable[str]:
    for name, meaning in METRICS.items():
        value = metrics.get(name)
        number = "–" if value is None else f"{value:.2f}"
        yield f'<div class="card">{name}<b>{number}</b><p>{meaning}</p></div>\n'


def _figure(name: str, light: bytes, dark: bytes) -> str:
    return (
        f'<figure><picture><source srcset="{_data_url(dark)}" '
        f'media="(prefers-color-scheme: dark)"><img src="{_data_url(light)}" '
        f'alt="{name.replace("_", " ")}"></picture>'
        f"<figcaption>{CAPTIONS[name]}</figcaption></figure>\n"
    )


def _data_url(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _legacy_warning(switches: Sequence[str] | None) -> str:
    if not switches:
        return ""
    return (
        f'<div class="card warning">Legacy switches were on: {escape(", ".join(switches))}. '
        "These numbers repeat a published flaw and do not compare with those of other runs.</div>"
    )


def _section(title: str, content: str) -> str:
    return f"<h2>{title}</h2>\n{content}" if content else ""


def _pairs(values: dict[str, Any] | None) -> str:
    return _table([], [[name, value] for name, value in (values or {}).items()])


def _matrix(accuracy: list[list[float | None]]) -> str:
    header = ["on task", *(f"after {t + 1}" for t in range(len(accuracy)))]
    rows = [
        [i + 1, *("" if a is None else f"{a:.2f}" for a in row)] for i, row in enumerate(accuracy)
    ]
    return _table(header, rows)


def _records(records: list[dict[str, Any]] | None) -> str:
    names = list(dict.fromkeys(name for record in records or [] for name in record))
    rows = [[_number(record.get(name), name) for name in names] for record in records or []]
    return _table(names, rows)


def _number(value: Any, name: str) -> Any:
    if name == "task":
        return value + 1
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else value


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        f"<tr><th>{escape(_plain(first))}</th>{''.join(f'<td>{_cell(v)}</td>' for v in rest)}</tr>"
        for first, *rest in rows
    )
    return f'<div class="card scroll"><table><tr>{head}</tr>{body}</table></div>'


def _cell(value: Any) -> str:
    text = f"{value:,}" if type(value) is int else _plain(value)
    if len(text) <= 100:
        return escape(text)
    return f"<details><summary>{escape(text[:90])}…</summary>{escape(text)}</details>"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
