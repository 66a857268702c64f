"""Choice of learning rates on held-out training images, by the same rule for every row.

A trial multiplies the rates of a row by a power of two. The first three trials are a factor of four
apart; each further trial follows from the accuracies so far.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean

from hashprompt.errors import UserError
from hashprompt.options import unknown
from hashprompt.report import ResultData
from hashprompt.report.text_table import TextTable
from hashprompt.runs.plan import Plan
from hashprompt.sweeps.grid import Grid, GridRun, Tuning
from hashprompt.sweeps.runner import Sweep

FIRST_POWERS = (0, -2, 2)
POWERS = range(-16, 17)  # those that a ledger is searched for
Trials = Mapping[int, Sequence[ResultData]]  # power of two -> results, one per class order


def next_trial(found: Mapping[int, float]) -> int | None:
    """The power of two of the next trial; None where no gap is left around the best.

    Args:
        found: power of two -> accuracy.
    """
    for power in FIRST_POWERS:
        if power not in found:
            return power
    powers = sorted(found)
    best = max(powers, key=found.__getitem__)
    if best == powers[0]:
        return best - 2
    if best == powers[-1]:
        return best + 2

    def preference(gap: tuple[int, int]) -> tuple[int, float]:
        """Near the best, then with the better ends."""
        return -min(abs(best - end) for end in gap), sum(found[end] for end in gap)

    gaps = [(low, high) for low, high in pairwise(powers) if high - low > 1]
    if not gaps:
        return None
    low, high = max(gaps, key=preference)
    return (low + high) // 2


def first_runs(grid: Grid, only: Collection[str]) -> list[GridRun]:
    """The runs of the first trials of rows."""
    rows = only or tuning_of(grid).rates
    return [run for row in rows for power in FIRST_POWERS for run in trial_runs(grid, row, power)]


def tune(grid: Grid, only: Collection[str], execute: Callable[[list[GridRun]], Sweep]) -> Sweep:
    """Carry out the trials of rows. A trial that fails counts as 0 %.

    Args:
        only: names of rows; default: all that the grid tunes.
        execute: executes the runs that have no result yet.
    """
    tuning = tuning_of(grid)
    found: dict[str, dict[int, float]] = {row: {} for row in only or tuning.rates}
    done: list[GridRun] = []
    while True:
        powers = {r: next_trial(f) for r, f in found.items() if len(f) < tuning.trials}
        trials = {(r, p): trial_runs(grid, r, p) for r, p in powers.items() if p is not None}
        if not trials:
            return execute(done)  # failed runs again
        new = [run for runs in trials.values() for run in runs]
        results, done = execute(new).results(), done + new
        for (row, power), runs in trials.items():
            finished = results.get(runs[0].row, [])
            found[row][power] = _accuracy(finished) if len(finished) == len(runs) else 0.0


def tuning_of(grid: Grid) -> Tuning:
    """The `tune` section of a grid."""
    if grid.tune is None:
        raise UserError("The grid has no section `tune`. See docs/sweeps.md.")
    return grid.tune


def trial_runs(grid: Grid, row: str, power: int, files_needed: bool = True) -> list[GridRun]:
    """The runs of a trial, one per class order.

    Args:
        power: of two, by which the first rates of the row are multiplied.
        files_needed: see `plan`.
    """
    tuning, rows = tuning_of(grid), grid.all_rows()
    for known in (tuning.rates, rows):
        if row not in known:
            raise UserError(unknown("row", row, known))
    rates = {name: rate * 2.0**power for name, rate in tuning.rates[row].items()}
    options = {**rows[row].options, **tuning.options, **rates}
    trial = f"{row}, {', '.join(f'{name}={rate:g}' for name, rate in rates.items())}"
    changed = rows[row].model_copy(update={"options": options})
    update = {"methods": [], "rows": {trial: changed}, "vary": {}, "seeds": tuning.seeds}
    runs = grid.model_copy(update={**update, "evaluate": {}}).runs(files_needed=files_needed)
    if any(run.plan.stream_options.holdout == 0 for run in runs):
        raise UserError("`tune` needs the option `holdout`: test images may choose no rate.")
    if shared := _orders(runs) & _orders(grid.runs([row], files_needed)):
        raise UserError(f"`tune` and the table share the class orders {sorted(shared)}.")
    return runs


def _orders(runs: Sequence[GridRun]) -> set[int]:
    given = ((run.plan.stream_options.order_seed, run.plan.seed) for run in runs)
    return {seed if order is None else order for order, seed in given}


def find_trials(grid: Grid, row: str, find: Callable[[Plan], ResultData | None]) -> Trials:
    """The complete trials of a row; `find` is that of a ledger."""
    trials = {
        power: [find(run.plan) for run in trial_runs(grid, row, power, files_needed=False)]
        for power in POWERS
    }
    return {power: [r for r in found if r] for power, found in trials.items() if all(found)}


def best_power(trials: Trials) -> int:
    return max(trials, key=lambda power: _accuracy(trials[power]))


def _accuracy(results: Sequence[ResultData]) -> float:
    return fmean(result["metrics"]["FAA"] for result in results)


def rates_table(grid: Grid, find: Callable[[Plan], ResultData | None]) -> TextTable:
    """The rates that were tried, with FAA ± standard error, and the best."""
    lines = []
    for row, first in tuning_of(grid).rates.items():
        if trials := find_trials(grid, row, find):
            rate, best = next(iter(first.values())), best_power(trials)
            images = sum(n for result in trials[best] for _, n in result["protocol"]["images"])
            cells = []
            for power, results in trials.items():
                share = _accuracy(results) / 100
                error = 100 * sqrt(share * (1 - share) / images)
                cells.append(f"{rate * 2.0**power:g}: {100 * share:.1f} ± {error:.1f}")
            place = "edge" if best in (min(trials), max(trials)) else "inside"
            place = place if len(trials) >= tuning_of(grid).trials else "unfinished"
            lines.append([row, ", ".join(cells), f"{rate * 2.0**best:g}", place, f"{images:,}"])
    header = ["row", "rate: FAA ± standard error", "best", "place", "held-out images"]
    return TextTable("Learning rates, on held-out training images", header, lines)
