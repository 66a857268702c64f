"""Sweeps on a real Ray cluster of this machine."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import QUICK

from hashprompt import sweep
from hashprompt.sweeps import engines
from hashprompt.sweeps.engines import Engine, make_engine
from hashprompt.sweeps.grid import read_grid
from hashprompt.sweeps.runner import Sweep, run_sweep

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow
PATIENCE = 300


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Two workers, started once: it takes some twenty seconds."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def grid(tiny_npz: Path) -> dict[str, Any]:
    quick = {**QUICK, "epochs": 20, "checkpoint_minutes": 0}
    return {"methods": "hash", "streams": f"npz:{tiny_npz}", "seeds": [0, 1], "options": quick}


def kill_one_in_its_second_task(engine: Engine, out: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for _, state in Sweep.load(out).states():
            if state.state == "running" and state.details["task"] >= 1:
                os.kill(state.details["process"], signal.SIGKILL)
                return
        assert engine.is_working, Sweep.load(out).states()
        time.sleep(0.1)
    raise AssertionError("no run came so far")


def test_a_killed_worker_costs_nothing(
    grid: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run resumes in another process, to the numbers of a local sweep."""
    engine = make_engine("ray", None, 2)
    begin = engine.start

    def start_and_kill(*how: Any) -> None:
        begin(*how)
        kill_one_in_its_second_task(engine, tmp_path / "ray")

    monkeypatch.setattr(engine, "start", start_and_kill)
    found = run_sweep(read_grid(grid).runs(), tmp_path / "ray", engine, quiet=True)
    assert not found.failures
    alone = sweep(grid, tmp_path / "local", workers=2, quiet=True)
    for ours, theirs in zip(*(s.results()["hash (paper)"] for s in (found, alone)), strict=True):
        assert ours["accuracy"] == theirs["accuracy"]
        assert ours["diagnostics"] == theirs["diagnostics"]


def test_a_job_whose_process_always_dies_fails_after_counted_attempts(
    grid: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_attempt_on_ray", lambda job: os.kill(os.getpid(), 9))
    one = read_grid({**grid, "seeds": 0}).runs()
    sweep = run_sweep(one, tmp_path, make_engine("ray", None, 2), quiet=True)
    ((_, state),) = sweep.states()
    assert state.details["attempts"] == 3
    assert state.details["error"] == "the process or the machine that ran it died (WorkerCrashed)"


def test_bad_input_is_told(grid: dict[str, Any], tmp_path: Path) -> None:
    grid["options"]["tasks"] = 400
    found = sweep(grid, tmp_path / "out", engine="ray", quiet=True, cpus=0.5)
    assert [("400" in error) for error in found.failures.values()] == [True, True]
