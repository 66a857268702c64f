"""`hashprompt paper`: tables, figures and claims of the paper, run and reported by name."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from hashprompt.cli import arguments as args
from hashprompt.cli import sweeps
from hashprompt.cli.printing import console, print_line, print_text
from hashprompt.errors import UserError
from hashprompt.ui.terminal import Column, PlainTable

app = typer.Typer(no_args_is_help=True, help="Run and report the paper's tables and figures.")


@app.command("list", cls=args.Command)
def list_experiments() -> None:
    """List tables and figures, and the number of runs of each."""
    from hashprompt.paper.data import SCALES, experiments, scale_table
    from hashprompt.paper.grids import SEEDS

    numbers = (Column(heading, justify="right") for heading in ("rows", *SCALES))
    table = PlainTable("name", *numbers, "description", box=None, pad_edge=False)
    for experiment in experiments().values():
        rows = len(experiment.rows)
        runs = [rows * len(experiment.sets_at(scale)) * SEEDS for scale in SCALES]
        shown = [str(count or "–") for count in (rows, *runs)]
        used = f" (runs of {', '.join(experiment.uses)})" if experiment.uses else ""
        table.add_row(experiment.name, *shown, experiment.title + used)
    console.print(table)
    print_text(f"Number of runs with {SEEDS} seeds, at these scales:")
    for name, scale in scale_table().scales.items():
        print_text(f"  {name}: {scale.about}.")


@app.command(cls=args.Command)
def run(
    names: Annotated[list[str], typer.Argument(metavar="NAMES…")],
    scale: Annotated[Literal["nano", "mini", "full"], typer.Option()],
    out: Annotated[str, typer.Option()],
    data: Path | None = None,
    weights: Path | None = None,
    seeds: args.Number = 3,
    set_: args.Settings = None,
    engine: sweeps.EngineName = "processes",
    workers: sweeps.Workers = None,
    retries: sweeps.Retries = 2,
    address: sweeps.Address = None,
    cpus: sweeps.Cpus = None,
    gpus: sweeps.Gpus = None,
    plan: args.PlanOnly = False,
    log: args.LogTo = None,
    quiet: args.Quiet = False,
) -> None:
    """Run tables or figures of the paper. Finished runs are not repeated.

    Examples:

    `hashprompt paper run T5 --scale nano --out runs/paper`

    `hashprompt paper run T5 T12 --scale mini --data cifar.npz --weights vit_tiny.safetensors
    --out runs/paper`

    `hashprompt paper run T1 --scale full --out runs/paper --plan` · what it would cost

    Args:
        names: Tables or figures, e.g. T5; see `list`.
        scale: Stream and ViT; see `list`.
        out: Folder or URI of the runs; several tables may share it.
        data: mini: images, an .npz file.
        weights: mini: weights of a small ViT.
        seeds: Runs of each row.
    """
    from hashprompt.paper.grids import make_setting, runs_of

    setting = make_setting(scale, data, weights, seeds, args.parse_settings(set_))
    planned = runs_of(names, setting)
    if setting.scale == "full":
        from hashprompt.paper.cost import full_cost, missing_files

        print_text(full_cost(planned))
        if missing := missing_files(planned):
            get = "\n".join(["Not on this machine yet. Get it with:", *missing])
            if not plan:
                raise UserError(f"{get}\nThen run the same command again.")
            print_text(get)
        if plan:
            return
    from hashprompt.sweeps.engines import make_engine
    from hashprompt.sweeps.runner import run_sweep

    chosen = make_engine(engine, workers, retries, address=address, cpus=cpus, gpus=gpus)
    if setting.scale != "full" and (plan or not quiet):
        from hashprompt.sweeps.estimate import estimate

        print_text(estimate(planned, out, chosen.workers))
    if not plan:
        sweeps.show(run_sweep(planned, out, chosen, quiet, log or ()), ended=True)


@app.command(cls=args.Command)
def pack(
    ledger: Annotated[list[str], typer.Option()],
    out: Annotated[Path, typer.Option()],
) -> None:
    """Write all finished runs as one file, which others can pass to `paper report --ledger`.

    It holds options, accuracies, times, versions and the kind of machine, but no paths.

    Args:
        ledger: Folder or URI of runs, or a ledger; may be repeated.
        out: The file, e.g. results.json.xz.
    """
    from hashprompt.report.ledger import PACKED, read_results, without_paths, write_pack
    from hashprompt.runs.plan import plan_of
    from hashprompt.storage.files import as_given
    from hashprompt.sweeps.folder import local_places
    from hashprompt.texts import counted

    if not out.name.endswith(PACKED):
        raise UserError(f"--out {out}: expected a file named …{PACKED}.")
    with local_places(ledger) as paths:
        found = [result for _, result in read_results(paths)]
    entries = {plan_of(r["config"], files_needed=False).digest: without_paths(r) for r in found}
    write_pack(as_given(out), entries)
    print_line(f"{counted(len(entries), 'run', 'runs')}: {out}")


@app.command(cls=args.Command)
def report(
    ledger: Annotated[list[str], typer.Option()],
    out: Annotated[Path, typer.Option()],
    set_: args.Settings = None,
) -> None:
    """Compare results with the paper: report.html, report.md, figures.

    Args:
        ledger: Folder or URI of runs, or a ledger; may be repeated.
        out: Folder of the report.
    """
    from hashprompt.paper.results import Results
    from hashprompt.sweeps.folder import local_places

    with local_places(ledger) as paths:
        results = Results(paths, args.parse_settings(set_))  # before matplotlib
    from hashprompt.paper.report import write_paper_report

    print_line(f"Report: {write_paper_report(results, out)}")
