"""Sweeps: grids of runs, on one machine or many. Finished runs are kept and shared."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hashprompt.sweeps.grid import Grid, read_grid

if TYPE_CHECKING:
    from hashprompt.sweeps.runner import Sweep

__all__ = ["Grid", "sweep"]


def sweep(
    grid: Grid | Mapping[str, Any],
    out: str | Path,
    engine: Literal["processes", "ray"] = "processes",
    workers: int | None = None,
    retries: int = 2,
    quiet: bool = False,
    log: Sequence[str] = (),
    **resources: Any,
) -> "Sweep":
    """Execute all runs of a grid that have no result yet.

    Args:
        grid: methods or rows, streams, backbones, seeds, options; see `Grid`.
        out: folder of the sweep, or a URI that fsspec supports, as `s3://bucket/sweep`. Grids
            with the same folder share their runs.
        engine: processes of this machine, or a Ray cluster.
        workers: runs at a time; default: one per GPU, else one per core (Ray: what fits).
        retries: further attempts at a run whose process died or whose code failed.
        quiet: no table of progress.
        log: loggers of each run, as in `run`.
        **resources: for Ray: `address`, `cpus` and `gpus` of a run.
    """
    from hashprompt.sweeps.engines import make_engine
    from hashprompt.sweeps.runner import run_sweep

    runs = (grid if isinstance(grid, Grid) else read_grid(grid)).runs()
    return run_sweep(runs, out, make_engine(engine, workers, retries, **resources), quiet, log)
