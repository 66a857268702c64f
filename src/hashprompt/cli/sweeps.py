"""`hashprompt sweep`: grids of runs."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hashprompt.cli.arguments import LogTo, PlanOnly, Quiet, read_yaml_file
from hashprompt.cli.printing import console, print_error, print_line, print_text
from hashprompt.errors import UserError

if TYPE_CHECKING:
    from hashprompt.sweeps.runner import Sweep

EngineName = Annotated[str, typer.Option(help="`processes` on this machine, or `ray`.")]
Workers = Annotated[int | None, typer.Option(help="Number of runs at a time.")]
Retries = Annotated[int, typer.Option(help="Further attempts at a failed run.")]
Address = Annotated[str | None, typer.Option(help="Ray: address of the cluster.")]
Cpus = Annotated[float | None, typer.Option(help="Ray: CPUs per run.")]
Gpus = Annotated[float | None, typer.Option(help="Ray: GPUs per run; may be a fraction.")]


def sweep(
    grid: Annotated[str, typer.Argument(metavar="GRID|status")],
    folder: Annotated[str | None, typer.Argument(metavar="[SWEEP]")] = None,
    out: str | None = None,
    only: list[str] | None = None,
    stream: str | None = None,
    backbone: str | None = None,
    engine: EngineName = "processes",
    workers: Workers = None,
    retries: Retries = 2,
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    tune: bool = False,
    plan: PlanOnly = False,
    log: LogTo = None,
    quiet: Quiet = False,
) -> None:
    """Run a grid of methods, streams, seeds and options. Finished runs are not repeated.

    Examples:

    `hashprompt sweep grid.yaml --out sweeps/first` · grid.yaml contains `methods: [hash, hide]`

    `hashprompt sweep status sweeps/first` · from another terminal

    `hashprompt compare sweeps/first --against hide`

    Args:
        grid: YAML file of a grid; or `status`.
        folder: With `status`: folder of a sweep.
        out: Folder of the sweep, or a URI: `s3://bucket/sweep`.
        only: Run only this row; may be repeated.
        stream: Replaces the streams of the grid.
        backbone: Replaces the backbones of the grid.
        tune: Choose the rates of the rows on held-out images, as the grid's section `tune` says.
    """
    from hashprompt.sweeps import tuning
    from hashprompt.sweeps.runner import Sweep, run_sweep

    if grid == "status":
        if folder is None:
            raise UserError("No sweep given. Expected: hashprompt sweep status FOLDER")
        show(Sweep.load(folder))
        return
    if folder is not None or out is None:
        raise UserError("No folder given. Expected: hashprompt sweep GRID.yaml --out FOLDER")
    from hashprompt.sweeps.engines import make_engine
    from hashprompt.sweeps.grid import read_grid

    values = read_yaml_file(Path(grid), "methods: [hash, hide]")
    instead = {"streams": stream, "backbones": backbone}
    values |= {name: value for name, value in instead.items() if value is not None}
    table = read_grid(values)
    chosen = make_engine(engine, workers, retries, address=address, cpus=cpus, gpus=gpus)
    execute = partial(run_sweep, out=out, engine=chosen, quiet=quiet, log=log or ())
    runs = tuning.first_runs(table, only or ()) if tune else table.runs(only or ())
    if plan or not quiet:
        from hashprompt.sweeps.estimate import estimate

        print_text(("First three trials: " if tune else "") + estimate(runs, out, chosen.workers))
    if plan:
        return
    if tune:
        found = tuning.tune(table, only or (), execute)
        console.print(tuning.rates_table(table, found.folder.ledger.find).to_rich())
        show(found, ended=True)
    else:
        show(execute(runs), ended=True)


def show(found: "Sweep", ended: bool = False) -> None:
    """Print the progress, the results and the failures of a sweep.

    Args:
        ended: no process works on it, so a run without a result is a failure too.
    """
    status = found.status()
    if status.rows:
        console.print(status.to_rich())
    else:
        print_line(status.title)
    console.print(found.table().to_rich())
    states = found.states()
    failed = [(run, state) for run, state in states if state.state == "failed"]
    for run, state in failed:
        print_error(f"{run.row}, seed {run.plan.seed}: {state.details['error']}")
    left = sum(state.state in ("waiting", "running") for _, state in states) if ended else 0
    if left:
        print_error(f"{left} runs have no result yet. Run the same command again.")
    if failed or left:
        raise typer.Exit(1)
