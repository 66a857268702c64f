"""A run that is killed, anywhere and repeatedly, ends with the numbers of an undisturbed one."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from safetensors.torch import load_file

from hashprompt.cli.app import main
from hashprompt.engine.checkpoint import Checkpoints
from hashprompt.runs import benchmark

SAVE_ALWAYS = ["--set", "checkpoint_minutes=0"]
PATIENCE = 300  # seconds until a process counts as stuck


def newest(folder: Path) -> int:
    """Number of the newest checkpoint of a run, 0 without any."""
    found = (folder / "checkpoints").glob("state-*.json")
    return max((int(path.stem.removeprefix("state-")) for path in found), default=0)


def final_tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / f"tensors-{newest(folder):06d}.safetensors")


@pytest.fixture
def same_as_undisturbed(
    undisturbed: benchmark.Result, assert_same: Callable[..., None]
) -> Callable[[Path], None]:
    """Results to the last digit, and every tensor of the learner to the last bit."""

    def check(folder: Path) -> None:
        assert_same(benchmark.load_result(folder))
        found, expected = final_tensors(folder), final_tensors(undisturbed.folder)
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(found[name], tensor), name

    return check


# Real kills. -------------------------------------------------------------------------------


class Forked:
    """`hashprompt …` in a copy of this process: importing torch anew takes many seconds."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.log, self._over = log, False
        self.pid = os.fork()
        if not self.pid:
            self._be_the_command(arguments)

    def _be_the_command(self, arguments: list[str]) -> NoReturn:
        code = 99
        try:
            target = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(target, 1)
            os.dup2(target, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            sys.argv = ["hashprompt", *arguments]
            # Drawing takes longer than training here and would get most of the kills.
            benchmark.Result.report = lambda self: self.folder  # type: ignore[method-assign]
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def over(self) -> bool:
        if not self._over:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._over = pid != 0
            assert not self._over or status == 0, self.log.read_text()
        return self._over

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._over = True


def survive(flags: list[str], folder: Path, moments: list[tuple[int, float]]) -> int:
    """Run, kill at each moment, go on to the end; returns how often there was a kill.

    Args:
        flags: of `hashprompt run`.
        folder: the run directory.
        moments: each the number of a checkpoint to wait for, and seconds after it.
    """
    kills = 0
    for moment in [*moments, None]:
        if (folder / "result.json").is_file():
            break
        resuming = (folder / "config.json").is_file()
        arguments = ["resume", str(folder)] if resuming else ["run", "--out", str(folder), *flags]
        process, started = Forked(arguments, folder.with_suffix(".log")), time.monotonic()
        while not process.over():
            assert time.monotonic() - started < PATIENCE
            if moment is not None and newest(folder) >= moment[0]:
                time.sleep(moment[1])
                if not process.over():
                    process.kill()
                    kills += 1
            else:
                time.sleep(0.001)
    return kills


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


@needs_fork
def test_a_run_killed_twice_ends_as_if_nothing_had_happened(
    tiny_flags: list[str],
    undisturbed: benchmark.Result,
    same_as_undisturbed: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    saves = newest(undisturbed.folder)
    moments = [(saves // 4, 0.01), (2 * saves // 3, 0.02)]
    kills = survive([*tiny_flags, *SAVE_ALWAYS], tmp_path / "run", moments)
    assert kills == 2
    same_as_undisturbed(tmp_path / "run")


# Every kind of moment, in this process. ----------------------------------------------------


class PowerCut(BaseException):
    """What no `except Exception` may catch."""


# (task, phase, epoch, step) that is being saved. Phases of the first task: Gaussians, TII, WTP,
# Gaussians; of the later ones: Gaussians, TII, its alignment, WTP, Gaussians, TAP.
MOMENTS = {
    "the first task has begun": (0, 0, 0, 0),
    "inside an epoch of TII": (0, 1, 0, 1),
    "inside an epoch of WTP": (0, 2, 1, 1),
    "the first task is evaluated": (1, -1, 0, 0),
    "the second task has begun": (1, 0, 0, 0),
    "inside the alignment of TII": (1, 2, 0, 1),
    "WTP is to start": (1, 3, 0, 0),
    "inside the first epoch of WTP": (1, 3, 0, 1),
    "between epochs of WTP": (1, 3, 0, 2),
    "inside TAP": (2, 5, 1, 1),
    "the last task is evaluated": (3, -1, 0, 0),
}


def cut_power(patch: pytest.MonkeyPatch, moment: tuple[int, ...]) -> None:
    """The power goes off before the save of this moment."""
    save = Checkpoints.save

    def watched(self: Checkpoints, tensors: Any, state: dict[str, Any]) -> None:
        if tuple(state["position"].values()) == moment:
            raise PowerCut
        save(self, tensors, state)

    patch.setattr(Checkpoints, "save", watched)


def test_wherever_the_power_goes_off_the_numbers_stay_the_same(
    tiny_run: Any,
    same_as_undisturbed: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    go_on = partial(tiny_run, folder, checkpoint_minutes=0)
    for moment in MOMENTS.values():  # one run, cut off in all of them
        with pytest.MonkeyPatch.context() as patch:
            cut_power(patch, moment)
            with pytest.raises(PowerCut):
                go_on()
        go_on = partial(benchmark.resume, folder, quiet=True)
    assert not (folder / "result.json").exists()
    go_on()
    same_as_undisturbed(folder)


def test_a_damaged_newest_checkpoint_costs_a_step_but_no_digit(
    tiny_run: Any,
    same_as_undisturbed: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        cut_power(patch, MOMENTS["inside the first epoch of WTP"])
        with pytest.raises(PowerCut):
            tiny_run(tmp_path / "run", checkpoint_minutes=0)
    tensors = (
        tmp_path / "run" / "checkpoints" / f"tensors-{newest(tmp_path / 'run'):06d}.safetensors"
    )
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"!")
    benchmark.resume(tmp_path / "run", quiet=True)
    same_as_undisturbed(tmp_path / "run")
