"""`hashprompt`: teach a classifier photos; run and compare methods; lists of what there is."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from hashprompt import benchmark
from hashprompt.backbone import available_backbones
from hashprompt.cli import data, photos
from hashprompt.cli.settings import parse_settings
from hashprompt.data.settings import StreamOptions
from hashprompt.data.streams.names import available_streams
from hashprompt.engine.settings import RunOptions
from hashprompt.errors import UserError
from hashprompt.methods.base import find_method, known_methods, presets
from hashprompt.options import Options
from hashprompt.storage.files import write_atomically

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Image classifiers that keep learning: new classes arrive task by task, old images are "
    "not kept.\n\nOwn photos: `hashprompt learn birds/ photos/2026-05/`, then `hashprompt predict "
    "birds/ garden.jpg`.\n\nBenchmarks: start with `hashprompt run`: it trains Hash on an "
    "embedded stream of drawings with an embedded vision transformer, in minutes, without any "
    "download.",
)
photos.register(app)
app.add_typer(data.app, name="data")
console = Console()
errors = Console(stderr=True)


@app.callback()
def common(
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    """Options before the command."""


@app.command()
def run(
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="See `methods`; default `hash`.")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option("--stream", "-s", help="See `streams`; default `glyphs`."),
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
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train a method over a stream of tasks and report.

    Examples:

    `hashprompt run` · Hash on the embedded glyphs

    `hashprompt run -m hash --preset best --set epochs=5 --set top_k=3 --seed 1`

    `hashprompt run -s npz:cifar.npz -b vit_tiny.safetensors --set image_size=112 --set tasks=5`

    All options of a method: `hashprompt methods hash`.
    """
    given = {
        "method": method,
        "stream": stream,
        "backbone": backbone,
        "preset": preset,
        "seed": seed,
    }
    options = _read_config(config) if config else {}
    settings = {k: options.pop(k) for k in given if k in options}
    settings |= {k: v for k, v in given.items() if v is not None}
    options |= parse_settings(set_)
    planned = benchmark.plan(**settings, options=options)
    _show(benchmark.execute(planned, out, overwrite, quiet))


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="The run directory.")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Go on with an interrupted run. It ends with the same numbers as an undisturbed one."""
    _show(benchmark.resume(folder, quiet))


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(help="A finished run.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of prediction."),
    ] = None,
) -> None:
    """Test the learner of a finished run again, e.g. with `--set eval_batch_size=1`."""
    options = parse_settings(set_)
    found = benchmark.evaluate(folder, quiet=True, **options)
    table = Table("task", "accuracy, %")
    for index, accuracy in enumerate(found["accuracy"]):
        table.add_row(str(index + 1), f"{accuracy:.2f}")
    console.print(table)
    console.print(f"FAA {found['average']:.2f}", style="bold")


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="A finished run.")]) -> None:
    """Write `report.html` and the figures of a run anew."""
    _say_report(benchmark.load_result(folder))


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Finished runs.")],
    allow_mixed: Annotated[
        bool, typer.Option(help="Put runs with different protocols in one table, labelled.")
    ] = False,
    markdown: Annotated[Path | None, typer.Option(help="Also write the table here.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Also draw accuracy over tasks here.")] = None,
    cost: Annotated[Path | None, typer.Option(help="Also draw accuracy against size here.")] = None,
) -> None:
    """One table of several runs; runs that differ in the seed alone become mean ± deviation."""
    from hashprompt.report.compare import compare as compare_runs  # drawing is slow to import
    from hashprompt.report.compare import compare_figure, cost_figure
    from hashprompt.report.figures import render

    table = compare_runs(folders, allow_mixed)
    console.print(table.to_rich())
    if markdown:
        write_atomically(markdown, table.to_markdown().encode())
    for path, draw in ((figure, compare_figure), (cost, cost_figure)):
        if path:
            write_atomically(path, render(partial(draw, table)) or b"")


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show all options of this method.")] = None,
) -> None:
    """List the methods, or all options of one."""
    if name is None:
        known = known_methods().items()
        rows = {n: f"{m.info.summary} ({', '.join(presets(n))})" for n, (m, _) in known}
        console.print(_listing("method", rows))
        console.print("All options of one: hashprompt methods NAME")
        return
    config = find_method(name)[1]
    for title, group in ((name, config), ("stream", StreamOptions), ("run", RunOptions)):
        console.print(_options_table(title, group))
    for preset, sections in presets(name).items():
        console.print(f"preset {preset}: {'' if sections else 'the defaults'}", highlight=False)
        for section, values in sections.items():
            console.print(f"  {section}: {values or 'the defaults'}", highlight=False)


@app.command()
def streams() -> None:
    """List the streams of tasks."""
    console.print(_listing("stream", available_streams()))


@app.command()
def backbones() -> None:
    """List the frozen vision transformers: what is here, and what would be downloaded."""
    console.print(_listing("backbone", available_backbones()))


def _listing(kind: str, rows: dict[str, str]) -> Table:
    # Folded: a path that is too long for a line must come out whole.
    table = Table(kind, Column("what it is", overflow="fold"), box=None, pad_edge=False)
    for name, text in rows.items():
        table.add_row(f"[bold]{name}[/bold]", escape(text))
    return table


def _options_table(title: str, group: type[Options]) -> Table:
    table = Table("option", "default", "meaning", title=f"{title} options", title_justify="left")
    for name, field in group.model_fields.items():
        table.add_row(name, str(field.default), field.description)
    return table


def _read_config(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError) as error:  # ValueError: bytes that are no text
        reason = " ".join(str(error).split())
        raise UserError(f"Cannot read {path} as YAML: {reason}.") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold `name: value` lines, e.g. `method: hash`.")
    return values


def _show(result: benchmark.Result) -> None:
    """The table at the end of a run, and where to look further."""
    if not result.reporter:
        return
    table = Table("after task", "average", "new classes", "task inference", title="Accuracy, %")
    for entry in result.data["after_task"]:
        cells = [entry[k] for k in ("average", "new_classes", "task_inference")]
        table.add_row(str(entry["task"] + 1), *("–" if c is None else f"{c:.2f}" for c in cells))
    console.print(table)
    metrics = (f"{k} {v:.2f}" for k, v in result.metrics.items() if v is not None)
    console.print("  ".join(metrics), style="bold")
    _say_report(result)


def _say_report(result: benchmark.Result) -> None:
    # No wrapping and no markup: a path must come out as it is, to be copied.
    console.print(f"Report: {result.report()}", highlight=False, markup=False, soft_wrap=True)


def main() -> None:
    """Entry point: errors that the user can act on come without a traceback."""
    try:
        app()
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        errors.print(f"[red]Error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
