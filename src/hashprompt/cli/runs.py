"""`hashprompt run`, `resume`, `evaluate`, `report`, `compare`: methods on streams of tasks.

What needs torch or matplotlib is imported by the command that uses it: `--help` and every refusal
of a name or an option should come at once.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hashprompt.cli.arguments import LogTo, Quiet, parse_settings, read_yaml_file
from hashprompt.cli.printing import console, print_line
from hashprompt.ui.terminal import PlainTable

if TYPE_CHECKING:
    from hashprompt.runs.benchmark import Result

Download = Annotated[
    bool, typer.Option("--download", help="Weights or images that it names may be downloaded.")
]
Finished = Annotated[Path, typer.Argument(help="A finished run.")]


def run(
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="See `methods`; default `hash`.")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", "-s", help="See `streams`; default `glyphs-pairs`."),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            "--backbone", "-b", help="See `backbones`, or FILE, NAME@FILE; default `nano`."
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="`paper` (default), `original` or `best`; `paper/BENCHMARK` names both."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Class order, initial values, batches: all chance.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option, may be repeated: `top_k=3`."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file with any of these settings and options.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; default `runs/METHOD-STREAM-SEED`.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace the run that is in `--out`.")] = False,
    log: LogTo = None,
    quiet: Quiet = False,
) -> None:
    """Train a method over a stream of tasks and report.

    Examples:

    `hashprompt run` · Hash on the embedded pairs of glyphs

    `hashprompt run -m hash --preset best --set epochs=5 --set top_k=3 --seed 1`

    `hashprompt run -s npz:cifar.npz -b vit_tiny.safetensors --set image_size=112 --set tasks=5`

    All options of a method: `hashprompt methods hash`.
    """
    from hashprompt.loggers import make_loggers
    from hashprompt.runs.plan import plan

    given = {
        "method": method,
        "stream": stream,
        "backbone": backbone,
        "preset": preset,
        "seed": seed,
    }
    options = read_yaml_file(config, "method: hash") if config else {}
    settings = {k: options.pop(k) for k in given if k in options}
    settings |= {k: v for k, v in given.items() if v is not None}
    options |= parse_settings(set_)
    # Before torch: bad input is refused at once.
    planned, loggers = plan(**settings, options=options), make_loggers(log or ())
    from hashprompt.runs.benchmark import execute

    _show(execute(planned, out, overwrite, quiet, loggers))


def resume(
    folder: Annotated[Path, typer.Argument(help="The run directory.")],
    log: LogTo = None,
    quiet: Quiet = False,
    download: Download = False,
) -> None:
    """Go on with an interrupted run. It ends with the same numbers as an undisturbed one."""
    from hashprompt.loggers import make_loggers
    from hashprompt.runs.plan import stored_plan

    loggers = make_loggers(log or ())
    if not (folder / "result.json").exists():
        stored_plan(folder)  # before torch: what is no run is refused at once
    from hashprompt.runs import benchmark

    _show(benchmark.resume(folder, quiet, download, loggers))


def evaluate(
    folder: Finished,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of prediction."),
    ] = None,
    download: Download = False,
) -> None:
    """Test the learner of a finished run again, e.g. with `--set eval_batch_size=1`."""
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


def report(folder: Finished) -> None:
    """Write `report.html` and the figures of a run anew."""
    from hashprompt.report import read_result

    read_result(folder)  # before what draws: a folder without a result is refused at once
    from hashprompt.report.html import write_report

    _say_report(write_report(folder))


def compare(
    folders: Annotated[
        list[str],
        typer.Argument(help="Finished runs, sweeps (also at a URI), or ledgers and their entries."),
    ],
    against: Annotated[
        str | None, typer.Option(help="Also tell what every row is above or below this one.")
    ] = None,
    allow_mixed: Annotated[
        bool, typer.Option(help="Put runs with different protocols in one table, labelled.")
    ] = False,
    markdown: Annotated[Path | None, typer.Option(help="Also write the table here.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Also draw accuracy over tasks here.")] = None,
    cost: Annotated[Path | None, typer.Option(help="Also draw accuracy against size here.")] = None,
) -> None:
    """One table of several runs; runs that differ in the seed alone become mean ± deviation."""
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


def register(app: typer.Typer) -> None:
    """Add these commands to the program."""
    for command in (run, resume, evaluate, report, compare):
        app.command()(command)


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
    _say_report(result.report())


def _say_report(page: Path) -> None:
    # No wrapping and no markup: a path must come out as it is, to be copied.
    print_line(f"Report: {page}")
