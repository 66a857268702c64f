"""Figures of the paper, drawn from ledgers made by hand; what they show is read off their axes."""

from pathlib import Path
from typing import Any

import pytest
from ledgers import NANO, result_of, write_ledger

from hashprompt.paper.figures import FIGURES
from hashprompt.paper.grids import Place, runs_of
from hashprompt.paper.results import Results
from hashprompt.report.ledger import Ledger


def axes_of(name: str, ledger: Path) -> Any:
    """The first axes of a figure, or None."""
    figure = FIGURES[name][0](Results([ledger]), Place("nano"))
    return figure and figure.axes[0]


def lines_of(name: str, ledger: Path) -> dict[str, list[tuple[float, float]]]:
    """Label -> points of its line."""
    containers = axes_of(name, ledger).containers
    return {c.get_label(): list(map(tuple, c.lines[0].get_xydata().tolist())) for c in containers}


@pytest.mark.parametrize(
    ("table", "drawn"),
    [
        ("T1", {"1a", "1b", "1c", "3a", "3c"}),  # T2, T5, T14 and F3 share runs with it
        ("T5", {"1a", "1b", "1c", "3a", "3b", "3c"}),
        ("F5", {"1a", "1b", "1c", "3a", "3c", "5"}),
        ("T4", set()),
    ],
)
def test_what_has_no_runs_is_not_drawn(table: str, drawn: set[str], tmp_path: Path) -> None:
    write_ledger(tmp_path, [table], lambda row, seed: 60.0)
    results = Results([tmp_path])
    found = {name for name, (draw, _) in FIGURES.items() if draw(results, Place("nano"))}
    assert found == drawn


def test_plasticity_is_the_diagonal(tmp_path: Path) -> None:
    accuracy = [[90.0, 50.0], [None, 70.0]]
    write_ledger(tmp_path, ["T2"], lambda row, seed: 60.0, accuracy=accuracy)
    found = lines_of("1a", tmp_path)
    assert list(found) == ["Hash (Ours)", "HiDe-Prompt", "NoRGa"]
    assert all(points == [(0, 90.0), (1, 70.0)] for points in found.values())


def test_use_of_experts_is_their_share(tmp_path: Path) -> None:
    write_ledger(tmp_path, ["T5"], lambda row, seed: 60.0, usage=[[6, 2, 0], [0, 0, 2]])
    without, with_ = axes_of("1c", tmp_path).containers
    assert [bar.get_height() for bar in with_] == [60.0, 20.0, 20.0]
    assert "forgetting 30.0" in without.get_label()
    heat = axes_of("3b", tmp_path).images[0]
    assert heat.get_array().tolist() == [[75.0, 25.0, 0.0], [0.0, 0.0, 100.0]]
    assert heat.get_clim() == (0, 100.0)


def test_the_first_seed_is_drawn(tmp_path: Path) -> None:
    for run in runs_of(["T5"], NANO):
        usage = [[8, 0], [0, 0]] if run.plan.seed == 0 else [[0, 8], [0, 0]]
        name = f"{3 - run.plan.seed}{run.digest[1:]}"  # of all names the last
        Ledger(tmp_path).write(name, result_of(run.plan, 60.0, usage=usage))
    without, with_ = axes_of("1c", tmp_path).containers
    assert [[bar.get_height() for bar in bars] for bars in (without, with_)] == [[100, 0]] * 2


def test_forgetting_with_and_without_the_modulator(tmp_path: Path) -> None:
    """FM is 90 − FAA: 30, 29, 28 without, 10, 9, 8 with."""
    write_ledger(tmp_path, ["F3"], lambda row, seed: seed + (60 if "without" in row else 80))
    heights = [patch.get_height() for patch in axes_of("3a", tmp_path).patches]
    assert heights == [29.0, 9.0]


def test_long_sequences(tmp_path: Path) -> None:
    for run in runs_of(["F4"], NANO):
        tasks = run.plan.stream_options.tasks or 10
        after = [{"task": t, "average": 100.0 - t} for t in range(tasks)]
        accuracy = [[50.0] * tasks] * tasks
        found = result_of(run.plan, float(tasks), after_task=after, accuracy=accuracy)
        Ledger(tmp_path).write(run.digest, found)
    # After the 10th, 20th and 30th task of 30.
    assert lines_of("4a", tmp_path)["Hash"] == [(10, 91.0), (20, 81.0), (30, 71.0)]
    assert lines_of("4b", tmp_path)["L2P"] == [(10, 10.0), (20, 20.0), (30, 30.0)]


def test_batch_sizes_are_those_that_were_asked(tmp_path: Path) -> None:
    asked = {"batch 1": {"average": 70.0}, "batch 128": {"average": 72.0}}
    write_ledger(tmp_path, ["F6"], lambda row, seed: 60.0, evaluations=asked)
    assert lines_of("batch", tmp_path)["Hash"] == [(1, 70.0), (128, 72.0)]


def test_drift_is_drawn_task_by_task(tmp_path: Path) -> None:
    diagnostics = [{"task": 0}, {"task": 1, "drift": 0.5}, {"task": 2, "drift": 0.75}]
    write_ledger(tmp_path, ["F7"], lambda row, seed: 60.0, diagnostics=diagnostics)
    found = lines_of("drift", tmp_path)
    assert list(found)[:2] == ["MoE", "Hash"]
    assert len(found) == 4
    assert all(points == [(1, 0.5), (2, 0.75)] for points in found.values())
