"""Claims and verdicts, by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest
from ledgers import NANO, write_ledger

from hashprompt.paper.claims import Claim, Judged, Verdict, claims, combined, judge, verdict_of
from hashprompt.paper.grids import Place, Setting
from hashprompt.paper.results import read_ledgers
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
    return lambda row, seed: values[row.removeprefix("T5 ")] + 10 * seed


FAA = {"MoE": 50.0, "MoE + HDR": 53.0, "MoE + HGM": 52.0, "MoE + HDR + HGM": 51.0}


def judged(folder: Path, setting: Setting = NANO) -> dict[str, Judged]:
    write_ledger(folder, ["T5"], by_row(FAA), setting)
    return {found.claim.name: found for found in judge(read_ledgers([folder]))}


def test_verdicts_from_runs(tmp_path: Path) -> None:
    """HDR brings 3 points alone and takes 1 with HGM; both bring 1 over none and lose to each."""
    found = judged(tmp_path)
    nano = Place("nano")
    assert found["HDR helps"].verdict(nano) == "mixed"
    assert found["HGM helps"].verdict(nano) == "mixed"  # +2 alone, −2 with HDR
    assert found["Both help most"].verdict(nano) == "mixed"
    assert found["Early blocks beat deep ones"].verdict(nano) == "not run"
    # FM is 90 − FAA, so it falls by one; usage is the same with and without the modulator.
    assert found["Forgetting falls"].verdict(nano) == "supported"
    assert found["Usage becomes balanced"].verdict(nano) == "mixed"
    lines = found["HDR helps"].cells()[1]
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
    (found,) = (f for f in judge(read_ledgers([tmp_path])) if f.claim.name == "HDR helps")
    assert {finding.difference.pairs for finding in found.findings} == {2}
    assert {finding.difference.mean for finding in found.findings} == {0.0}


def test_one_seed_is_one_run(tmp_path: Path) -> None:
    found = judged(tmp_path, Setting("nano", seeds=1))
    assert found["HDR helps"].verdict(Place("nano")) == "one run"
    assert found["HDR helps"].cells()[1][0][2] == "+3.00"


def test_at_full_every_data_set_is_compared(tmp_path: Path) -> None:
    found = judged(tmp_path, Setting("full"))["HDR helps"]
    assert [line[1] for line in found.cells()[1]] == ["full, CIFAR-100", "full, ImageNet-R"] * 2
    # 78.10 − 76.99 on ImageNet-R
    assert found.cells()[1][1][4] == "+1.11"


def test_the_claims_of_the_issue_are_there() -> None:
    words = "shared HDR HGM both blocks experts length usage forgetting parameters time batch"
    names = " ".join(claim.name.lower() for claim in claims())
    assert all(word.lower() in names for word in words.split())
    assert len(claims()) == 12


def test_answers_of_copies_are_put_together(tmp_path: Path) -> None:
    ways = {"a": {}, "b": {"batch 1": {"average": 70.0}}, "c": {"batch 8": {"average": 70.0}}}
    for name, asked in ways.items():
        write_ledger(tmp_path / name, ["F6"], lambda row, seed: 70.0, asked=asked)
    results = read_ledgers([tmp_path / name for name in ways])
    (found,) = (f for f in judge(results) if f.claim.expect == "same")
    assert found.verdict(Place("nano")) == "supported"


def test_a_learner_is_compared_with_itself_asked_in_another_way(tmp_path: Path) -> None:
    ways = {"batch 1": 70.0, "batch 8": 70.05, "batch 32": 71.0, "batch 128": 70.0}
    asked = {way: {"average": value} for way, value in ways.items()}
    write_ledger(tmp_path, ["F6"], lambda row, seed: 70.0, asked=asked)
    (found,) = (f for f in judge(read_ledgers([tmp_path])) if f.claim.expect == "same")
    assert [finding.verdict for finding in found.findings] == [
        *("supported", "not supported", "supported")
    ]
    assert found.cells()[1][1][:3] == [
        "Hash, batch 1 − Hash, batch 32",
        "nano",
        "-1.00 [-1.00, -1.00]",
    ]


def test_a_claim_names_rows_that_exist() -> None:
    with pytest.raises(ValueError, match="no such row"):
        Claim(**{**HIGHER.model_dump(), "checks": [{**CHECK[0], "ours": "MoE + XYZ"}]})
