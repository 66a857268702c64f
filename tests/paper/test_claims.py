"""Claims and verdicts, by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest
from ledgers import write_ledger

from hashprompt.paper.claims import (
    CheckedClaim,
    Claim,
    Verdict,
    check_claims,
    claims,
    combined,
    verdict_of,
)
from hashprompt.paper.data import find_experiment
from hashprompt.paper.grids import Place, Setting
from hashprompt.paper.results import Results
from hashprompt.report.measures import MEASURES
from hashprompt.report.statistics import Difference

CHECK = [{"table": "T5", "ours": "MoE + HDR", "theirs": "MoE"}]
HIGHER = Claim(name="", sentence="", metric="FAA", expect="higher", checks=CHECK)
LOWER = HIGHER.model_copy(update={"expect": "lower"})
SAME = HIGHER.model_copy(update={"expect": "same", "within": 0.1})


@pytest.mark.parametrize(
    ("claim", "low", "high", "verdict"),
    [
        (HIGHER, 0.1, 2.0, "supported"),
        (HIGHER, -2.0, -0.1, "not supported"),
        (HIGHER, -0.1, 2.0, "mixed"),
        (HIGHER, 0.0, 0.0, "mixed"),
        (LOWER, 0.1, 2.0, "not supported"),
        (LOWER, -2.0, -0.1, "supported"),
        (LOWER, -2.0, 0.1, "mixed"),
        (SAME, -0.1, 0.1, "supported"),
        (SAME, 0.0, 0.2, "mixed"),
        (SAME, 0.2, 0.3, "not supported"),
        (SAME, -0.3, -0.2, "not supported"),
        (SAME, -0.2, 0.2, "mixed"),
    ],
)
def test_the_interval_decides(claim: Claim, low: float, high: float, verdict: Verdict) -> None:
    assert verdict_of(Difference((low + high) / 2, low, high, None, 3), claim) == verdict


def test_one_pair_is_never_support() -> None:
    assert verdict_of(Difference(9.0, None, None, None, 1), HIGHER) == "one run"
    assert verdict_of(None, HIGHER) == "not run"


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        ([], "not run"),
        (["not run", "not run"], "not run"),
        (["supported", "not run"], "supported"),
        (["supported", "supported"], "supported"),
        (["not supported", "not supported"], "not supported"),
        (["supported", "not supported"], "mixed"),
        (["supported", "one run"], "mixed"),
        (["one run", "one run"], "one run"),
    ],
)
def test_several_comparisons(verdicts: list[Verdict], together: Verdict) -> None:
    assert combined(verdicts) == together


def by_row(values: dict[str, float]) -> Callable[[str, int], float]:
    """FAA of rows of T5: the same gap in every seed, and seeds that differ by ten points."""
    return lambda row, seed: values.get(row.removeprefix("T5 "), 0) + 10 * seed


FAA = {"MoE": 50.0, "MoE + HDR": 53.0, "MoE + HGM": 52.0, "MoE + HDR + HGM": 51.0}


def checked(*folders: Path) -> dict[str, CheckedClaim]:
    return {found.claim.name: found for found in check_claims(Results(folders))}


def rows_of(folder: Path, name: str) -> list[list[str]]:
    """The lines of the table of a claim."""
    return checked(folder)[name].table(Results([folder])).rows


def test_verdicts_from_runs(tmp_path: Path) -> None:
    """HDR brings 3 points alone and takes 1 with HGM; both bring 1 over none and lose to each."""
    write_ledger(tmp_path, ["T5"], by_row(FAA))
    found, nano = checked(tmp_path), Place("nano")
    assert found["HDR helps"].verdict(nano) == "mixed"
    assert found["HGM helps"].verdict(nano) == "mixed"  # +2 alone, −2 with HDR
    assert found["Both help most"].verdict(nano) == "mixed"
    assert found["Early blocks beat deep ones"].verdict(nano) == "not run"
    # FM is 90 − FAA, so it falls by one; usage is the same with and without the modulator.
    assert found["Forgetting falls"].verdict(nano) == "supported"
    assert found["Usage becomes balanced"].verdict(nano) == "mixed"
    lines = rows_of(tmp_path, "HDR helps")
    assert lines[0] == [
        *("MoE + HDR − MoE", "nano", "+3.00 [+3.00, +3.00]"),
        *("3", "+5.59 (CIFAR-100)", "supported"),
    ]
    assert lines[1][2:] == ["-1.00 [-1.00, -1.00]", "3", "+1.16 (CIFAR-100)", "not supported"]


def test_runs_pair_by_seed_and_class_order(tmp_path: Path) -> None:
    """Without pairing, seeds that differ by ten points would hide three."""
    write_ledger(tmp_path, ["T5"], lambda row, seed: 99.0 if row == "T5 MoE" and seed == 2 else 0.0)
    for file in tmp_path.glob("*.json"):
        if '"hdr": true' not in file.read_text() and '"seed": 2' in file.read_text():
            file.unlink()  # both rows without HDR lack seed 2
    found = checked(tmp_path)["HDR helps"]
    assert {finding.difference.pairs for finding in found.findings} == {2}
    assert {finding.difference.mean for finding in found.findings} == {0.0}


def test_one_seed_is_one_run(tmp_path: Path) -> None:
    write_ledger(tmp_path, ["T5"], by_row(FAA), Setting("nano", seeds=1))
    assert checked(tmp_path)["HDR helps"].verdict(Place("nano")) == "one run"
    assert rows_of(tmp_path, "HDR helps")[0][2] == "+3.00"


def test_at_full_every_data_set_is_compared(tmp_path: Path) -> None:
    write_ledger(tmp_path, ["T5"], by_row(FAA), Setting("full"))
    lines = rows_of(tmp_path, "HDR helps")
    assert [line[1] for line in lines] == ["full, CIFAR-100", "full, ImageNet-R"] * 2
    assert lines[1][4] == "+1.11"  # 78.10 − 76.99 on ImageNet-R


def test_losses_over_longer_streams_are_compared(tmp_path: Path) -> None:
    """Hash loses 1 point from 10 tasks to 20, CODA-Prompt 5; in the paper 0.95 and 5.00."""
    values = {"Hash, 10": 60.0, "Hash, 20": 59.0, "CODA-Prompt, 10": 50.0, "CODA-Prompt, 20": 45.0}
    faa = {f"F4 {name} tasks": value for name, value in values.items()}
    write_ledger(tmp_path, ["F4"], lambda row, seed: faa.get(row, 0.0) + 10 * seed)
    first = rows_of(tmp_path, "Longer streams cost less")[0]
    text = "(Hash, 20 tasks − Hash, 10 tasks) − (CODA-Prompt, 20 tasks − CODA-Prompt, 10 tasks)"
    assert first == [text, "nano", "+4.00 [+4.00, +4.00]", "3", "+4.05 (CIFAR-100)", "supported"]


def test_one_row_is_compared_with_zero(tmp_path: Path) -> None:
    found = [{"task": task, "entropy_by_difficulty": 0.1 * task} for task in range(3)]
    write_ledger(tmp_path, ["T5"], by_row(FAA), diagnostics=found)
    lines = rows_of(tmp_path, "Harder images use more prompts")
    assert [line[0] for line in lines] == ["MoE", "MoE + HDR + HGM"]
    assert {(line[2], line[-1]) for line in lines} == {("+0.10 [+0.10, +0.10]", "supported")}


def test_evaluations_of_copies_are_joined(tmp_path: Path) -> None:
    ways = {"a": {}, "b": {"batch 1": {"average": 70.0}}, "c": {"batch 8": {"average": 70.0}}}
    for name, found in ways.items():
        write_ledger(tmp_path / name, ["F6"], lambda row, seed: 70.0, evaluations=found)
    claim = checked(*(tmp_path / name for name in ways))["Invariant to the batch"]
    assert claim.verdict(Place("nano")) == "supported"


def test_a_model_is_compared_with_itself_evaluated_in_another_way(tmp_path: Path) -> None:
    ways = {"batch 1": 70.0, "batch 8": 70.05, "batch 32": 71.0, "batch 128": 70.0}
    further = {way: {"average": value} for way, value in ways.items()}
    write_ledger(tmp_path, ["F6"], lambda row, seed: 70.0, evaluations=further)
    lines = rows_of(tmp_path, "Invariant to the batch")
    assert [line[-1] for line in lines] == ["supported", "not supported", "supported"]
    shown = ["Hash, batch 1 − Hash, batch 32", "nano", "-1.00 [-1.00, -1.00]"]
    assert lines[1][:3] == shown


def test_claims_name_rows_and_evaluations_that_exist() -> None:
    for claim in claims():
        assert claim.metric in MEASURES
        for check in claim.checks:
            experiment = find_experiment(check.table)
            assert {name for _, name in check.terms} <= {row.name for row in experiment.rows}
            assert set(check.evaluations) <= experiment.evaluate.keys()
