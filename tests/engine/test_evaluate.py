"""Asking the learner of a finished run again."""

import json
from pathlib import Path
from typing import Any

import pytest

from hashprompt.errors import UserError
from hashprompt.runs import benchmark


@pytest.fixture(scope="module")
def hide_run(tiny_run: Any, tmp_path_factory: pytest.TempPathFactory) -> benchmark.Result:
    out = tmp_path_factory.mktemp("evaluate") / "run"
    return tiny_run(out, method="hide", layers=(1, 2), prompt_length=4)


def test_the_same_options_give_the_numbers_of_the_run(hide_run: benchmark.Result) -> None:
    before = (hide_run.folder / "result.json").read_bytes()
    found = benchmark.evaluate(hide_run.folder, quiet=True)
    assert found["accuracy"] == [row[-1] for row in hide_run.accuracy]
    assert found["average"] == hide_run.metrics["FAA"]
    assert (hide_run.folder / "result.json").read_bytes() == before


@pytest.mark.parametrize("size", [1, 5])
def test_the_batch_size_changes_nothing(hide_run: benchmark.Result, size: int) -> None:
    found = benchmark.evaluate(hide_run.folder, quiet=True, eval_batch_size=size)
    assert found["average"] == hide_run.metrics["FAA"]


def test_other_heads_can_be_read_off_the_same_learner(hide_run: benchmark.Result) -> None:
    heads = {"tii": "discriminant", "align": "discriminant"}
    found = benchmark.evaluate(hide_run.folder, quiet=True, **heads)
    assert 0 <= found["average"] <= 100
    assert found["task_inference"] is not None


def test_what_the_learner_does_not_hold_is_said(hide_run: benchmark.Result) -> None:
    with pytest.raises(UserError, match="made with other options"):
        benchmark.evaluate(hide_run.folder, quiet=True, statistics="multi-centroid")


def test_other_data_is_refused(hide_run: benchmark.Result) -> None:
    with pytest.raises(UserError, match="Cannot resume"):
        benchmark.evaluate(hide_run.folder, quiet=True, classes=4)


def test_an_unfinished_run_is_refused(hide_run: benchmark.Result, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((hide_run.folder / "config.json").read_bytes())
    with pytest.raises(UserError, match="not finished"):
        benchmark.evaluate(tmp_path, quiet=True)


def test_the_command_prints_every_task(cli: Any, hide_run: benchmark.Result) -> None:
    outcome = cli("evaluate", hide_run.folder, "--set", "eval_batch_size=1")
    assert outcome.code == 0
    assert f"FAA {hide_run.metrics['FAA']:.2f}" in outcome.out
    assert (
        json.loads((hide_run.folder / "config.json").read_text())["options"]["eval_batch_size"] > 1
    )
