"""The numbers in README and docs/results are those of the ledger beside them."""

import subprocess
import sys
from pathlib import Path

import pytest

from hashprompt.cli.arguments import read_yaml_file
from hashprompt.report.ledger import Ledger, read_results
from hashprompt.runs.plan import plan_of
from hashprompt.sweeps.grid import read_grid
from hashprompt.sweeps.tuning import best_power, find_trials, trial_runs

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "docs" / "results" / "ledger"

pytestmark = pytest.mark.skipif(not LEDGER.is_dir(), reason="the docs are not here")


def test_pages_say_what_the_ledger_says() -> None:
    """`make results` would change nothing."""
    command = [sys.executable, str(ROOT / "benchmarks" / "results.py"), "--check"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (told.returncode, told.stdout) == (0, ""), told.stdout + told.stderr


def test_entries_are_named_after_their_digest_and_name_no_folder() -> None:
    for place, result in read_results([LEDGER]):
        stored = result["config"]
        assert place.name == plan_of(stored, files_needed=False).digest, place
        assert "/" not in stored["stream"] + stored["backbone"], place


def test_rates_of_a_table_are_those_that_its_trials_chose() -> None:
    grids = [read_grid(read_yaml_file(f, "")) for f in (ROOT / "benchmarks/grids").glob("*.yaml")]
    tuned = [(grid, grid.tune, row) for grid in grids if grid.tune for row in grid.tune.rates]
    assert tuned
    for grid, tuning, row in tuned:
        trials = find_trials(grid, row, Ledger(LEDGER).find)
        if len(trials) == tuning.trials:
            best, *_ = trial_runs(grid, row, best_power(trials), files_needed=False)
            used, *_ = grid.runs([row], files_needed=False)
            for name in tuning.rates[row]:
                assert used.plan.options()[name] == best.plan.options()[name], (row, name)
