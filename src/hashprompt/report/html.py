"""One self-contained page per run: headline numbers, figures, protocol, how to reproduce it."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hashprompt.errors import UserError
from hashprompt.report import ResultData, read_result
from hashprompt.report.figures import FIGURES, render
from hashprompt.report.pages import PageFigure, plain, render_template
from hashprompt.runs.plan import plan
from hashprompt.storage.files import inside, write_atomically

Table = tuple[list[str], list[list[Any]]]  # header and rows

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
    "routing": "Where all images take the favourite and nothing varies between them, the pool acts "
    "as one prompt. What varies is that of the mixing weights; evenness 1 is equal use of all.",
    "usage_overall": "Bars far above the dashed line are experts that carry most of the work. "
    "Entropy 1 is even use, 0 a single expert.",
    "routing_entropy": "Near the bound the chosen experts are mixed equally; near zero one of "
    "them decides.",
    "drift": "How far what is stored of old classes is from where their training images are now, "
    "which were looked at again for this alone. Zero is the truth.",
    "parameters": "Prompts and routers are what the method learns; statistics are those of "
    "features or gradients; backbone is weights of the ViT that were trained, and copies of them. "
    "The frozen original is not counted.",
    "timings": "Seconds each phase took, per task, on the machine of this run.",
}


SAME_WEIGHTS = 0.01  # share of the mixing weights that varies: below it, images share one prompt

# Of the names in the table of diagnostics that do not explain themselves.
DIAGNOSTICS = {
    "routing_entropy": "entropy of the mixing weights of an image, in nats",
    "score_std": "spread of an image's scores over the experts",
    "share_protected": "choices that fell on protected experts",
    "routing_varies": "share of the mixing weights that varies between images; 0: all get the same",
    "routing_by_class": "share of that which lies between classes",
    "favourite_share": "images that take the expert most taken",
    "favourites_share": "choices that fall on the k experts most taken",
    "usage_entropy": "evenness of use, 1 is the same for all experts",
    "delta_over_spread": "penalty δ over the spread of the scores it is taken off",
    "drift": "distance of stored class means from the truth, in spreads of a class",
}


def write_report(run_dir: Path) -> Path:
    """Write figures/*.png and report.html beside result.json; the path of the page."""
    result = read_result(run_dir)
    figures = []
    for name, draw in FIGURES.items():
        light = render(partial(draw, result))
        dark = render(partial(draw, result), dark=True)
        if light and dark:
            write_atomically(inside(run_dir, "figures", f"{name}.png"), light)
            figures.append(PageFigure(light, dark, name.replace("_", " "), CAPTIONS[name]))
    page = inside(run_dir, "report.html")
    write_atomically(page, render_page(result, figures).encode())
    return page


def render_page(result: ResultData, figures: Sequence[PageFigure]) -> str:
    """The page of a run, given its figures."""
    config, protocol = result["config"], result["protocol"]
    headline = {name: config.get(name) for name in ("preset", "backbone", "seed")}
    return render_template(
        "run.html",
        title=f"{config['method']} on {config['stream']}",
        lead=" · ".join(f"{name} {v}" for name, v in headline.items() if v is not None),
        legacy=protocol.get("legacy"),
        meanings=METRICS,
        metrics=result["metrics"],
        figures=figures,
        command=reproduce_command(config),
        protocol=protocol,
        options=config.get("options") or {},
        passes=result.get("passes") or {},
        keeps_images=protocol.get("keeps_images"),
        images_stored=result.get("images_stored") or 0,
        versions=result.get("versions") or {},
        accuracy=_matrix(result["accuracy"]),
        diagnostics=_records(result.get("diagnostics") or []),
        explained=DIAGNOSTICS,
        routing=routing_note(result.get("diagnostics") or []),
    )


def reproduce_command(config: dict[str, Any]) -> str:
    """The command line that repeats a run, with the options that differ from its preset."""
    names = {
        n: config[n] for n in ("method", "preset", "stream", "backbone", "seed") if n in config
    }
    try:
        of_preset = plan(**names, files_needed=False).options()
    except UserError:  # a method or preset that is not known here
        of_preset = {}
    flags = [f"--{name} {shlex.quote(str(value))}" for name, value in names.items()]
    options = [
        f"--set {shlex.quote(f'{name}={plain(value)}')}"
        for name, value in (config.get("options") or {}).items()
        if name not in of_preset or value != of_preset[name]
    ]
    return " ".join(["hashprompt run", *flags, *options])


def routing_note(diagnostics: list[dict[str, Any]]) -> str:
    """After which tasks the routing hardly depended on the image, in a sentence."""
    same = [
        str(entry["task"] + 1)
        for entry in diagnostics
        if entry.get("routing_varies") is not None and entry["routing_varies"] < SAME_WEIGHTS
    ]
    if not same:
        return ""
    return (
        f"After task {', '.join(same)} the router gave nearly all images the same weights, so the "
        "pool acts as one prompt; averaged-prompt has one prompt and no router."
    )


def _matrix(accuracy: list[list[float | None]]) -> Table:
    header = ["on task", *(f"after {t + 1}" for t in range(len(accuracy)))]
    rows = [
        [i + 1, *("" if a is None else f"{a:.2f}" for a in row)] for i, row in enumerate(accuracy)
    ]
    return header, rows


def _records(records: list[dict[str, Any]]) -> Table:
    names = list(dict.fromkeys(name for record in records for name in record))
    return names, [[_number(record.get(name), name) for name in names] for record in records]


def _number(value: Any, name: str) -> Any:
    if name == "task":
        return value + 1
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else value
