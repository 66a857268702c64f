"""Sweeps at URIs: a run is resumed from there in an empty folder, to the same numbers."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from running import QUICK, Cli, decisive

from hashprompt import sweep
from hashprompt.engine.callbacks import Callback
from hashprompt.errors import UserError
from hashprompt.runs import benchmark
from hashprompt.storage.remote import RemoteFolder
from hashprompt.sweeps.folder import SweepFolder, open_folder
from hashprompt.sweeps.grid import GridRun, read_grid
from hashprompt.sweeps.jobs import execute
from hashprompt.sweeps.remote import Mirror
from hashprompt.sweeps.runner import Sweep


class Killed(BaseException):
    """Stands for a kill."""


class KilledInSecondTask(Callback):
    """After it nothing is sent any more."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def on_phase_start(self, task: int, phase: str, steps: int, done: int) -> None:
        if task == 1:
            self._patch.setattr(Mirror, "send", lambda self: None)
            raise Killed


class Begun(Callback):
    """Remembers after how many tasks a run went on."""

    after = -1

    def on_start(self, tasks: int, done: int) -> None:
        self.after = done


@pytest.fixture
def uri() -> Iterator[str]:
    """A folder in fsspec's memory, which knows no paths of this machine."""
    yield "memory://bucket/sweep"
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def run(tiny_npz: Path) -> GridRun:
    grid = {"methods": "hash", "streams": f"npz:{tiny_npz}", "options": QUICK}
    (planned,) = read_grid(grid).runs()
    return planned


def files(uri: str) -> list[str]:
    system, root = fsspec.core.url_to_fs(uri)
    return sorted(path.removeprefix(f"{root}/") for path in system.find(root))


def test_a_run_killed_after_its_first_task_is_resumed_from_the_uri(
    uri: str, run: GridRun, undisturbed: benchmark.Result
) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        execute(open_folder(uri), run.plan, {}, [KilledInSecondTask(patch)])
    folder, begun = open_folder(uri), Begun()  # of another machine: it has nothing
    folder.refresh()
    assert folder.state(run, now=0.0).state == "running"
    execute(folder, run.plan, {}, [begun])
    assert begun.after == 1
    third = open_folder(uri)
    third.refresh()
    state = third.state(run, now=0.0)
    assert state.state == "done"
    found = benchmark.Result(Path(), state.details)
    assert decisive(found) == decisive(undisturbed)
    assert f"runs/{run.digest}/result.json" in files(uri)
    assert f"progress/{run.digest}.json" not in files(uri)
    kept = [name for name in files(uri) if "/checkpoints/state-" in name]
    assert len(kept) == 2  # older ones are removed there too


@pytest.mark.slow
def test_a_run_whose_process_is_killed_is_resumed_in_another(
    tmp_path: Path, tiny_npz: Path, own_methods: Path, cli: Cli
) -> None:
    names = {"stream": f"npz:{tiny_npz}", "tasks": 3}
    expected = benchmark.run("simplecil", out=tmp_path / "run", quiet=True, **names)
    grid = {"methods": "mortal", "streams": f"npz:{tiny_npz}", "options": {"tasks": 3}}
    place = f"file://{tmp_path}/there"
    found = sweep(grid, place, workers=1, quiet=True, log=("csv",))
    assert found.failures == {}
    assert (own_methods / "begun").read_text() == "0112"  # the first task is learned once
    ((result,),) = found.results().values()
    assert result["accuracy"] == expected.accuracy
    digest = found.runs[0].digest
    logged = (tmp_path / "there" / "runs" / digest / "logs" / "tasks.csv").read_text()
    assert [line.partition(",")[0] for line in logged.splitlines()] == ["task", "1", "2", "3"]
    assert "1 done" in cli("sweep", "status", place).out
    compared = cli("compare", place)
    assert compared.code == 0, compared.said
    assert f"{result['metrics']['FAA']:.2f}" in compared.out
    assert "No sweep is at" in cli("compare", f"file://{tmp_path}/nothing").said


def test_tensors_are_sent_before_the_state_that_names_them(tmp_path: Path) -> None:
    order: list[str] = []

    class Recorded(RemoteFolder):
        def write(self, name: str, content: bytes) -> None:
            order.append(name.removeprefix("runs/x/"))

    checkpoint = ["checkpoints/state-000002.json", "checkpoints/tensors-000002.safetensors"]
    names = ["result.json", *checkpoint]
    mirror = Mirror(Recorded("memory://order"), "runs/x", tmp_path)
    for name in [*names, "config.json", ".lock", f".config.json.{'0' * 16}.tmp"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    mirror.send()
    assert order == ["config.json", *reversed(names)]
    mirror.send()
    assert len(order) == 4  # what did not change is not sent again


def test_a_copy_follows_what_is_changed_and_removed_elsewhere(uri: str, tmp_path: Path) -> None:
    remote = RemoteFolder(uri)
    for name in ("a.json", "b.json"):
        remote.write(f"ledger/{name}", b"1")
    mirror = Mirror(remote, "ledger", tmp_path)
    mirror.fetch()
    remote.write("ledger/a.json", b"2")
    remote.remove("ledger/b.json")
    remote.write("ledger/c.json", b"3")
    mirror.fetch()
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"a.json": "2", "c.json": "3"}
    assert files(uri) == ["ledger/a.json", "ledger/c.json"]  # nothing temporary is left


def test_a_server_that_is_gone_for_a_while_costs_nothing(
    uri: str, run: GridRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = RemoteFolder.write, iter(range(3))

    def write(self: RemoteFolder, name: str, content: bytes) -> None:
        if next(failures, None) is not None:
            raise ConnectionError("no answer")
        real(self, name, content)

    monkeypatch.setattr(RemoteFolder, "write", write)
    folder = open_folder(uri)
    with pytest.warns(UserWarning, match="Not copied yet, will be retried: no answer"):
        execute(folder, run.plan, {})
    folder.refresh()
    assert folder.state(run, now=0.0).state == "done"
    assert f"runs/{run.digest}/config.json" in files(uri)


def test_what_is_no_uri_is_a_path_and_unknown_kinds_are_refused(tmp_path: Path) -> None:
    assert type(open_folder(tmp_path)) is SweepFolder
    with pytest.raises(UserError, match="Cannot use nonsense://x"):
        open_folder("nonsense://x")
    with pytest.raises(UserError, match=r"No sweep is at memory://nothing"):
        Sweep.load("memory://nothing")


def test_a_server_that_is_gone_for_a_while_ends_no_sweep(
    uri: str, run: GridRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise ConnectionError("nobody is there")

    folder = open_folder(uri)
    folder.write_runs([run])
    folder.refresh()
    monkeypatch.setattr(RemoteFolder, "versions", gone)
    monkeypatch.setattr(RemoteFolder, "write", gone)
    with pytest.warns(UserWarning, match="nobody is there"):
        folder.refresh()
    with pytest.warns(UserWarning, match="nobody is there"):
        folder.write_failure(run.digest, "wrong", "", 1)
    with pytest.raises(ConnectionError):  # nothing is known of it yet
        open_folder(uri).refresh()
