"""`hashprompt run`, `resume`, `evaluate`, `report`, `compare`: methods on streams of tasks.

What needs torch or matplotlib is imported by the command that uses it: `--help` and every refusal
of a name or an option should come at once.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hashprompt.cli.arguments import (
    Backbone,
    Download,
    LogTo,
    Quiet,
    Run,
    Settings,
    parse_settings,
    read_yaml_file,
)
from hashprompt.cli.printing import console, print_line
from hashprompt.ui.terminal import PlainTable

if TYPE_CHECKING:
    from hashprompt.runs.benchmark import Result


def run(
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="See `methods`; default `hash`.")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", "-s", help="See `streams`; default `glyphs-pairs`."),
    ] = None,
    backbone: Backbone = None,
    preset: Annotated[
        str | None,
        typer.Option(help="See `methods NAME`; `paper/split-cub200` names a benchmark, too."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed for class order, initialisation and batches.")
    ] = None,
    set_: Settings = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with any of these settings and options.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default `runs/METHOD-STREAM-SEED`.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing run.")] = False,
    log: LogTo = None,
    quiet: Quiet = False,
) -> None:
    """Train a method over a stream of tasks and report.

    Examples:

    `hashprompt run` · Hash on the embedded pairs of glyphs

    `hashprompt run -m hash --set epochs=5 --set top_k=3 --seed 1`

    `hashprompt run -s npz:cifar.npz -b vit_tiny.safetensors --set image_size=112 --set tasks=5`

    All options of a method: `hashprompt methods hash`.
    """
    from hashprompt.loggers import make_loggers
    from hashprompt.runs.plan import plan

    names = ("method", "stream", "backbone", "preset", "seed")
    given = dict(zip(names, (method, stream, backbone, preset, seed), strict=True))
    options = read_yaml_file(config, "method: hash") if config else {}
    settings = {name: options.pop(name) for name in names if name in options}
    settings |= {name: value for name, value in given.items() if value is not None}
    options |= parse_settings(set_)
    # Before torch: bad input is refused at once.
    planned, loggers = plan(**settings, options=options), make_loggers(log or ())
    from hashprompt.runs.benchmark import execute

    _show(execute(planned, out, overwrite, quiet, loggers))


def resume(
    folder: Run,
    log: LogTo = None,
    quiet: Quiet = False,
    download: Download = False,
) -> None:
    """Resume an interrupted run. Results are identical to an uninterrupted run."""
    from hashprompt.loggers import make_loggers
    from hashprompt.runs.plan import stored_plan

    loggers = make_loggers(log or ())
    if not (folder / "result.json").exists():
        stored_plan(folder)  # before torch: what is no run is refused at once
    from hashprompt.runs import benchmark

    _show(benchmark.resume(folder, quiet, download, loggers))


def evaluate(
    folder: Run,
    set_: Settings = None,
    download: Download = False,
) -> None:
    """Evaluate the model of a finished run again, e.g. with `--set eval_batch_size=1`."""
    from hashprompt.runs.plan import stored_plan

    options = parse_settings(set_)
    stored_plan(folder, options)  # before torch, as in `resume`
    from hashprompt.runs import benchmark

    found = benchmark.evaluate(folder, quiet=True, download=download, **options)
    table = PlainTable("task", "accuracy, %")
    for index, accuracy in enumerate(found["accuracy"]):
        table.add_row(str(index + 1), f"{accuracy:.2f}")
    console.print(table)
    print_line(f"FAA {found['average']:.2f}", "bold")


def report(folder: Run) -> None:
    """Write `report.html` and the figures of a finished run again."""
    from hashprompt.report import read_result

    read_result(folder)  # before what draws: a folder without a result is refused at once
    from hashprompt.report.html import write_report

    _print_report(write_report(folder))


def compare(
    folders: Annotated[
        list[str],
        typer.Argument(help="Finished runs, sweeps (also at a URI), or ledgers and their entries."),
    ],
    against: Annotated[
        str | None, typer.Option(help="Also list the difference of every row to this one.")
    ] = None,
    allow_mixed: Annotated[
        bool, typer.Option(help="Put runs with different protocols in one table, labelled.")
    ] = False,
    markdown: Annotated[Path | None, typer.Option(help="Also write the table here.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Also draw accuracy over tasks here.")] = None,
    cost: Annotated[Path | None, typer.Option(help="Also draw accuracy against size here.")] = None,
) -> None:
    """One table of several runs; runs that differ only in the seed become mean ± deviation."""
    from hashprompt.report.compare import compare as compare_runs
    from hashprompt.report.text_table import TextTable
    from hashprompt.sweeps.folder import local_places

    with local_places(folders) as paths:
        table = compare_runs(paths, allow_mixed)
    console.print(table.to_rich())
    tables: list[TextTable] = [table]
    if against:
        from hashprompt.report.against import against as differences

        tables.append(differences(table, against))
        console.print(tables[-1].to_rich())
    if markdown or figure or cost:
        from hashprompt.storage.files import as_given, write_atomically
    if markdown:
        text = "\n".join(table.to_markdown() for table in tables)
        write_atomically(as_given(markdown), text.encode())
    if figure or cost:
        from hashprompt.report.compare_figures import compare_figure, cost_figure
        from hashprompt.report.figures import render

        for path, draw in ((figure, compare_figure), (cost, cost_figure)):
            if path:
                write_atomically(as_given(path), render(partial(draw, table)) or b"")


def _show(result: "Result") -> None:
    """The table at the end of a run, and where to look further."""
    if not result.reporter:
        return
    headings = ("after task", "average", "new classes", "task inference")
    table = PlainTable(*headings, title="Accuracy, %")
    for entry in result.data["after_task"]:
        cells = [entry[k] for k in ("average", "new_classes", "task_inference")]
        table.add_row(str(entry["task"] + 1), *("–" if c is None else f"{c:.2f}" for c in cells))
    console.print(table)
    metrics = (f"{k} {v:.2f}" for k, v in result.metrics.items() if v is not None)
    print_line("  ".join(metrics), "bold")
    _print_report(result.report())


def _print_report(page: Path) -> None:
    # No wrapping and no markup: a path must come out as it is, to be copied.
    print_line(f"Report: {page}")
