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
from hashprompt.report.statistics import Difference, difference_of
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
    """A comparison of two rows, or of one row with zero.

    Args:
        evaluations: names of further evaluations: of ours, of theirs.
        since: rows of ours and of theirs that their values are counted from, e.g. fewer tasks.
    """

    table: str
    ours: str
    theirs: str = ""
    evaluations: list[str] = Field(default_factory=list)
    since: list[str] = Field(default_factory=list)

    @property
    def terms(self) -> list[tuple[int, str]]:
        """Rows with the sign of their values."""
        named = [self.ours, self.theirs, *self.since]
        return [(sign, row) for sign, row in zip((1, -1, -1, 1), named, strict=False) if row]

    @property
    def text(self) -> str:
        names = [self.ours, *([self.theirs] if self.theirs else [])]
        if self.evaluations:
            names = [f"{row}, {name}" for row, name in zip(names, self.evaluations, strict=True)]
        if self.since:
            names = [f"({row} − {since})" for row, since in zip(names, self.since, strict=True)]
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
    """All claims, in the order of the paper. A list of `theirs` is a check with each row."""
    stored = read_data("claims.yaml")
    for claim in stored:
        listed = [(check, check.get("theirs", "")) for check in claim["checks"]]
        claim["checks"] = [
            {**check, "theirs": row}
            for check, theirs in listed
            for row in (theirs if isinstance(theirs, list) else [theirs])
        ]
    return tuple(Claim(**claim) for claim in stored)


def check_claims(results: Results) -> list[CheckedClaim]:
    """Every claim at every place that has runs."""
    return [CheckedClaim(claim, tuple(_findings(claim, results))) for claim in claims()]


def _findings(claim: Claim, results: Results) -> Iterator[Finding]:
    for place in results.places:
        for check in claim.checks:
            experiment = find_experiment(check.table)
            for data_set in experiment.sets_at(place.scale):
                difference, paper = _difference(check, claim.metric, results, place, data_set)
                verdict = verdict_of(difference, claim)
                yield Finding(check, place, data_set, difference, paper, verdict)


def _difference(
    check: Check, metric: str, results: Results, place: Place, data_set: str
) -> tuple[Difference | None, float | None]:
    """The difference of a check in our runs, and in the paper's own table."""
    experiment = find_experiment(check.table)
    columns = [c for c in experiment.columns if (c.set, c.metric) == (data_set, metric)]
    measures = [evaluation(name) for name in check.evaluations]
    ours, paper = [], []
    for number, (sign, name) in enumerate(check.terms):
        measure, row = measures[number] if measures else MEASURES[metric], experiment.row(name)
        runs = results.find(place, experiment, row, data_set)
        found = {key: measure(result) for key, result in runs.items()}
        ours.append({key: sign * value for key, value in found.items() if value is not None})
        paper += [sign * v.mean for c in columns if (v := experiment.value(row, c))]
    shared = set.intersection(*map(set, ours))
    totals = {key: sum(values[key] for values in ours) for key in ours[0] if key in shared}
    known = len(paper) == len(ours) and not measures
    return difference_of(list(totals.values())), sum(paper) if known else None


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
