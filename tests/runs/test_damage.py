"""Damaged, edited and foreign files in run directories: never other numbers, never a traceback."""

import errno
import json
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from running import state_of

from hashprompt.engine.checkpoint import Checkpoints
from hashprompt.errors import UserError
from hashprompt.report import read_result
from hashprompt.runs import benchmark
from hashprompt.storage import files


@pytest.fixture
def run(undisturbed: benchmark.Result, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    shutil.copytree(undisturbed.folder, tmp_path / "run")
    return tmp_path / "run"


def listing(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(p.relative_to(folder)): p.read_bytes() for p in files if p.name != ".lock"}


def newest(run: Path, kind: str) -> Path:
    return sorted((run / "checkpoints").glob(f"{kind}-*"))[-1]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


# An error of the disk is no damage. ------------------------------------------------------------


def break_disk(patch: pytest.MonkeyPatch, part: str) -> None:
    """Files with this in their name cannot be read at the moment."""
    real = files.open_file

    def fail(path: Path, most: int | None = None) -> Any:
        if part in path.name:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path, most)

    patch.setattr(files, "open_file", fail)


@pytest.mark.parametrize("part", ["state-", "tensors-"])
@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_a_passing_read_error_stops_and_deletes_nothing(
    part: str, command: str, run: Path, cli: Any
) -> None:
    if command == "resume":
        (run / "result.json").unlink()
    before = listing(run)
    with pytest.MonkeyPatch.context() as patch:
        break_disk(patch, part)
        outcome = cli(command, run)
    assert listing(run) == before
    assert outcome.code == 1
    assert "Input/output error" in outcome.said
    assert "Nothing was changed or deleted" in outcome.said


def save(checkpoints: Checkpoints, number: int) -> None:
    checkpoints.save({"x": torch.tensor([number])}, state_of(number))


def names(checkpoints: Checkpoints) -> set[int]:
    return {int(path.stem[-6:]) for path in checkpoints.folder.glob("*-[0-9]*")}


def test_loading_deletes_nothing_and_says_what_is_damaged(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2):
        save(checkpoints, number)
    cut(tmp_path / "tensors-000002.safetensors")
    before = listing(tmp_path)
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"tensors-000002.*the previous checkpoint"):
            loaded = Checkpoints(tmp_path).load()
        assert loaded is not None
        assert loaded[1]["position"]["task"] == 1
    cut(tmp_path / "state-000001.json")
    with pytest.warns(UserWarning, match=r"No checkpoint is intact"):
        assert Checkpoints(tmp_path).load() is None
    assert listing(tmp_path).keys() == before.keys()


def test_saving_after_a_fall_back_keeps_what_was_fallen_back_to(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2, 3):
        save(checkpoints, number)
    (tmp_path / "state-000003.json").write_text("{")
    again = Checkpoints(tmp_path)
    with pytest.warns(UserWarning, match="state-000003"):
        again.load()
    save(again, 4)
    assert names(again) == {2, 3, 4}  # two whole ones, and nobody wrote over the damaged one
    assert (tmp_path / "state-000003.json").read_text() == "{"
    save(again, 5)
    assert names(again) == {4, 5}


def test_files_that_we_did_not_name_are_never_removed(tmp_path: Path) -> None:
    foreign = [
        "notes.txt",
        "state-final.json",
        "tensors-1.safetensors",
        ".hidden.tmp",
        "best-000001.json",
    ]
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1)
    for name in foreign:
        (tmp_path / name).write_text("mine")
    for number in (2, 3, 4):
        save(checkpoints, number)
    assert all((tmp_path / name).read_text() == "mine" for name in foreign)


# A finished run. -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tensors", "state"])
def test_a_finished_run_whose_learner_is_damaged_is_repaired_by_resume(
    kind: str, run: Path, undisturbed: benchmark.Result, assert_same: Any
) -> None:
    cut(newest(run, kind))
    before = listing(run)
    with (
        pytest.warns(UserWarning, match="Using the previous checkpoint"),
        pytest.raises(UserError, match=f"hashprompt resume {run}"),
    ):
        benchmark.evaluate(run, quiet=True)
    assert listing(run) == before
    with pytest.warns(UserWarning, match="trained model in .* is damaged. It is recomputed"):
        assert_same(benchmark.resume(run, quiet=True))
    assert benchmark.evaluate(run, quiet=True)["average"] == undisturbed.metrics["FAA"]
    assert_same(benchmark.resume(run, quiet=True))


def test_a_finished_run_without_a_whole_checkpoint_still_gives_its_result(
    run: Path, undisturbed: benchmark.Result
) -> None:
    for path in (run / "checkpoints").glob("tensors-*"):
        cut(path)
    with pytest.warns(UserWarning, match="Only the result is left"):
        assert benchmark.resume(run).data == undisturbed.data
    shutil.rmtree(run / "checkpoints")
    assert benchmark.resume(run).data == undisturbed.data


def test_a_damaged_result_is_made_anew_from_the_checkpoints(run: Path, assert_same: Any) -> None:
    cut(run / "result.json")
    with pytest.raises(UserError, match=r"is damaged .*Write it again with `hashprompt resume`"):
        read_result(run)
    with pytest.warns(UserWarning, match="It is recomputed"):
        benchmark.resume(run, quiet=True)
    assert_same(benchmark.load_result(run))
    cut(run / "result.json")
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(UserError, match=r"result.json is damaged"):
        benchmark.resume(run, quiet=True)


# Flips and edits. ------------------------------------------------------------------------------


def only_one_checkpoint(run: Path) -> Any:
    loaded = Checkpoints(run / "checkpoints").load()
    if loaded is None:
        raise UserError("said by a warning")
    return {k: v for k, v in loaded[1].items() if k in ("position", "log", "passes")}


READERS: dict[str, Callable[[Path], Any]] = {
    "config.json": benchmark.stored_plan,
    "result.json": read_result,
    "state": only_one_checkpoint,
}


def changed(content: bytes) -> list[bytes]:
    """Each with one byte flipped, one digit or word edited, or an end cut off."""
    made = []
    for place in range(0, len(content), max(1, len(content) // 150)):
        for bit in (0, 1, 4):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            made.append(bytes(flipped))
    digits = [match.start() for match in re.finditer(rb"\d", content)]
    for place in digits[:: max(1, len(digits) // 100)]:
        other = b"%d" % ((int(content[place : place + 1]) + 1) % 10)
        made.append(content[:place] + other + content[place + 1 :])
    for place in range(0, len(content), max(1, len(content) // 20)):
        made.append(content[:place])
    words = [
        (b"null", b"0"),
        (b"true", b"false"),
        (b"[", b"{"),
        (b'"hash"', b"7"),
        (b"1.0", b"1e9"),
    ]
    return made + [content.replace(old, new, 1) for old, new in words if old in content]


@pytest.mark.parametrize("name", READERS)
def test_a_changed_file_is_refused_or_reads_the_same(name: str, run: Path) -> None:
    for kind in ("state", "tensors"):
        sorted((run / "checkpoints").glob(f"{kind}-*"))[0].unlink()
    path = newest(run, "state") if name == "state" else run / name
    tensors = newest(run, "tensors")
    whole = tensors.read_bytes()
    read, content = READERS[name], path.read_bytes()
    expected, refused, cases = read(run), 0, changed(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases:
            path.write_bytes(case)
            tensors.write_bytes(whole)
            try:
                assert read(run) == expected
            except UserError:
                refused += 1
    assert refused > 0.9 * len(cases) > 300


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an accuracy": lambda r: r["accuracy"][0].__setitem__(0, 99.0),
    "a metric": lambda r: r["metrics"].update(FAA=99.0),
    "no metric": lambda r: r.pop("metrics"),
    "metrics of another type": lambda r: r.update(metrics=[1, 2]),
    "after_task of another type": lambda r: r.update(after_task="x"),
    "config of another type": lambda r: r.update(config="hash"),
    "options of another type": lambda r: r["config"].update(options=[1]),
    "protocol of another type": lambda r: r.update(protocol=[1]),
    "format as text": lambda r: r.update(format="2"),
    "format as a list": lambda r: r.update(format=[2]),
    "no format": lambda r: r.pop("format"),
    "no checksum": lambda r: r.pop("sha256", None),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("command", ["compare", "report"])
def test_an_edited_result_is_refused_in_words(edit: str, command: str, run: Path, cli: Any) -> None:
    stored = json.loads((run / "result.json").read_bytes())
    EDITS[edit](stored)
    (run / "result.json").write_text(json.dumps(stored))
    outcome = cli(command, run)
    assert outcome.code == 1
    assert "result.json is damaged" in outcome.said


CONFIG_EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a rate": lambda c: c["options"].update(lr=0.5),
    "options of another type": lambda c: c.update(options=[1]),
    "an unknown option": lambda c: c["options"].update(nonsense=1),
    "a protocol of another type": lambda c: c.update(protocol=7),
    "an unknown protocol key": lambda c: c["protocol"].update(nonsense=1),
    "a method of another type": lambda c: c.update(method=[]),
    "a seed of another type": lambda c: c.update(seed="0"),
    "format as text": lambda c: c.update(format="2"),
    "no preset": lambda c: c.pop("preset"),
}


@pytest.mark.parametrize("command", ["resume", "evaluate"])
@pytest.mark.parametrize("edit", CONFIG_EDITS)
def test_an_edited_config_is_refused_and_the_way_to_change_options_told(
    edit: str, command: str, run: Path, cli: Any
) -> None:
    if command == "resume":
        (run / "result.json").unlink()
    stored = json.loads((run / "config.json").read_bytes())
    CONFIG_EDITS[edit](stored)
    (run / "config.json").write_text(json.dumps(stored))
    outcome = cli(command, run)
    assert outcome.code == 1
    assert "config.json is damaged" in outcome.said
    assert "hashprompt run --set" in outcome.said
