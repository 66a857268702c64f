"""One table of many runs: mean ± std over seeds. Different protocols are refused."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

from hashprompt.errors import UserError, shortened
from hashprompt.report import ResultData
from hashprompt.report.measures import MEASURES
from hashprompt.report.statistics import Difference, paired_difference
from hashprompt.report.text_table import Stat, TextTable
from hashprompt.runs.plan import NEUTRAL

METRICS = ("FAA", "CAA", "FM")
VALUE_BYTES = 4
IMAGES = "keeps_images"  # field of the protocol; rows that differ in it may share a table
# Options that make no other row; the class order of a seed is checked as part of the protocol.
SAME_ROW = NEUTRAL | {"order_seed"}
# Columns with means over seeds, and their measures.
PERCENT = {"FAA ↑": "FAA", "CAA ↑": "CAA", "FM ↓": "FM", "task inference ↑": "task inference"}
COUNTS = {
    "params": "learned values",
    "stored": "stored values",
    "seconds": "seconds",
    "grad passes": "passes",
}

SeedAndOrder = tuple[int | None, tuple[int, ...]]  # seed and class order


class Run(NamedTuple):
    """A finished run."""

    folder: Path  # or its entry in a ledger
    result: ResultData
    differs: tuple[str, ...] = ()  # protocol fields in which it differs from the first run

    @property
    def seeds(self) -> tuple[int | None, int | None]:
        """The random seed, and that of the class order."""
        config = self.result["config"]
        return config.get("seed"), config.get("options", {}).get("order_seed")

    @property
    def pairing(self) -> SeedAndOrder:
        """Runs of two rows with the same value are a pair."""
        return self.seeds[0], tuple(self.result["protocol"].get("class_order") or ())


@dataclass(frozen=True)
class Row:
    """Runs that differ only in their seed."""

    method: str
    preset: str
    runs: tuple[Run, ...]
    changed: Mapping[str, Any] = field(default_factory=dict)  # options that vary between rows

    def stat(self, measure: str) -> Stat | None:
        """Mean and deviation of a measure."""
        return Stat.of([MEASURES[measure](run.result) for run in self.runs])

    @property
    def differs(self) -> tuple[str, ...]:
        return self.runs[0].differs

    @property
    def keeps_images(self) -> str:
        """Which images of old tasks are stored, in words; empty if none are."""
        return self.runs[0].result["protocol"].get(IMAGES) or ""

    @property
    def curve(self) -> dict[int, list[float | None]]:
        """Average accuracies after each task, of all runs."""
        averages: dict[int, list[float | None]] = {}
        for run in self.runs:
            for entry in run.result["after_task"]:
                averages.setdefault(entry["task"], []).append(entry.get("average"))
        return averages

    @property
    def stored_bytes(self) -> float:
        """Stored values and images, in bytes."""
        images = Stat.of([run.result.get("image_bytes") or 0 for run in self.runs])
        values = self.stat("stored values")
        return VALUE_BYTES * (values.mean if values else 0) + (images.mean if images else 0)

    @property
    def changes(self) -> str:
        return ", ".join(f"{name}={_text(value)}" for name, value in self.changed.items())

    @property
    def label(self) -> str:
        """The name without the stored images."""
        preset = f"({self.preset})" if self.preset else ""
        mixed = f"[other {', '.join(self.differs)}]" if self.differs else ""
        return " ".join(filter(None, (self.method, preset, self.changes, mixed)))

    @property
    def name(self) -> str:
        return f"{self.label} [keeps {self.keeps_images}]" if self.keeps_images else self.label


@dataclass(frozen=True)
class Comparison:
    """Rows of runs with the same protocol."""

    rows: tuple[Row, ...]

    def table(self) -> TextTable:
        """One line per row. Columns that would be empty are left out."""
        header = ["method", "preset", "changed options", "n", *PERCENT]
        header += ["keeps images", "stored images", *COUNTS, "differs in"]
        body = [
            [
                *(row.method, row.preset, row.changes, str(len(row.runs))),
                *("–" if (s := row.stat(name)) is None else str(s) for name in PERCENT.values()),
                row.keeps_images,
                _count(row.stat("stored images")) if row.keeps_images else "",
                *(_count(row.stat(name)) for name in COUNTS.values()),
                ", ".join(row.differs),
            ]
            for row in self.rows
        ]
        keep = [any(cells[i] for cells in body) for i in range(len(header))]
        header, *rows = ([*compress(cells, keep)] for cells in (header, *body))
        return TextTable("Accuracies in %, mean ± std over n seeds", header, rows)

    def against(self, name: str) -> TextTable:
        """Differences of all rows to one of them, over pairs of runs.

        Args:
            name: a method, or the whole name of a row where a method has several.
        """
        named = [row for row in self.rows if name in (row.name, row.method)]
        if len(named) != 1:
            problem = f"matches {len(named)} rows" if named else "matches no row"
            names = ", ".join(f"`{row.name}`" for row in named or self.rows)
            raise UserError(f"`--against {shortened(name)}` {problem}. Give one of: {names}.")
        body = []
        for row in self.rows:
            if row is not named[0]:
                found = [difference(row, named[0], metric) for metric in METRICS]
                main = found[0]
                p = "–" if main is None or main.p is None else f"{main.p:.3f}"
                shown = ["–" if value is None else str(value) for value in found]
                body.append([row.name, str(main.pairs if main else 0), *shown, p])
        title = f"Difference to {named[0].name} [95 %], pairs of the same seed and class order"
        return TextTable(title, ["row", "pairs", *METRICS, "p (FAA)"], body)


def difference(ours: Row, theirs: Row, metric: str) -> Difference | None:
    """Difference of two rows; None if they share no seed and class order."""
    left, right = (
        {run.pairing: MEASURES[metric](run.result) for run in row.runs} for row in (ours, theirs)
    )
    return paired_difference(left, right)


Results = Iterable[tuple[Path, ResultData]]  # with their places


def compare(results: Results, allow_mixed: bool = False) -> Comparison:
    """Put finished runs into one table.

    Args:
        results: see `read_results`.
        allow_mixed: label runs of other protocols instead of refusing them.

    Raises:
        UserError: if the runs follow different protocols (unless allow_mixed), or if a run is
            there twice.
    """
    runs: list[Run] = []
    for place, result in results:
        run = Run(place, result)
        runs.append(run._replace(differs=_check_protocol(run, runs, allow_mixed)))
    if not runs:
        raise UserError("Nothing to compare. Give the folders of one or more finished runs.")
    groups: dict[str, list[Run]] = {}
    for run in runs:
        group = groups.setdefault(_group_key(run), [])
        for other in group:
            if other.seeds == run.seeds:
                raise UserError(
                    f"{other.folder} and {run.folder} are the same experiment with seed "
                    f"{run.seeds[0]}, which would count twice in the mean. Leave one of them out."
                )
        group.append(run)
    rows = [_row(group, list(groups.values())) for group in groups.values()]
    # Methods that keep images of old tasks are listed separately.
    return Comparison(tuple(sorted(rows, key=lambda row: bool(row.keeps_images))))


def _check_protocol(run: Run, earlier: list[Run], allow_mixed: bool) -> tuple[str, ...]:
    """Fields in which a run differs from the first one, and from the first with the same seed."""
    same_seed = [other for other in earlier if other.seeds == run.seeds]
    fields: dict[str, None] = {}
    for other in [*earlier[:1], *same_seed[:1]]:
        differing = differing_fields(other, run)
        if differing and not allow_mixed:
            ours, theirs = run.result["protocol"], other.result["protocol"]
            details = [_differences(n, theirs.get(n), ours.get(n)) for n in differing]
            raise UserError(
                f"{other.folder} and {run.folder} follow different protocols, so their results "
                f"cannot be compared. They differ in {'; '.join(chain(*details))}. "
                "To put them into one table, labelled, add --allow-mixed."
            )
        fields.update(dict.fromkeys(differing))
    return tuple(fields)


def differing_fields(a: Run, b: Run) -> list[str]:
    """Fields of the protocol in which two runs differ, stored images aside."""
    left, right = a.result["protocol"], b.result["protocol"]
    if a.seeds != b.seeds:
        left, right = _without_order(left), _without_order(right)
    both = {**left, **right}
    return [name for name in both if name != IMAGES and left.get(name) != right.get(name)]


def _without_order(protocol: dict[str, Any]) -> dict[str, Any]:
    """The part that must agree between seeds: classes, images, sizes of tasks."""
    images = protocol.get("images") or []  # [train, test] of each task
    return protocol | {
        "class_order": sorted(protocol.get("class_order") or []),
        "class_names": sorted(protocol.get("class_names") or []),
        "tasks": [len(task) for task in protocol.get("tasks") or []],
        "images": [sum(column) for column in zip(*images, strict=True)],
    }


def _differences(name: str, a: Any, b: Any) -> list[str]:
    """`field (one value, the other)`, for the innermost fields that differ."""
    if a == b:
        return []
    if isinstance(a, dict) and isinstance(b, dict):
        parts = [_differences(f"{name}.{key}", a.get(key), b.get(key)) for key in {**a, **b}]
        return [*chain(*parts)]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        first = next(i for i in range(len(a)) if a[i] != b[i])
        return _differences(f"{name}[{first}]", a[first], b[first])
    return [f"{name} ({_text(a)}, {_text(b)})"]


def _group_key(run: Run) -> str:
    # Neither stream nor backbone: the protocol holds their content.
    named = [run.result["config"].get(name) for name in ("method", "preset")]
    protocol = _without_order(run.result["protocol"])
    return json.dumps([named, _options(run), protocol, run.differs], sort_keys=True)


def _options(run: Run) -> dict[str, Any]:
    """Options that may change a result."""
    options = run.result["config"].get("options") or {}
    return {name: value for name, value in options.items() if name not in SAME_ROW}


def _row(group: list[Run], groups: Sequence[list[Run]]) -> Row:
    config = group[0].result["config"]
    first = [other[0] for other in groups]
    others = [_options(r) for r in first if r.result["config"]["method"] == config["method"]]
    changed = {
        name: value
        for name, value in _options(group[0]).items()
        if any(options.get(name) != value for options in others)
    }
    return Row(config["method"], config.get("preset") or "", tuple(group), changed)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= 70:
        return text
    return f"{len(value)} entries" if isinstance(value, list) else f"{text[:70]}…"


def _count(stat: Stat | None) -> str:
    """A mean as a whole number; from 100,000 in thousands or millions."""
    if stat is None:
        return "–"
    scale, unit = (1, "") if stat.mean < 1e5 else (1e3, " k") if stat.mean < 1e6 else (1e6, " M")
    return f"{stat.mean / scale:,.{1 if scale == 1e6 else 0}f}{unit}"
