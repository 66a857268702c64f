"""Shared fixtures: a cache of our own, a stream that trains in a second, the command line."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import pytest
import torch
from hypothesis import HealthCheck, settings
from pictures import write_stripes
from running import QUICK, Cli, CommandResult, TinyRun, decisive

from hashprompt.cli.app import main
from hashprompt.runs import benchmark

# The same examples every time, however busy the machine is.
ALWAYS: dict[str, Any] = {"derandomize": True, "deadline": None, "database": None}
settings.register_profile("tests", **ALWAYS, suppress_health_check=list(HealthCheck))
settings.load_profile("tests")


@pytest.fixture(scope="session", autouse=True)
def _own_cache_and_one_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing from earlier sessions; the workers of xdist share the folder."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HASHPROMPT_CACHE", str(base / "hashprompt-cache"))
        yield


@pytest.fixture(scope="session")
def tiny_npz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six classes that anybody can tell apart, 8 training and 4 test images each."""
    return write_stripes(tmp_path_factory.mktemp("tiny") / "tiny.npz")


@pytest.fixture(scope="session")
def lonely_npz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with one training image per class."""
    return write_stripes(tmp_path_factory.mktemp("lonely") / "lonely.npz", train_each=1)


@pytest.fixture(scope="session")
def tiny_run(tiny_npz: Path) -> TinyRun:
    """`tiny_run(out, **changes)`: a run that takes about a second; None leaves an option out."""

    def run(out: Path, **changes: Any) -> benchmark.Result:
        settings = {"stream": f"npz:{tiny_npz}", "quiet": True, **QUICK, **changes}
        return benchmark.run(out=out, **{k: v for k, v in settings.items() if v is not None})

    return run


@pytest.fixture(scope="session")
def tiny_flags(tiny_npz: Path) -> list[str]:
    """The same as arguments of `hashprompt run`."""
    settings = [part for k, v in QUICK.items() for part in ("--set", f"{k}={v}")]
    return ["--stream", f"npz:{tiny_npz}", "--quiet", *settings]


@pytest.fixture(scope="session")
def undisturbed(tiny_run: TinyRun, tmp_path_factory: pytest.TempPathFactory) -> benchmark.Result:
    """The tiny run, never interrupted, saved after every step.

    The second of two: the first one fills the cache of plain features, and what is found there
    does not count as a pass.
    """
    folder = tmp_path_factory.mktemp("undisturbed")
    tiny_run(folder / "first")
    return tiny_run(folder / "second", checkpoint_minutes=0)


@pytest.fixture(scope="session")
def assert_same(undisturbed: benchmark.Result) -> Callable[..., None]:
    """`assert_same(result)`: it has the numbers of the undisturbed run, to the last digit."""

    def check(result: benchmark.Result, but: tuple[str, ...] = ()) -> None:
        found, expected = decisive(result), decisive(undisturbed)
        for name in expected:
            assert name in but or found[name] == expected[name], name

    return check


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`cli("run", "--seed", 1)`: the real entry point, in this process."""

    def call(*arguments: object) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["hashprompt", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code: Any = 0
        except SystemExit as stop:
            code = stop.code or 0
        printed = capsys.readouterr()
        assert "Traceback" not in printed.out + printed.err
        return CommandResult(code, printed.out, printed.err)

    return call
