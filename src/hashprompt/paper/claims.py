"""What the paper claims, checked with runs that saw the same chance."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, Self

from pydantic import Field, model_validator

from hashprompt.options import Options
from hashprompt.paper.data import Experiment, find_experiment, read_data
from hashprompt.paper.grids import Place
from hashprompt.paper.measures import FORMATS, MEASURES, Measure, asked
from hashprompt.paper.results import Results
from hashprompt.report.statistics import Difference, paired_difference
from hashprompt.report.text_table import TextTable

Verdict = Literal["supported", "not supported", "mixed", "one run", "not run"]
RULE = (
    "The difference of two rows is taken over runs with the same seed and class order, with a "
    "bootstrap interval of 95 %. The claim is supported if the whole interval lies on the claimed "
    "side of zero, not supported if it lies on the other side, mixed if it holds zero. One pair "
    "tells nothing of chance: it is called one run. That two rows are the same is supported if "
    "the interval lies within the tolerance, and not if it lies outside. A claim with several "
    "comparisons has the verdict that all of them have, else mixed; those not run are left aside."
)


class Check(Options):
    """Two rows that are compared."""

    table: str
    ours: str
    theirs: str
    asked: tuple[str, str] | None = Field(
        None, description="of learners that were tested again: how ours was, how theirs"
    )

    @property
    def text(self) -> str:
        ours, theirs = self.asked or ("", "")
        return " − ".join(
            f"{row}, {how}" if how else row
            for row, how in ((self.ours, ours), (self.theirs, theirs))
        )

    def measures(self, metric: str) -> tuple[Measure, Measure]:
        """Of ours and of theirs."""
        if self.asked:
            return asked(self.asked[0]), asked(self.asked[1])
        return MEASURES[metric], MEASURES[metric]


class Claim(Options):
    """A sentence of the paper, and how it is checked."""

    name: str
    sentence: str
    metric: str
    expect: Literal["higher", "lower", "same"]
    within: float = Field(0.0, description="tolerance of `same`")
    note: str = ""
    checks: list[Check]

    @model_validator(mode="after")
    def _names_what_is_there(self) -> Self:
        for check in self.checks:
            experiment = find_experiment(check.table)
            rows = {row.name for row in experiment.rows}
            ways = set(check.asked or ()) <= experiment.ask.keys()
            if not ({check.ours, check.theirs} <= rows and ways and self.metric in MEASURES):
                raise ValueError(f"{self.name}: no such row or metric: {check}")
        return self


@dataclass(frozen=True)
class Finding:
    """What became of one comparison on one data set at one place."""

    check: Check
    place: Place
    where: str  # its name
    data_set: str
    difference: Difference | None
    paper: float | None  # the difference in the paper's own table
    verdict: Verdict


@dataclass(frozen=True)
class Judged(TextTable):
    """A claim with its findings."""

    claim: Claim
    findings: tuple[Finding, ...]

    @property
    def title(self) -> str:
        return self.claim.name

    def verdict(self, place: Place) -> Verdict:
        return combined([f.verdict for f in self.findings if f.place == place])

    def cells(self) -> tuple[list[str], list[list[str]]]:
        header = ["comparison", "where", "difference [95 %]", "pairs", "paper", "verdict"]
        return header, [self._line(f, f.difference) for f in self.findings if f.difference]

    def _line(self, finding: Finding, found: Difference) -> list[str]:
        check, is_full = finding.check, finding.place.scale == "full"
        where = f"{finding.where}, {finding.data_set}" if is_full else finding.where
        paper = "–" if finding.paper is None else self._written(finding.paper)
        if finding.paper is not None and not is_full:
            paper += f" ({finding.data_set})"
        ours = self._written(found.mean)
        if found.low is not None and found.high is not None:
            ours += f" [{self._written(found.low)}, {self._written(found.high)}]"
        return [check.text, where, ours, str(found.pairs), paper, finding.verdict]

    def _written(self, value: float) -> str:
        return format(value, FORMATS.get(self.claim.metric, "+.2f"))


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in the order of the paper."""
    return tuple(Claim(**claim) for claim in read_data("claims.yaml"))


def judge(results: Results) -> list[Judged]:
    """Every claim at every place that has runs."""
    return [Judged(claim, tuple(_findings(claim, results))) for claim in claims()]


def _findings(claim: Claim, results: Results) -> Iterator[Finding]:
    for place in results.places:
        where = results.name(place)
        for check in claim.checks:
            experiment = find_experiment(check.table)
            for data_set in experiment.sets_at(place.scale):
                found = _difference(claim, check, experiment, results, place, data_set)
                paper = _paper_difference(claim, check, experiment, data_set)
                verdict = verdict_of(found, claim)
                yield Finding(check, place, where, data_set, found, paper, verdict)


def _difference(
    claim: Claim,
    check: Check,
    experiment: Experiment,
    results: Results,
    place: Place,
    data_set: str,
) -> Difference | None:
    """Over the runs of both rows that share seed and class order."""
    of_ours, of_theirs = check.measures(claim.metric)
    ours, theirs = (
        results.find(place, experiment, experiment.row(name), data_set)
        for name in (check.ours, check.theirs)
    )
    pairs = [
        (mine, other)
        for chance in ours
        if chance in theirs
        and (mine := of_ours(ours[chance])) is not None
        and (other := of_theirs(theirs[chance])) is not None
    ]
    return paired_difference([a for a, _ in pairs], [b for _, b in pairs])


def _paper_difference(
    claim: Claim, check: Check, experiment: Experiment, data_set: str
) -> float | None:
    for column in [] if check.asked else experiment.columns:
        if column.set == data_set and column.metric == claim.metric:
            rows = (experiment.row(name) for name in (check.ours, check.theirs))
            ours, theirs = (experiment.value(row, column) for row in rows)
            return ours.mean - theirs.mean if ours and theirs else None
    return None


def verdict_of(difference: Difference | None, claim: Claim) -> Verdict:
    """One comparison, by the `RULE`."""
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
    """Several comparisons of one claim, by the `RULE`."""
    told = {verdict for verdict in verdicts if verdict != "not run"}
    if not told:
        return "not run"
    return told.pop() if len(told) == 1 else "mixed"
