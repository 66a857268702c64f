"""The report, from ledgers made by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ledgers import MINI, NANO, draw_only, result_of, write_ledger

from hashprompt.errors import UserError
from hashprompt.paper.data import find_experiment
from hashprompt.paper.grids import Place, runs_of
from hashprompt.paper.report import write_paper_report
from hashprompt.paper.result_tables import marks_of, tables_of
from hashprompt.paper.results import Results
from hashprompt.report.ledger import Ledger
from hashprompt.report.measures import (
    MEASURES,
    prompt_parameters,
    usage_entropy,
    usage_shares,
    variation,
)
from hashprompt.runs.plan import make_plan


def rows_of(folder: Path, name: str) -> dict[str, list[list[str]]]:
    """Title -> lines of each table of an experiment."""
    found = tables_of(find_experiment(name), Results([folder]))
    return {table.title: table.rows for table in (each.table() for each in found)}


def test_ours_stands_beside_the_paper(tmp_path: Path) -> None:
    write_ledger(tmp_path, ["T12"], lambda row, seed: 70.0 + 2 * seed)
    shown = rows_of(tmp_path, "T12")
    assert list(shown) == ["nano, instead of CIFAR-100", "ImageNet-R, not run"]
    # 70, 72, 74: mean 72, deviation 2; CAA 80, 81, 82. 72 − 88.56 and 81 − 90.12.
    assert shown["nano, instead of CIFAR-100"][0] == [
        *("None", "88.56", "72.00 ± 2.00 (3)", "-16.56"),
        *("90.12", "81.00 ± 1.00 (3)", "-9.12"),
    ]
    assert shown["ImageNet-R, not run"][0] == [
        *("None", "75.92 †1", "not run", "–", "79.53", "not run", "–")
    ]


def test_cells_that_were_not_run_say_so(tmp_path: Path) -> None:
    run = next(run for run in runs_of(["T5"], NANO) if run.row == "T5 MoE")
    Ledger(tmp_path).write(run.digest, result_of(run.plan, 66.0))
    shown = rows_of(tmp_path, "T5")["nano, instead of CIFAR-100"]
    assert [line[4] for line in shown] == ["66.00 (1)", *["not run"] * 6]


def test_runs_that_belong_to_no_table_make_no_place(tmp_path: Path) -> None:
    write_ledger(tmp_path, ["T5"], lambda row, seed: 60.0)
    before = Results([tmp_path])
    for stream, backbone in (("split-cub200", "tiny.safetensors"), ("npz:own.npz", "own.pth")):
        other = make_plan("hash", stream, backbone, options={"lr": 0.123}, files_needed=False)
        Ledger(tmp_path).write(other.digest, result_of(other, 50.0))
    assert Results([tmp_path]).places == before.places


def test_files_of_the_user_make_places_of_their_own(tmp_path: Path) -> None:
    write_ledger(tmp_path / "a", ["T5"], lambda row, seed: 60.0, MINI)
    other = replace(MINI, stream="npz:/else/where/dogs.npz")
    write_ledger(tmp_path / "b", ["T5"], lambda row, seed: 40.0, other)
    results = Results([tmp_path / "a", tmp_path / "b"])
    assert results.places == [Place("mini", f"npz:{n}.npz", "nano") for n in ("birds", "dogs")]
    assert [results.name(place) for place in results.places] == ["mini 1", "mini 2"]
    assert Results([tmp_path / "a"]).name(results.places[0]) == "mini"
    experiment = find_experiment("T5")
    found = [
        {r["metrics"]["FAA"] for r in results.find(p, experiment, row, "CIFAR-100").values()}
        for p in results.places
        for row in experiment.rows
    ]
    assert found == [{60.0}] * 7 + [{40.0}] * 7


def test_the_same_run_in_two_ledgers_counts_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_ledger(tmp_path / name, ["T5"], lambda row, seed: 60.0)
    tables = tables_of(find_experiment("T5"), Results([tmp_path / "a", tmp_path / "b"]))
    assert "60.00 ± 0.00 (3)" in next(tables).table().rows[0]


def test_runs_with_other_options_belong_nowhere_unless_the_same_are_asked_for(
    tmp_path: Path,
) -> None:
    write_ledger(tmp_path, ["T5"], lambda row, seed: 60.0, replace(NANO, changes={"epochs": 1}))
    experiment = find_experiment("T5")
    plain, changed = Results([tmp_path]), Results([tmp_path], {"epochs": 1})
    row = experiment.rows[0]
    assert len(plain.find(Place("nano"), experiment, row, "CIFAR-100")) == 0
    assert len(changed.find(Place("nano"), experiment, row, "CIFAR-100")) == 3


def test_what_departs_from_the_protocol_is_noted(tmp_path: Path) -> None:
    write_ledger(tmp_path, ["T5"], lambda row, seed: 60.0)
    hgm = next(c for c in runs_of(["T5"], NANO) if c.row == "T5 MoE + HGM" and c.plan.seed == 0)
    strange = result_of(hgm.plan, 60.0)
    strange["protocol"] |= {"transform": "other", "keeps_images": "5 per class", "legacy": ["x"]}
    Ledger(tmp_path).write(hgm.digest, strange)
    notes = next(tables_of(find_experiment("T5"), Results([tmp_path]))).notes()
    assert notes[0] == "2 tasks, 4 classes, 16 training images."
    assert "MoE + HGM differs from MoE in transform." in notes
    assert "MoE + HGM keeps images of old tasks (5 per class)." in notes
    assert "MoE + HGM repeats a flaw of public code (x)." in notes
    assert len(notes) == 4


def test_contradictions_and_missing_deviations_are_told() -> None:
    assert [text[:2] for text in marks_of(find_experiment("T5"))] == ["†1", "Th"]
    assert marks_of(find_experiment("T11")) == []  # it has deviations and no contradiction
    assert len(marks_of(find_experiment("T14"))) == 1  # hours have no tolerance in points


def test_the_report_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_only("1c", monkeypatch)
    ledger = write_ledger(tmp_path / "ledger", ["T1", "T5", "F6"], lambda row, seed: 60 + seed)
    page = write_paper_report(Results([ledger]), tmp_path / "out")
    assert [f.name for f in (tmp_path / "out" / "figures").iterdir()] == ["1c-nano.png"]
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| T5 | Modules of Hash | 7 of 7 |" in text
    assert "| Hash (Ours) | ✓ | 95.02 ± 0.34 | 61.00 ± 1.00 (3) | -34.02 |" in text
    assert "| T11 | Other pre-training, 10 tasks | – |" in text
    html = page.read_text()
    assert html.count("<img src=") == 1
    assert "<script" not in html
    assert "| HDR helps | mixed |" in text  # no difference at all
    assert "| Early blocks beat deep ones | not run |" in text
    assert "| Invariant to the batch | supported |" in text


def test_measures_by_hand() -> None:
    result: dict[str, Any] = {
        "usage": [[3, 1, 0], [3, 1, 0]],
        "parameters": {"prompts": 10, "routers": 4, "head": 100},
        "timings": [
            {"phase": "wtp", "seconds": 2.0, "cpu_seconds": 1.9},
            {"phase": "evaluate", "seconds": 50.0, "cpu_seconds": 1.0},
            {"phase": "tap", "seconds": 1.6, "cpu_seconds": 1.4},
        ],
    }
    assert usage_shares(result) == [0.75, 0.25, 0.0]
    # −(0.75 ln 0.75 + 0.25 ln 0.25) / ln 3
    assert usage_entropy(result) == pytest.approx(0.51186, abs=1e-5)
    # deviation of (0.75, 0.25, 0) around 1/3 is √(0.29167 / 3)
    assert variation([0.75, 0.25, 0.0]) == pytest.approx(0.93541, abs=1e-5)
    assert prompt_parameters(result) == 14
    hours = MEASURES["hours"]
    assert hours(result) == pytest.approx(3.6 / 3600)
    result["timings"][0]["cpu_seconds"] = 1.8  # 3.2 of 3.6 s: others had the processor
    assert hours(result) is None
    del result["timings"][0]["cpu_seconds"]  # of an earlier version
    assert hours(result) is None
    assert usage_entropy({"usage": None}) is None


def test_an_empty_ledger_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep" / "ledger").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "sweep"):
        with pytest.raises(UserError, match="it has no results"):
            Results([folder])
    with pytest.raises(UserError, match="There is no folder"):
        Results([tmp_path / "nowhere"])


def test_an_entry_of_another_version_is_refused_by_its_name(tmp_path: Path) -> None:
    run = runs_of(["T5"], NANO)[0]
    result = result_of(run.plan, 60.0)
    result["config"]["options"]["gone"] = 1
    Ledger(tmp_path).write(run.digest, result)
    with pytest.raises(UserError, match=f"{run.digest}.json is of another version.*gone"):
        Results([tmp_path])


def test_strange_names_of_files_stay_inside_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_only("batch", monkeypatch)
    name = "npz:a..\\b|<b>$x$.npz"
    write_ledger(tmp_path / "l", ["F6"], lambda row, seed: 60.0, replace(MINI, stream=name))
    write_paper_report(Results([tmp_path / "l"]), tmp_path / "out")
    files = {file.name for file in (tmp_path / "out" / "figures").iterdir()}
    assert files == {"batch-mini.png"}
    for page in ("report.md", "report.html"):
        text = (tmp_path / "out" / page).read_text()
        assert "mini here: a.." in text
        assert "<b>$x$" not in text
