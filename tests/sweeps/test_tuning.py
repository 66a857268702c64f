"""Rates are chosen on held-out images, by one rule, in trials that are never repeated."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from running import Cli

from hashprompt.errors import UserError
from hashprompt.sweeps.grid import Grid, GridRun, read_grid
from hashprompt.sweeps.runner import Sweep
from hashprompt.sweeps.tuning import first_runs, next_trial, rates_table, tune

TUNE = {
    "rates": {"Hash": {"lr": 0.06, "align_lr": 0.01}},
    "seeds": [{"seed": 0, "order_seed": 7}, {"seed": 1, "order_seed": 8}],
    "options": {"holdout": 0.2},
}


def grid(**tuning: Any) -> Grid:
    rows = {"Hash": {"method": "hash", "options": {"lr": 0.5}}, "NCM": {"method": "simplecil"}}
    return read_grid({"rows": rows, "seeds": [1, 2], "tune": {**TUNE, **tuning}})


@pytest.mark.parametrize(
    ("best", "tried"),
    [
        (0.3, [0, -2, 2, 1, -1]),  # inside: midpoints, the better side first
        (-0.3, [0, -2, 2, -1, 1]),
        (1.2, [0, -2, 2, 4, 1]),  # edge: a factor of four further, then midpoints
        (2.2, [0, -2, 2, 4, 3]),
        (-9.0, [0, -2, 2, -4, -6]),
        (9.0, [0, -2, 2, 4, 6]),
    ],
)
def test_trials_go_towards_the_better_side(best: float, tried: list[int]) -> None:
    found: dict[int, float] = {}
    for _ in tried:
        power = next_trial(found)
        assert power is not None
        found[power] = -abs(power - best)
    assert list(found) == tried


def test_no_trial_is_left_between_tried_ones() -> None:
    assert next_trial({power: -abs(power) for power in range(-2, 3)}) is None


def finished(accuracy: float) -> dict[str, Any]:
    return {"metrics": {"FAA": accuracy}, "protocol": {"images": [(60, 300), (60, 200)]}}


def test_trials_use_held_out_images_of_other_class_orders_and_failures_count_nothing() -> None:
    ledger: dict[str, dict[str, Any]] = {}
    sweeps: list[list[GridRun]] = []

    def execute(runs: list[GridRun]) -> Sweep:
        """FAA is 60 at lr=0.12 and 10 less at each factor of two; 0.24 fails."""
        sweeps.append(runs)
        results: dict[str, list[dict[str, Any]]] = {}
        for run in runs:
            rate = run.plan.options()["lr"]
            if rate != 0.24:
                result = finished(60 - 10 * abs(math.log2(rate / 0.12)))
                results.setdefault(run.row, []).append(result)
                ledger[run.digest] = result
        return cast(Sweep, SimpleNamespace(results=lambda: results))

    tune(grid(), ["Hash"], execute)
    rates = [0.06, 0.015, 0.24, 0.03, 0.12]  # 0.24 counts 0 %, below 0.015
    assert [runs[0].plan.options()["lr"] for runs in sweeps[:-1]] == rates
    assert [run for runs in sweeps[:-1] for run in runs] == sweeps[-1]  # failures once more
    for run in sweeps[-1]:
        options = run.plan.options()
        assert options["align_lr"] == pytest.approx(options["lr"] / 6)
        assert (options["holdout"], options["order_seed"]) == (0.2, 7 + run.plan.seed)
    (line,) = rates_table(grid(trials=4), lambda plan: ledger.get(plan.digest)).rows
    errors = [100 * math.sqrt(p * (1 - p) / 1000) for p in (0.3, 0.4, 0.5, 0.6)]
    tried = zip((0.015, 0.03, 0.06, 0.12), (30, 40, 50, 60), errors, strict=True)
    text = ", ".join(f"{rate:g}: {faa:.1f} ± {error:.1f}" for rate, faa, error in tried)
    assert line == ["Hash", text, "0.12", "edge", "1,000"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (grid().model_copy(update={"tune": None}), "no section `tune`"),
        (grid(options={}), "needs the option `holdout`"),
        (grid(seeds=[1, 3]), r"share the class orders \[1\]"),
        (grid(rates={"hash": {"lr": 1.0}}), "Unknown row `hash`. Did you mean `Hash`"),
    ],
)
def test_what_would_be_unfair_is_refused(wrong: Grid, said: str) -> None:
    with pytest.raises(UserError, match=said):
        first_runs(wrong, ())


def test_a_finished_trial_is_not_repeated(
    tiny_npz: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "grid.yaml"
    tuning = {**TUNE, "rates": {"Probe": {"l2": 1.0}}}
    table = {"streams": f"npz:{tiny_npz}", "rows": {"Probe": {"method": "linear-probe"}}}
    file.write_text(yaml.safe_dump({**table, "options": {"tasks": 3}, "tune": tuning}))
    command = ("sweep", file, "--out", tmp_path / "out", "--workers", 1, "--quiet", "--tune")
    first = cli(*command)
    assert first.code == 0, first.said
    assert "10 runs: 10 done" in first.out  # five trials × two class orders
    monkeypatch.setattr("hashprompt.sweeps.engines.Engine.start", None)  # nothing may start
    assert cli(*command).out == first.out
    assert "First three trials: 6 runs, 6 of them finished" in cli(*command, "--plan").out
