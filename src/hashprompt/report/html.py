"""One self-contained page per run: headline numbers, figures, protocol, how to reproduce it."""

import shlex
from collections.abc import Iterable, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from hashprompt.report import ResultData, read_result
from hashprompt.report.figures import FIGURES, render
from hashprompt.report.pages import card, figure, make_page, pairs, plain, section, table, warning
from hashprompt.storage.files import write_atomically

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


def write_report(run_dir: Path) -> Path:
    """Write figures/*.png and report.html beside result.json; the path of the page."""
    result = read_result(run_dir)
    figures = []
    for name, draw in FIGURES.items():
        light = render(partial(draw, result))
        dark = render(partial(draw, result), dark=True)
        if light and dark:
            write_atomically(run_dir / "figures" / f"{name}.png", light)
            figures.append(figure(light, dark, name.replace("_", " "), CAPTIONS[name]))
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
        section("Reproduce", f"<pre>{escape(reproduce_command(config))}</pre>"),
        section("Protocol", pairs(result["protocol"])),
        '<div class="grid columns"><div>',
        section("Options", pairs(config.get("options"))),
        "</div><div>",
        section("Images through the backbone", pairs(result.get("passes"))),
        section("Versions", pairs(result.get("versions"))),
        "</div></div>",
        section("Accuracy in numbers", _matrix(result["accuracy"])),
        section("Diagnostics per task", _records(result.get("diagnostics"))),
    ]
    return make_page(title, parts)


def reproduce_command(config: dict[str, Any]) -> str:
    """The command line that repeats a run, every option spelt out so that defaults may change."""
    flags = [
        f"--{name} {shlex.quote(str(config[name]))}"
        for name in ("method", "preset", "stream", "backbone", "seed")
        if config.get(name) is not None
    ]
    options = [
        f"--set {shlex.quote(f'{name}={plain(value)}')}"
        for name, value in config.get("options", {}).items()
    ]
    return " ".join(["hashprompt run", *flags, *options])


def _metrics(metrics: dict[str, float | None]) -> Iterable[str]:
    for name, meaning in METRICS.items():
        value = metrics.get(name)
        number = "–" if value is None else f"{value:.2f}"
        yield card(name, number, meaning)


def _legacy_warning(switches: Sequence[str] | None) -> str:
    if not switches:
        return ""
    return warning(
        f"Legacy switches were on: {', '.join(switches)}. "
        "These numbers repeat a published flaw and do not compare with those of other runs."
    )


def _matrix(accuracy: list[list[float | None]]) -> str:
    header = ["on task", *(f"after {t + 1}" for t in range(len(accuracy)))]
    rows = [
        [i + 1, *("" if a is None else f"{a:.2f}" for a in row)] for i, row in enumerate(accuracy)
    ]
    return table(header, rows)


def _records(records: list[dict[str, Any]] | None) -> str:
    names = list(dict.fromkeys(name for record in records or [] for name in record))
    rows = [[_number(record.get(name), name) for name in names] for record in records or []]
    return table(names, rows)


def _number(value: Any, name: str) -> Any:
    if name == "task":
        return value + 1
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else value
