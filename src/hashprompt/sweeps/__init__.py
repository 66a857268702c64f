"""Sweeps: grids of runs, on this machine or on many; finished cells are kept and shared."""

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
    **how: Any,
) -> "Sweep":
    """Run all cells of a grid that have no result yet.

    Args:
        grid: methods or rows, streams, backbones, seeds, options; see `Grid`.
        out: folder of the sweep, or a URI that fsspec knows, as `s3://bucket/sweep`; two grids
            with the same one share their cells.
        engine: processes of this machine, or a Ray cluster.
        workers: cells at a time; default: one per GPU, else one per core (Ray: what fits).
        retries: more attempts at a cell whose process died or whose code failed.
        quiet: no table while it runs.
        log: of each cell, as in `run`.
        **how: for Ray: `address`, `cpus` and `gpus` of a cell.
    """
    from hashprompt.sweeps.runner import make_engine, run_sweep

    given = grid if isinstance(grid, Grid) else read_grid(grid)
    chosen = make_engine(engine, workers, retries, **how)
    return run_sweep(given.cells(), out, chosen, quiet, log)
