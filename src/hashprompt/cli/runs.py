"""`hashprompt run`, `resume`, `evaluate`, `report`, `compare`: methods on streams of tasks.

Each command imports what needs torch or matplotlib itself, so that `--help` and errors about names
and options appear at once.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hashprompt.cli import arguments as args
from hashprompt.cli.printing import console, print_line, print_warning
from hashprompt.errors import UserError
from hashprompt.ui.terminal import PlainTable

if TYPE_CHECKING:
    from hashprompt.runs.benchmark import Result


def run(
    method: Annotated[str | None, typer.Option("--method", "-m")] = None,
    stream: Annotated[str | None, typer.Option("--stream", "-s")] = None,
    backbone: args.Backbone = None,
    preset: str | None = None,
    seed: int | None = None,
    set_: args.Settings = None,
    config: Path | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    log: args.LogTo = None,
    quiet: args.Quiet = False,
) -> None:
    """Train a method on a stream of tasks, test it after each task, and write a report.

    Examples:

    `hashprompt run` · Hash on the embedded stream of glyphs

    `hashprompt run -m hash --set epochs=5 --set top_k=3 --seed 1`

    `hashprompt run -s npz:cifar.npz -b vit_tiny.safetensors --set image_size=112 --set tasks=5`

    Args:
        method: A name, see `methods`; default: `hash`.
        stream: A name, see `streams`; default: `glyphs-pairs`.
        preset: A name, see `methods NAME`; `paper/split-cub200` also names the benchmark.
        seed: Random seed for class order, initialisation and batches; default: 0.
        config: YAML file with any of these settings and options.
        out: Run directory; default: `runs/METHOD-STREAM-SEED`.
        overwrite: Replace an existing run.
    """
    from hashprompt.loggers import make_loggers
    from hashprompt.runs.plan import make_plan

    names = ("method", "stream", "backbone", "preset", "seed")
    given = dict(zip(names, (method, stream, backbone, preset, seed), strict=True))
    options = args.read_yaml_file(config, "method: hash") if config else {}
    settings = {name: options.pop(name) for name in given if name in options}
    settings |= {name: value for name, value in given.items() if value is not None}
    options |= args.parse_settings(set_)
    # Before torch: bad input is refused at once.
    planned, loggers = make_plan(**settings, options=options), make_loggers(log or ())
    from hashprompt.runs.benchmark import execute

    _show(execute(planned, out, overwrite, quiet, loggers))


def resume(
    folder: args.Run,
    log: args.LogTo = None,
    quiet: args.Quiet = False,
    download: args.Download = False,
) -> None:
    """Resume an interrupted run. Results are identical to an uninterrupted run."""
    from hashprompt.loggers import make_loggers
    from hashprompt.runs.plan import stored_plan

    loggers = make_loggers(log or ())
    if not (folder / "result.json").exists():
        stored_plan(folder)  # before torch: what is no run is refused at once
    from hashprompt.runs import benchmark

    _show(benchmark.resume(folder, quiet, download, loggers))


def evaluate(folder: args.Run, set_: args.Settings = None, download: args.Download = False) -> None:
    """Test the model of a finished run again, with other options of prediction.

    `hashprompt evaluate runs/demo --set eval_batch_size=1`
    """
    from hashprompt.runs.plan import stored_plan

    options = args.parse_settings(set_)
    stored_plan(folder, options)  # before torch, as in `resume`
    from hashprompt.runs import benchmark

    found = benchmark.evaluate(folder, quiet=True, download=download, **options)
    table = PlainTable("task", "accuracy, %")
    for index, accuracy in enumerate(found["accuracy"]):
        table.add_row(str(index + 1), f"{accuracy:.2f}")
    console.print(table)
    print_line(f"FAA {found['average']:.2f}", "bold")


def report(folder: args.Run) -> None:
    """Rewrite `report.html` and the figures of a finished run."""
    from hashprompt.report import read_result

    read_result(folder)  # before what draws: a folder without a result is refused at once
    from hashprompt.report.html import write_report

    print_line(f"Report: {write_report(folder)}")


def compare(
    folders: Annotated[list[str], typer.Argument(metavar="RUNS…")],
    against: str | None = None,
    allow_mixed: bool = False,
    markdown: Path | None = None,
    figure: Path | None = None,
    cost: Path | None = None,
) -> None:
    """Compare runs in one table, with mean ± standard deviation over seeds.

    Args:
        folders: Finished runs, sweeps (also at a URI), or ledgers and their entries.
        against: Also list the difference of every row to this one.
        allow_mixed: Put runs with different protocols in one table, labelled.
        markdown: Also write the table to this file.
        figure: Also draw accuracy over tasks in this file.
        cost: Also draw accuracy against size in this file.
    """
    from hashprompt.report.compare import compare as compare_runs
    from hashprompt.report.ledger import read_results
    from hashprompt.sweeps.folder import local_places

    with local_places(folders) as paths:
        found = compare_runs(read_results(paths), allow_mixed)
    tables = [found.table(), *([found.against(against)] if against else [])]
    for table in tables:
        console.print(table.to_rich())
    from hashprompt.storage.files import as_given, write_atomically

    if markdown:
        text = "\n".join(table.to_markdown() for table in tables)
        write_atomically(as_given(markdown), text.encode())
    if figure or cost:
        from hashprompt.report.figures import compare_figure, cost_figure, render

        for path, draw in ((figure, compare_figure), (cost, cost_figure)):
            if path:
                write_atomically(as_given(path), render(partial(draw, found)) or b"")


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
    try:
        print_line(f"Report: {result.report()}")
    except UserError as error:  # the result is safe
        print_warning(f"No report: {error}")
