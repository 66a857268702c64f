"""One self-contained page per run: metrics, figures, protocol, command to reproduce it."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hashprompt.errors import UserError
from hashprompt.report import ResultData, read_result
from hashprompt.report.figures import FIGURES, page_figure
from hashprompt.report.pages import PageFigure, plain, render_template
from hashprompt.runs.plan import make_plan
from hashprompt.storage.files import inside, write_atomically

Table = tuple[list[str], list[list[Any]]]  # header and rows

CAPTIONS = {
    "accuracy_matrix": "Read a row from left to right: how later tasks change the accuracy on one.",
    "accuracy_curves": "The gap between new classes and all classes is forgetting and confusion.",
    "usage_per_task": "A bright column is an expert that many tasks use. Entropy 1 is equal use.",
    "routing": "With no variance between images the pool acts as a single prompt.",
    "drift": "Distance of stored means of old classes from means of their images today.",
    "parameters": "Values stored next to the frozen ViT, by kind; tii: task inference.",
    "timings": "Seconds of each phase; tii: task inference, wtp: prompts, tap: final head.",
}
MIN_ROUTING_VARIANCE = 0.01  # share of the mixing weights; below it, all images share one prompt


def write_report(run_dir: Path) -> Path:
    """Write figures/*.png and report.html next to result.json; returns the page."""
    result = read_result(run_dir)
    figures = []
    for name, draw in FIGURES.items():
        figure = page_figure(partial(draw, result), name.replace("_", " "), CAPTIONS[name])
        if figure:
            write_atomically(inside(run_dir, "figures", f"{name}.png"), figure.light)
            figures.append(figure)
    page = inside(run_dir, "report.html")
    write_atomically(page, render_page(result, figures).encode())
    return page


def render_page(result: ResultData, figures: Sequence[PageFigure]) -> str:
    """The page of a run, given its figures."""
    config = result["config"]
    names = {name: config.get(name) for name in ("preset", "backbone", "seed")}
    diagnostics = result.get("diagnostics") or []
    return render_template(
        "run.html",
        title=f"{config['method']} on {config['stream']}",
        lead=" · ".join(f"{name} {v}" for name, v in names.items() if v is not None),
        result=result,
        figures=figures,
        command=reproduce_command(config),
        accuracy=_matrix(result["accuracy"]),
        diagnostics=_records(diagnostics),
        routing=routing_note(diagnostics),
    )


def reproduce_command(config: dict[str, Any]) -> str:
    """The command of a run, with the options that differ from the preset."""
    asked = ("method", "preset", "stream", "backbone", "seed")
    names = {name: config[name] for name in asked if name in config}
    try:
        of_preset = make_plan(**names, files_needed=False).options()
    except UserError:  # an unknown method or preset
        of_preset = {}
    flags = [f"--{name} {shlex.quote(str(value))}" for name, value in names.items()]
    options = [
        f"--set {shlex.quote(f'{name}={plain(value)}')}"
        for name, value in (config.get("options") or {}).items()
        if name not in of_preset or value != of_preset[name]
    ]
    return " ".join(["hashprompt run", *flags, *options])


def routing_note(diagnostics: list[dict[str, Any]]) -> str:
    """A sentence that names the tasks after which the routing hardly depended on the image."""
    varies = {e["task"] + 1: e.get("routing_varies") for e in diagnostics}
    same = [str(t) for t, v in varies.items() if v is not None and v < MIN_ROUTING_VARIANCE]
    if not same:
        return ""
    return (
        f"After task {', '.join(same)} the router gave nearly all images the same weights, so the "
        "pool acts as one prompt; averaged-prompt has one prompt and no router."
    )


def _matrix(accuracy: list[list[float | None]]) -> Table:
    numbered = enumerate(accuracy, 1)
    rows = [[n, *("" if a is None else f"{a:.2f}" for a in row)] for n, row in numbered]
    return ["on task", *(f"after {row[0]}" for row in rows)], rows


def _records(records: list[dict[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for record in records for name in record))
    return names, [[_number(record.get(name), name) for name in names] for record in records]


def _number(value: Any, name: str) -> Any:
    if name == "task":
        return value + 1
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else value
