"""The claims of the paper, checked with pairs of runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import Field

from hashprompt.options import Options
from hashprompt.paper.data import find_experiment, read_data
from hashprompt.paper.grids import Place
from hashprompt.paper.results import Results
from hashprompt.report.measures import MEASURES, evaluation
from hashprompt.report.statistics import Difference, paired_difference
from hashprompt.report.text_table import TextTable

Verdict = Literal["supported", "not supported", "mixed", "one run", "not run"]
RULE = (
    "A difference of two rows is taken over runs with the same seed and class order, with a 95 % "
    "bootstrap interval. Supported: the whole interval is on the claimed side of zero (same: "
    "within the tolerance). Not supported: it is on the other side. Mixed: it contains zero. One "
    "run: a single pair. Several comparisons have the verdict they share, else mixed."
)
# Formats of differences; by default two decimals.
FORMATS = {"hours": "+.3g", "usage entropy": "+.3f", "prompt parameters": "+,.0f"}


class Check(Options):
    """A comparison of two rows.

    Args:
        evaluations: names of further evaluations: of ours, of theirs.
    """

    table: str
    ours: str
    theirs: str
    evaluations: list[str] = Field(default_factory=list)

    @property
    def text(self) -> str:
        names = [self.ours, self.theirs]
        if self.evaluations:
            names = [f"{row}, {name}" for row, name in zip(names, self.evaluations, strict=True)]
        return " − ".join(names)


class Claim(Options):
    """A sentence of the paper, and how it is checked."""

    name: str
    sentence: str
    metric: str
    expect: Literal["higher", "lower", "same"]
    within: float = Field(0.0, description="tolerance of `same`")
    note: str = ""
    checks: list[Check]


@dataclass(frozen=True)
class Finding:
    """One comparison on one data set at one place."""

    check: Check
    place: Place
    data_set: str
    difference: Difference | None
    paper: float | None  # the difference in the paper's own table
    verdict: Verdict


@dataclass(frozen=True)
class CheckedClaim:
    """A claim with its findings."""

    claim: Claim
    findings: tuple[Finding, ...]

    def verdict(self, place: Place) -> Verdict:
        return combined([f.verdict for f in self.findings if f.place == place])

    def table(self, results: Results) -> TextTable:
        """All comparisons that have runs."""
        form = FORMATS.get(self.claim.metric, "+.2f")
        rows = []
        for found in self.findings:
            if found.difference is not None:
                where = results.name(found.place)
                paper = "–" if found.paper is None else format(found.paper, form)
                if found.place.scale == "full":
                    where += f", {found.data_set}"
                elif found.paper is not None:
                    paper += f" ({found.data_set})"
                pairs = str(found.difference.pairs)
                ours = found.difference.text(form)
                rows.append([found.check.text, where, ours, pairs, paper, found.verdict])
        header = ["comparison", "where", "difference [95 %]", "pairs", "paper", "verdict"]
        return TextTable(self.claim.name, header, rows)


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in the order of the paper."""
    return tuple(Claim(**claim) for claim in read_data("claims.yaml"))


def check_claims(results: Results) -> list[CheckedClaim]:
    """Every claim at every place that has runs."""
    return [CheckedClaim(claim, tuple(_findings(claim, results))) for claim in claims()]


def _findings(claim: Claim, results: Results) -> Iterator[Finding]:
    for place in results.places:
        for check in claim.checks:
            experiment = find_experiment(check.table)
            rows = [experiment.row(name) for name in (check.ours, check.theirs)]
            measures = [evaluation(name) for name in check.evaluations]
            measures = measures or [MEASURES[claim.metric]] * 2
            for data_set in experiment.sets_at(place.scale):
                runs = [results.find(place, experiment, row, data_set) for row in rows]
                ours, theirs = (
                    {key: measure(result) for key, result in found.items()}
                    for found, measure in zip(runs, measures, strict=True)
                )
                difference = paired_difference(ours, theirs)
                values = [
                    experiment.value(row, column)
                    for column in experiment.columns
                    for row in rows
                    if (column.set, column.metric) == (data_set, claim.metric)
                ]
                means = [value.mean for value in values if value and not check.evaluations]
                paper = means[0] - means[1] if len(means) == 2 else None
                verdict = verdict_of(difference, claim)
                yield Finding(check, place, data_set, difference, paper, verdict)


def verdict_of(difference: Difference | None, claim: Claim) -> Verdict:
    """The verdict of one comparison, by the `RULE`."""
    if difference is None:
        return "not run"
    if difference.low is None or difference.high is None:
        return "one run"
    low, high = difference.low, difference.high
    if claim.expect == "same":
        is_inside = max(abs(low), abs(high)) <= claim.within
        is_outside = low > claim.within or high < -claim.within
        return "supported" if is_inside else "not supported" if is_outside else "mixed"
    if claim.expect == "lower":
        low, high = -high, -low
    return "supported" if low > 0 else "not supported" if high < 0 else "mixed"


def combined(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of several comparisons, by the `RULE`."""
    found = {verdict for verdict in verdicts if verdict != "not run"}
    if not found:
        return "not run"
    return found.pop() if len(found) == 1 else "mixed"
