"""One table over many runs: seeds become mean ± std, different protocols are refused."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from hashprompt.errors import UserError
from hashprompt.report import ResultData
from hashprompt.report.ledger import read_results
from hashprompt.report.text_table import Stat, TextTable
from hashprompt.runs.plan import NEUTRAL

METRICS = ("FAA", "CAA", "FM")
NUMBER_BYTES = 4
KEPT = "keeps_images"  # field of the protocol that tells rows apart, but forbids no table
# Where a stream and a backbone lie is not in here: the protocol knows what they hold.
GROUPED_BY = ("method", "preset")
# Options that make no other row; the class order of a seed is checked as part of the protocol.
SAME_ROW = NEUTRAL | {"order_seed"}


Chance = tuple[int | None, tuple[int, ...]]  # seed and class order: what two runs can share


class Run(NamedTuple):
    folder: Path  # or its entry in a ledger
    result: ResultData
    differs: tuple[str, ...]  # protocol fields in which it differs from the first run

    @property
    def seed(self) -> int | None:
        return self.result["config"].get("seed")

    @property
    def drawn(self) -> tuple[int | None, int | None]:
        """The seeds of all, and of the class order."""
        return self.seed, self.result["config"].get("options", {}).get("order_seed")

    @property
    def chance(self) -> Chance:
        return self.seed, tuple(self.result["protocol"].get("class_order") or ())


@dataclass(frozen=True)
class Row:
    """Runs that differ only in their seed."""

    method: str
    preset: str
    changed: dict[str, Any]  # options that vary between the rows of this method
    seeds: tuple[int | None, ...]
    metrics: dict[str, Stat | None]  # FAA, CAA, FM, task inference
    parameters: float | None  # prompts, routers and trained weights of the ViT
    seconds: float | None
    passes: float | None  # with gradient, in images
    curve: dict[int, Stat]  # task index -> A_t
    differs: tuple[str, ...]
    numbers: float | None = None  # all that is stored, the frozen ViT aside
    keeps_images: str = ""  # in words; empty if it keeps none
    images: float = 0  # that are stored
    image_bytes: float = 0
    runs: dict[Chance, dict[str, float | None]] = field(default_factory=dict)  # their metrics

    @property
    def stored_bytes(self) -> float:
        """Numbers and images that are stored, in bytes."""
        return NUMBER_BYTES * (self.numbers or 0) + self.image_bytes

    @property
    def changes(self) -> str:
        return ", ".join(f"{name}={_text(value)}" for name, value in self.changed.items())

    @property
    def label(self) -> str:
        """Its name where a mark says whether it keeps images."""
        preset = f"({self.preset})" if self.preset else ""
        mixed = f"[other {', '.join(self.differs)}]" if self.differs else ""
        return " ".join(filter(None, (self.method, preset, self.changes, mixed)))

    @property
    def name(self) -> str:
        return f"{self.label} [keeps {self.keeps_images}]" if self.keeps_images else self.label


@dataclass(frozen=True)
class Comparison(TextTable):
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        return "Accuracies in %, mean ± std over n seeds"

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Header and body as text; columns that would be empty everywhere are left out."""
        header = ["method", "preset", "changed options", "n", "FAA ↑", "CAA ↑", "FM ↓"]
        header += ["task inference ↑", "keeps images", "images", "params", "numbers stored"]
        header += ["seconds", "passes (grad)", "differs in"]
        body = [
            [
                row.method,
                row.preset,
                row.changes,
                str(len(row.seeds)),
                *("–" if stat is None else str(stat) for stat in row.metrics.values()),
                row.keeps_images,
                _count(row.images) if row.images else "",
                _count(row.parameters),
                _count(row.numbers),
                _count(row.seconds),
                _count(row.passes),
                ", ".join(row.differs),
            ]
            for row in self.rows
        ]
        keep = [i for i in range(len(header)) if any(cells[i] for cells in body)]
        return [header[i] for i in keep], [[cells[i] for i in keep] for cells in body]


def compare(run_dirs: list[Path], allow_mixed: bool = False) -> Comparison:
    """Put finished runs into one table.

    Args:
        run_dirs: run directories, entries of a ledger, ledgers, sweeps.
        allow_mixed: label runs of other protocols instead of refusing them.

    Raises:
        UserError: if the runs follow different protocols (unless allow_mixed, which labels
            them), or if one of them is there twice.
    """
    if not run_dirs:
        raise UserError("Nothing to compare. Give the folders of one or more finished runs.")
    return compare_results(read_results(run_dirs), allow_mixed)


def compare_results(
    results: Iterable[tuple[Path, ResultData]], allow_mixed: bool = False
) -> Comparison:
    """The same of results that were read, each with its place."""
    runs: list[Run] = []
    for place, result in results:
        run = Run(place, result, ())
        runs.append(run._replace(differs=_check_protocol(run, runs, allow_mixed)))
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_group_key(run), []).append(run)
    for group in groups.values():
        _refuse_repeats(group)
    rows = [_row(group, list(groups.values())) for group in groups.values()]
    # Who keeps images of old tasks plays another game: such rows stand apart, below.
    return Comparison(tuple(sorted(rows, key=lambda row: bool(row.keeps_images))))


def _check_protocol(run: Run, earlier: list[Run], allow_mixed: bool) -> tuple[str, ...]:
    """Fields in which a run departs from the first one, and from the first of its own seed."""
    same_seed = [other for other in earlier if other.drawn == run.drawn]
    fields: dict[str, None] = {}
    for other in [*earlier[:1], *same_seed[:1]]:
        differing = differing_fields(other, run)
        if differing and not allow_mixed:
            ours, theirs = run.result["protocol"], other.result["protocol"]
            details = [_differences(n, theirs.get(n), ours.get(n)) for n in differing]
            listed = "; ".join(difference for part in details for difference in part)
            raise UserError(
                f"{other.folder} and {run.folder} follow different protocols, so their numbers "
                f"do not compare. They differ in {listed}. "
                "To put them into one table all the same, labelled, add --allow-mixed."
            )
        fields.update(dict.fromkeys(differing))
    return tuple(fields)


def differing_fields(a: Run, b: Run) -> list[str]:
    """Fields of the protocol that make two runs incomparable; kept images do not."""
    left, right = a.result["protocol"], b.result["protocol"]
    if a.drawn != b.drawn:
        left, right = _without_order(left), _without_order(right)
    both = {**left, **right}
    return [name for name in both if name != KEPT and left.get(name) != right.get(name)]


def _without_order(protocol: dict[str, Any]) -> dict[str, Any]:
    """What has to agree between seeds: the same classes and images in tasks of the same sizes."""
    images = protocol.get("images") or []  # [train, test] of each task
    return protocol | {
        "class_order": sorted(protocol.get("class_order") or []),
        "class_names": sorted(protocol.get("class_names") or []),
        "tasks": [len(task) for task in protocol.get("tasks") or []],
        "images": [sum(column) for column in zip(*images, strict=True)],
    }


def _differences(name: str, a: Any, b: Any) -> list[str]:
    """`field (one value, the other)`, followed down to where two nested values part."""
    if a == b:
        return []
    if isinstance(a, dict) and isinstance(b, dict):
        parts = [_differences(f"{name}.{key}", a.get(key), b.get(key)) for key in {**a, **b}]
        return [difference for part in parts for difference in part]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        first = next(i for i in range(len(a)) if a[i] != b[i])
        return _differences(f"{name}[{first}]", a[first], b[first])
    return [f"{name} ({_text(a)}, {_text(b)})"]


def _group_key(run: Run) -> str:
    named = [run.result["config"].get(name) for name in GROUPED_BY]
    protocol = _without_order(run.result["protocol"])
    return json.dumps([named, _options(run), protocol, run.differs], sort_keys=True)


def _options(run: Run) -> dict[str, Any]:
    """The options that may change a number."""
    options = run.result["config"].get("options") or {}
    return {name: value for name, value in options.items() if name not in SAME_ROW}


def _refuse_repeats(group: list[Run]) -> None:
    first: dict[tuple[int | None, int | None], Path] = {}
    for run in group:
        if run.drawn in first:
            raise UserError(
                f"{first[run.drawn]} and {run.folder} are the same experiment with the same seed "
                f"({run.seed}), which would count twice in the mean. Leave one of them out."
            )
        first[run.drawn] = run.folder


def _row(group: list[Run], groups: list[list[Run]]) -> Row:
    results = [run.result for run in group]
    config = results[0]["config"]
    rivals = [
        _options(other[0])
        for other in groups
        if other[0].result["config"]["method"] == config["method"]
    ]
    metrics = {name: Stat.of([r["metrics"].get(name) for r in results]) for name in METRICS}
    inference = Stat.of([r["after_task"][-1].get("task_inference") for r in results])
    return Row(
        method=config["method"],
        preset=config.get("preset") or "",
        changed={
            name: value
            for name, value in _options(group[0]).items()
            if any(other.get(name) != value for other in rivals)
        },
        seeds=tuple(run.seed for run in group),
        metrics=metrics | {"task inference": inference},
        parameters=_mean([_learned_parameters(r) for r in results]),
        numbers=_mean([sum(r["parameters"].values()) or None for r in results]),
        keeps_images=results[0]["protocol"].get(KEPT) or "",
        images=fmean(r.get("images_stored") or 0 for r in results),
        image_bytes=fmean(r.get("image_bytes") or 0 for r in results),
        seconds=_mean([_seconds(r) for r in results]),
        passes=_mean([_gradient_passes(r) for r in results]),
        curve=_curve(results),
        differs=group[0].differs,
        runs={run.chance: run.result["metrics"] for run in group},
    )


def _curve(results: list[ResultData]) -> dict[int, Stat]:
    averages: dict[int, list[float | None]] = {}
    for result in results:
        for entry in result["after_task"]:
            averages.setdefault(entry["task"], []).append(entry.get("average"))
    stats = {task: Stat.of(values) for task, values in averages.items()}
    return {task: stat for task, stat in stats.items() if stat is not None}


def _learned_parameters(result: ResultData) -> float | None:
    """What the method learns for its features: neither heads nor stored statistics."""
    counts = result.get("parameters")
    if not counts:
        return None
    return sum(n for kind, n in counts.items() if kind not in ("head", "tii", "statistics"))


def _seconds(result: ResultData) -> float | None:
    entries = result.get("timings")
    return sum(entry["seconds"] for entry in entries) if entries else None


def _gradient_passes(result: ResultData) -> float | None:
    passes = result.get("passes")
    if passes is None:
        return None
    return sum(images for kind, images in passes.items() if kind.endswith("+grad"))


def _mean(values: Sequence[float | None]) -> float | None:
    stat = Stat.of(values)
    return stat.mean if stat else None


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= 70:
        return text
    return f"{len(value)} entries" if isinstance(value, list) else f"{text[:70]}…"


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
