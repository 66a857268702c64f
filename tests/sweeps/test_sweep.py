"""Sweeps in real processes: a run that fails, dies or is stopped affects no other run."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from running import Cli

from hashprompt import sweep
from hashprompt.cli.sweeps import show
from hashprompt.errors import UserError
from hashprompt.runs import benchmark
from hashprompt.storage.lock import locked
from hashprompt.sweeps.folder import MAX_SILENT_SECONDS, SweepFolder
from hashprompt.sweeps.grid import read_grid
from hashprompt.sweeps.jobs import Report, SweepJob, SweepOutcome, execute
from hashprompt.sweeps.runner import Sweep, run_sweep

PATIENCE = 300  # seconds until a process counts as stuck


@pytest.fixture
def grid(tiny_npz: Path) -> dict[str, Any]:
    return {"streams": f"npz:{tiny_npz}", "options": {"tasks": 3}}


def numbers(sweep: Sweep) -> dict[str, Any]:
    return {row: [r["accuracy"] for r in found] for row, found in sweep.results().items()}


def test_one_failing_run_stops_no_other(
    own_methods: Path, grid: dict[str, Any], tmp_path: Path, cli: Cli
) -> None:
    grid["methods"] = ["broken", "mortal", "simplecil"]
    grid["rows"] = {"bad input": {"method": "simplecil", "options": {"tasks": 400}}}
    found = sweep(grid, tmp_path / "out", workers=1, retries=1, quiet=True)
    states = {run.row: state for run, state in found.states()}
    assert "there is something wrong with me" in states["broken (default)"].details["error"]
    assert "400" in states["bad input"].details["error"]
    assert states["bad input"].details["attempts"] == 1  # it would not become better
    assert (own_methods / "attempts").read_text() == "xx"  # once more, and no more
    # The one that died with its process was resumed from its checkpoint, to the same numbers.
    assert (own_methods / "begun").read_text() == "0112"
    assert numbers(found)["mortal (default)"] == numbers(found)["simplecil (paper)"]
    status = cli("sweep", "status", tmp_path / "out")
    assert status.code == 1
    assert "4 runs: 2 done, 0 running, 2 failed, 0 waiting" in status.out
    assert "2 attempts" in status.out
    assert "Error: broken (default), seed 0: " in status.said
    assert "there is something wrong with me" in status.said


def test_what_is_done_is_not_done_again(
    grid: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    grid["evaluate"] = {
        "one by one": {"eval_batch_size": 1},
        "other heads": {"align": "discriminant"},
    }
    first = sweep({**grid, "methods": "simplecil"}, out, workers=1, quiet=True)
    (result,) = first.results()["simplecil (paper)"]
    assert list(result["evaluations"]) == ["one by one"]  # it has no other heads
    assert result["evaluations"]["one by one"]["average"] == result["metrics"]["FAA"]
    files = {file: file.stat().st_mtime_ns for file in (out / "ledger").iterdir()}
    assert len(files) == 1
    monkeypatch.setattr("hashprompt.sweeps.engines.Engine.start", None)  # nothing may start
    again = sweep({**grid, "rows": {"mine": {"method": "simplecil"}}}, out, workers=1, quiet=True)
    assert {file: file.stat().st_mtime_ns for file in (out / "ledger").iterdir()} == files
    assert list(numbers(again).values()) == list(numbers(first).values())
    (run,) = again.runs
    alone = benchmark.load_result(out / "runs" / run.digest)
    assert numbers(again) == {"mine": [alone.accuracy]}


@pytest.mark.slow
def test_other_evaluations_are_kept(grid: dict[str, Any], tmp_path: Path) -> None:
    def asked(**ask: dict[str, Any]) -> dict[str, Any]:
        found = sweep({**grid, "methods": "simplecil", "evaluate": ask}, out, workers=1, quiet=True)
        ((result,),) = found.results().values()
        return {name: answer["options"] for name, answer in result["evaluations"].items()}

    out, one, two = tmp_path / "out", {"eval_batch_size": 1}, {"eval_batch_size": 2}
    assert asked(a=one) == {"a": one}
    assert asked(b=two) == {"a": one, "b": two}
    assert asked(a=two) == {"a": two, "b": two}  # another question under the old name


def test_an_evaluation_that_fails_costs_no_result(grid: dict[str, Any], tmp_path: Path) -> None:
    (run,) = read_grid({**grid, "methods": "simplecil"}).runs()
    folder = SweepFolder(tmp_path / "out")
    with pytest.raises(UserError, match="Cannot resume"):
        execute(folder, run.plan, {"other tasks": {"tasks": 2}})
    assert folder.state(run, time.time()).state == "done"


def test_a_run_resumes_where_its_files_are_now(
    grid: dict[str, Any], tiny_npz: Path, tmp_path: Path, cli: Cli
) -> None:
    planned = []
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        moved = shutil.copy(tiny_npz, tmp_path / place)
        planned += read_grid({**grid, "methods": "simplecil", "streams": f"npz:{moved}"}).runs()
    folder = SweepFolder(tmp_path / "out")
    folder.write_runs(planned[:1])
    benchmark.execute(planned[0].plan, folder.run_dir(planned[0].digest), quiet=True)
    (folder.run_dir(planned[0].digest) / "result.json").unlink()  # killed just before its end
    shutil.rmtree(tmp_path / "a")
    execute(folder, planned[1].plan, {"one by one": {"eval_batch_size": 1}})
    assert folder.state(planned[1], time.time()).state == "done"
    assert "1 done" in cli("sweep", "status", tmp_path / "out").out


def test_weights_need_not_be_here_to_see_how_far_a_sweep_is(
    grid: dict[str, Any], tmp_path: Path, cli: Cli
) -> None:
    grid |= {"methods": "simplecil", "backbones": "elsewhere/vit.safetensors"}
    SweepFolder(tmp_path).write_runs(read_grid(grid).runs(files_needed=False))
    assert "1 waiting" in cli("sweep", "status", tmp_path).out


class Stopped:
    """An engine that begins all planned, and is stopped before any is done."""

    workers, is_working = 1, False

    def __init__(self, folder: SweepFolder) -> None:
        self.folder = folder

    def start(self, jobs: Sequence[SweepJob], report: Report) -> None:
        for job in jobs:
            self.folder.write_progress(job.digest, progress())
            report(job, SweepOutcome("stopped"), 1)

    def stop(self) -> None:
        pass


def test_after_a_stop_runs_without_result_are_a_failure(
    grid: dict[str, Any], tmp_path: Path
) -> None:
    planned = read_grid({**grid, "methods": "simplecil"}).runs()
    found = run_sweep(planned, tmp_path, Stopped(SweepFolder(tmp_path)), quiet=True)
    assert [state.state for _, state in found.states()] == ["waiting"]
    with pytest.raises(typer.Exit):
        show(found, ended=True)
    show(found)  # from another terminal it is none


class Command:
    """`hashprompt sweep …` in a process of its own."""

    def __init__(self, grid: dict[str, Any], folder: Path) -> None:
        file = folder / "grid.yaml"
        file.write_text(json.dumps(grid))  # JSON is YAML
        self.out = folder / "out"
        call = [sys.executable, "-m", "hashprompt", "sweep", str(file), "--out", str(self.out)]
        self.process = subprocess.Popen([*call, "--quiet", "--workers", "1"], stderr=-1, text=True)

    def wait_for_second_task(self) -> dict[str, Any]:
        """Wait until the only run waits in its second task; its progress."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            if (self.out / "sweep.json").is_file():
                ((_, state),) = Sweep.load(self.out).states()
                if state.state == "running" and state.details["task"] == 1:
                    return state.details
            time.sleep(0.1)
        raise AssertionError("it did not come so far")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_sweep_is_resumed(
    number: signal.Signals, own_methods: Path, grid: dict[str, Any], tmp_path: Path
) -> None:
    """Ctrl-C saves; if we are killed, the worker notices, saves and ends."""
    command = Command({**grid, "methods": "patient"}, tmp_path)
    worker = command.wait_for_second_task()["process"]
    command.process.send_signal(number)
    time.sleep(0.5)
    (own_methods / "go").touch()  # the second task may begin, and is stopped there
    said = command.process.communicate(timeout=PATIENCE)[1]
    assert number == signal.SIGKILL or "Resume with the same command" in said
    deadline = time.monotonic() + PATIENCE
    while is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_alive(worker)
    assert not Sweep.load(command.out).results()
    found = sweep({**grid, "methods": ["patient", "simplecil"]}, command.out, workers=1, quiet=True)
    assert found.failures == {}
    assert numbers(found)["patient (default)"] == numbers(found)["simplecil (paper)"]


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"


def test_one_sweep_at_a_time(grid: dict[str, Any], tmp_path: Path) -> None:
    with (
        locked(tmp_path / "out", lambda: ""),
        pytest.raises(UserError, match="Another sweep is running in"),
    ):
        sweep({**grid, "methods": "simplecil"}, tmp_path / "out", quiet=True)


# What another terminal sees. -------------------------------------------------------------------


def progress(**changes: Any) -> dict[str, Any]:
    now = time.time()
    here = {"machine": platform.node(), "process": os.getpid()}
    about = {**here, "started": now - 60, "updated": now, "first_task": 0, "tasks": 4}
    return {**about, "task": 1, "phase": "train", "done": 5, "steps": 10, **changes}


def test_the_table_of_what_runs(grid: dict[str, Any], tmp_path: Path) -> None:
    """One task and half of the training of another in a minute: 60 s · 2.75 / 1.25 are left."""
    planned = read_grid({**grid, "methods": "simplecil"}).runs()
    folder = SweepFolder(tmp_path)
    folder.write_runs(planned)
    found = Sweep.load(tmp_path)
    assert found.status().title == "1 runs: 0 done, 0 running, 0 failed, 1 waiting"
    folder.write_progress(planned[0].digest, progress())
    table = found.status()
    assert dict(zip(table.header, table.rows[0], strict=True)) == {
        "row": "simplecil (paper)",
        "seed": "0",
        "stream": "npz:tiny.npz",
        "state": "running",
        "task": "2/4",
        "now": "train 5/10",
        "ETA": "0:02:12",
    }


def test_a_run_whose_process_is_gone_waits(grid: dict[str, Any], tmp_path: Path) -> None:
    planned = read_grid({**grid, "methods": "simplecil"}).runs()
    folder = SweepFolder(tmp_path)
    folder.write_runs(planned)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    silent = {"updated": time.time() - MAX_SILENT_SECONDS - 1}
    states = []
    for changes in ({}, {"process": ended.pid}, {"process": ended.pid, "machine": "far"}, silent):
        folder.write_progress(planned[0].digest, progress(**changes))
        states += [state.state for _, state in Sweep.load(tmp_path).states()]
    assert states == ["running", "waiting", "running", "waiting"]


def test_the_plan_of_a_sweep(
    grid: dict[str, Any], tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 images, 3 epochs, and as many kept ones; 24 to test: 8 after one task, 16, 24."""
    speed = "hashprompt.sweeps.estimate.images_per_second"
    monkeypatch.setattr(speed, lambda backbone, size: (3 * 288 + 144) / 7200)
    rows = {"er": {"method": "er", "options": {"epochs": 3}}}
    (tmp_path / "grid.yaml").write_text(json.dumps({**grid, "rows": rows, "seeds": [0, 1]}))
    grid["streams"] = [grid["streams"], "npz:none/nothing.npz"]
    (tmp_path / "half.yaml").write_text(json.dumps({**grid, "rows": rows}))
    out = tmp_path / "out"
    said = cli("sweep", tmp_path / "grid.yaml", "--out", out, "--plan", "--workers", 2).out
    assert "2 runs, 0 of them finished. About 576 training images and 288 evaluated images" in said
    assert "2 at a time, about 2.0 hours" in said
    said = cli("sweep", tmp_path / "grid.yaml", "--out", out, "--plan", "--workers", 8).out
    assert "8 at a time, about 30 minutes" in said
    said = cli("sweep", tmp_path / "grid.yaml", "--out", out, "--plan", "--workers", 999).out
    assert "999 at a time, about a minute" in said  # never none
    said = cli("sweep", tmp_path / "half.yaml", "--out", out, "--plan", "--workers", 1).out
    assert "2 runs, 0 of them finished, 1 cannot start (" in said
    assert "About 288 training images" in said
    assert not out.exists()
