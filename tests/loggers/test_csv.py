"""The CSV log: what it holds, and that a killed run leaves nothing in it twice."""

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hashprompt.engine.callbacks import Callback, StepEnd
from hashprompt.errors import UserError
from hashprompt.loggers import CsvLog, RunLogger, make_loggers, run_logger
from hashprompt.runs import benchmark

CONFIG = {"method": "hash", "seed": 3, "options": {"lr": 0.5, "stream_file": "=evil()"}}


class CutOff(Exception):  # noqa: N818
    """Stands for a kill."""


class CutAtStep(Callback):
    """Cuts a run off after a step of training."""

    def __init__(self, total: int) -> None:
        self.total = total

    def on_step_end(self, step: StepEnd) -> None:
        if step.total == self.total:
            raise CutOff


class CutAtEvaluation(Callback):
    """Cuts a run off when a task is tested and logged, but not yet saved."""

    def on_evaluation_end(self, entry: Mapping[str, Any], stages: int) -> None:
        if entry["task"] == 1:
            raise CutOff


def lines(run: Path, table: str) -> list[dict[str, str]]:
    with open(run / "logs" / f"{table}.csv", newline="") as file:
        return list(csv.DictReader(file))


def step(total: int, loss: float, rates: tuple[float, ...] = (0.1,)) -> StepEnd:
    return StepEnd(1, "prompts", 0, 2, total - 1, 10, 8 * total, loss, rates, total)


def started(folder: Path) -> RunLogger:
    logger = RunLogger("csv", CsvLog)
    logger.on_run_start(folder, CONFIG)
    return logger


@pytest.fixture
def _every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_logger, "STEP_SECONDS", 0.0)


@pytest.mark.usefixtures("_every_step")
def test_the_files_hold_what_was_told(tmp_path: Path) -> None:
    logger = started(tmp_path)
    logger.on_step_end(step(1, 2.5))
    logger.on_step_end(step(2, -1.5, (0.1, 0.2)))  # a phase with two parameter groups
    entry = {"task": 1, "average": 75.0, "new_classes": None, "task_inference": 50.0}
    logger.on_evaluation_end({**entry, "accuracy": [50.0, 100.0]}, 3)
    result = {"accuracy": [[1.0, 2.0]] * 2, "metrics": {"FAA": 75.0, "CAA": 80.0, "FM": None}}
    logger.on_run_end(result)
    files = {file.name: file.read_text() for file in (tmp_path / "logs").iterdir()}
    assert files == {
        "options.csv": "option,value\nmethod,hash\nseed,3\nlr,0.5\nstream_file,'=evil()\n",
        "steps.csv": "step,task,phase,epoch,loss,rate_1,rate_2\n"
        "1,2,prompts,1,2.5,0.1,\n"
        "2,2,prompts,1,-1.5,0.1,0.2\n",
        "tasks.csv": "task,average,new_classes,task_inference,accuracy_1,accuracy_2,accuracy_3\n"
        "2,75.0,,50.0,50.0,100.0,\n",
        "final.csv": "task,FAA,CAA,FM\n2,75.0,80.0,\n",
    }


def test_steps_are_thinned_but_the_last_of_a_phase_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(run_logger.time, "monotonic", lambda: now[0])
    logger = started(tmp_path)
    for total in range(1, 21):  # one every 0.4 seconds; 20 is the last of two epochs of ten steps
        logger.on_step_end(step(total, 1.0))
        now[0] += 0.4
    assert [int(line["step"]) for line in lines(tmp_path, "steps")] == [1, 4, 7, 10, 13, 16, 19, 20]


@pytest.mark.usefixtures("_every_step")
def test_what_was_logged_beyond_the_checkpoint_is_dropped(tmp_path: Path) -> None:
    first = started(tmp_path)
    for total in (1, 2, 3, 4):
        first.on_step_end(step(total, 10.0 * total))
    with open(tmp_path / "logs" / "steps.csv", "a") as file:
        file.write("1")  # a kill cut the fifth line, which now looks like one of the first step
    second = started(tmp_path)
    for total in (3, 4):
        second.on_step_end(step(total, float(total)))
    found = [(line["step"], line["loss"]) for line in lines(tmp_path, "steps")]
    assert found == [("1", "10.0"), ("2", "20.0"), ("3", "3.0"), ("4", "4.0")]


@pytest.mark.usefixtures("_every_step")
def test_a_run_that_was_cut_off_twice_has_the_log_of_an_undisturbed_one(
    tmp_path: Path, tiny_run: Any
) -> None:
    tiny_run(tmp_path / "whole", log=("csv",))
    steps = [int(line["step"]) for line in lines(tmp_path / "whole", "steps")]
    assert steps == list(range(1, len(steps) + 1))
    cut = tmp_path / "cut"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "make_loggers", lambda names: [*make_loggers(names), CutAtStep(3)])
        with pytest.raises(CutOff):
            tiny_run(cut, log=("csv",))
    assert [line["step"] for line in lines(cut, "steps")] == ["1", "2", "3"]
    with pytest.raises(CutOff):
        benchmark.resume(cut, quiet=True, callbacks=[*make_loggers(["csv"]), CutAtEvaluation()])
    assert [line["task"] for line in lines(cut, "tasks")] == ["1", "2"]
    benchmark.resume(cut, quiet=True, log=("csv",))
    for table in ("steps", "tasks", "final", "options"):
        found = (cut / "logs" / f"{table}.csv").read_text()
        assert found == (tmp_path / "whole" / "logs" / f"{table}.csv").read_text(), table


def test_the_log_has_the_numbers_of_the_result(tmp_path: Path, tiny_run: Any) -> None:
    result = tiny_run(tmp_path / "run", log=("csv",))
    tasks = lines(tmp_path / "run", "tasks")
    assert [line["task"] for line in tasks] == ["1", "2", "3"]
    for number, line in enumerate(tasks):
        column = [row[number] for row in result.accuracy]
        found = [line[f"accuracy_{task}"] for task in (1, 2, 3)]
        assert found == ["" if value is None else str(value) for value in column]
        assert line["average"] == str(result.data["after_task"][number]["average"])
    (final,) = lines(tmp_path / "run", "final")
    assert {k: str(v) for k, v in result.metrics.items()} == {k: final[k] for k in result.metrics}
    options = {line["option"]: line["value"] for line in lines(tmp_path / "run", "options")}
    assert (options["method"], options["epochs"], options["batch_size"]) == ("hash", "2", "8")


@pytest.mark.filterwarnings("error")
def test_a_log_that_fails_is_told_once_and_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "logs" / "steps.csv")
    logger = started(tmp_path)
    with pytest.warns(UserWarning, match=r"The csv log ends here: .*is a link.*The run continues"):
        logger.on_step_end(step(1, 2.5))
    logger.on_step_end(step(20, 2.5))  # a second warning would be an error
    logger.on_run_end(None)


def test_overwriting_a_run_removes_its_log_and_nothing_else(tmp_path: Path, tiny_run: Any) -> None:
    place = tmp_path / "run"
    tiny_run(place, log=("csv",))
    (place / "logs" / "mine.txt").write_text("keep")
    tiny_run(place, overwrite=True)
    assert [file.name for file in (place / "logs").iterdir()] == ["mine.txt"]


def test_a_wrong_name_and_a_missing_package_are_refused(
    monkeypatch: pytest.MonkeyPatch, cli: Any, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"Unknown logger `cvs`. Did you mean `csv`"):
        make_loggers(["csv", "cvs"])
    monkeypatch.setattr("hashprompt.loggers.find_spec", lambda name: None)
    assert len(make_loggers(["csv", "csv"])) == 1
    for name in ("tensorboard", "mlflow", "wandb"):
        said = cli("run", "--log", name, "--out", tmp_path / "run").said
        assert said.endswith(f"pip install 'hashprompt[{name}]'")
    assert not (tmp_path / "run").exists()
