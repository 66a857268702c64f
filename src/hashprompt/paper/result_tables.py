"""A table of the paper beside ours: values, differences, and what to know before comparing."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from hashprompt.paper.data import Column, Experiment, PaperRow, Value, experiments
from hashprompt.paper.grids import Place
from hashprompt.paper.measures import MEASURES
from hashprompt.paper.results import Results, Runs
from hashprompt.report.compare import Run, differing_fields
from hashprompt.report.text_table import Stat, TextTable

NOT_RUN = "not run"
MARK = "†"
TOLERANCE = "The paper gives no deviation here; ±0.5 is usual in its other tables."


@dataclass(frozen=True)
class PaperTable(TextTable):
    """One data set of a table, at one place. Without a place nothing was run."""

    experiment: Experiment
    data_set: str
    place: Place | None
    results: Results

    @property
    def title(self) -> str:
        where = NOT_RUN if self.place is None else self.results.name(self.place)
        if self.place is None or self.place.scale == "full":
            return f"{self.data_set}, {where}"
        return f"{where}, in the place of {self.data_set}"

    @property
    def columns(self) -> list[Column]:
        return [column for column in self.experiment.columns if column.set == self.data_set]

    def cells(self) -> tuple[list[str], list[list[str]]]:
        header = list(self.experiment.header)
        for column in self.columns:
            header += [f"{column.metric}, paper", "ours (n)", "difference"]
        return header, [self._line(row) for row in self.experiment.rows]

    def _line(self, row: PaperRow) -> list[str]:
        line = list(row.labels or [row.name])
        runs = self.runs(row)
        for column in self.columns:
            told = self.experiment.value(row, column)
            marks = [self._number(mark.text) for mark in self.experiment.marks_on(row, column)]
            paper = " ".join(["–" if told is None else str(told), *marks])
            ours = Stat.of([MEASURES[column.metric](result) for result in runs.values()])
            line += [paper, _ours(ours, len(runs), column), _difference(ours, told, column)]
        return line

    def runs(self, row: PaperRow) -> Runs:
        if self.place is None:
            return {}
        return self.results.find(self.place, self.experiment, row, self.data_set)

    def _number(self, text: str) -> str:
        texts = [mark.text for mark in self.experiment.marks]
        return f"{MARK}{texts.index(text) + 1}"

    def notes(self) -> list[str]:
        """What to know before comparing: how we ran it, and where rows differ."""
        if self.place is None:
            return []
        ran = [(row.name, runs) for row in self.experiment.rows if (runs := self.runs(row))]
        found = [_size(next(iter(ran[0][1].values())))]
        found += filter(None, [self.experiment.notes.get(self.place.scale)])
        return [f"{note[0].upper()}{note[1:]}." for note in [*found, *_departures(ran)]]


def tables_of(experiment: Experiment, results: Results) -> Iterator[PaperTable]:
    """A table for every data set and place that has runs; one without a place where none has."""
    for data_set in experiment.sets:
        tables = [PaperTable(experiment, data_set, place, results) for place in results.places]
        ran = [table for table in tables if any(map(table.runs, experiment.rows))]
        yield from ran or [PaperTable(experiment, data_set, None, results)]


def marks_of(experiment: Experiment) -> list[str]:
    """Where the paper contradicts itself, with the numbers that stand in the cells."""
    told = [f"{MARK}{n + 1} {mark.text}" for n, mark in enumerate(experiment.marks)]
    values = [value for row in experiment.rows for value in row.paper]
    is_vague = values and all(value.deviation is None for value in values)
    is_time = any(column.metric == "hours" for column in experiment.columns)
    return [*told, *([TOLERANCE] if is_vague and not is_time else [])]


@dataclass(frozen=True)
class ProgressTable(TextTable):
    """How many cells of each table have runs, by place."""

    results: Results

    @property
    def title(self) -> str:
        return "Cells that were run"

    def cells(self) -> tuple[list[str], list[list[str]]]:
        header = ["table", "what it shows", *map(self.results.name, self.results.places)]
        shown = [experiment for experiment in experiments().values() if experiment.rows]
        counts = [[self._count(e, place) for place in self.results.places] for e in shown]
        return header, [[e.name, e.title, *c] for e, c in zip(shown, counts, strict=True)]

    def _count(self, experiment: Experiment, place: Place) -> str:
        keys = [(r, s) for r in experiment.rows for s in experiment.sets_at(place.scale)]
        done = sum(bool(self.results.find(place, experiment, row, name)) for row, name in keys)
        return f"{done} of {len(keys)}" if keys else "–"


def _ours(stat: Stat | None, count: int, column: Column) -> str:
    if not count:
        return NOT_RUN
    if stat is None:
        return f"– ({count})"
    if column.metric == "hours":  # seconds of a small run and days of a large one
        return f"{stat.mean:.3g} ({count})"
    return f"{stat} ({count})"


def _difference(ours: Stat | None, paper: Value | None, column: Column) -> str:
    """Ours minus the paper's; hours of another machine are no difference."""
    if ours is None or paper is None or column.metric == "hours":
        return "–"
    return f"{ours.mean - paper.mean:+.2f}"


def _size(result: dict[str, Any]) -> str:
    protocol = result["protocol"]
    images = sum(train for train, _ in protocol["images"])
    classes = len({c for task in protocol["tasks"] for c in task})
    return f"{len(protocol['tasks'])} tasks, {classes} classes, {images:,} images to learn"


def _departures(ran: list[tuple[str, Runs]]) -> Iterator[str]:
    """Rows whose protocol is not that of the first one, kept images, legacy switches."""
    rows = [(name, [Run(Path(name), r, ()) for r in runs.values()]) for name, runs in ran]
    by_chance = {run.chance: run for run in rows[0][1]}
    for name, runs in rows:
        protocols = [run.result["protocol"] for run in runs]
        same = [by_chance.get(run.chance, rows[0][1][0]) for run in runs]
        differing = [differing_fields(*pair) for pair in zip(same, runs, strict=True)]
        fields = [f for f in dict.fromkeys(chain(*differing)) if f != "legacy"]
        if fields:
            yield f"{name} differs from {rows[0][0]} in {', '.join(fields)}"
        for kept in dict.fromkeys(p["keeps_images"] for p in protocols if p.get("keeps_images")):
            yield f"{name} keeps images of old tasks ({kept})"
        flaws = dict.fromkeys(chain(*(protocol["legacy"] for protocol in protocols)))
        if flaws:
            yield f"{name} repeats a flaw of public code ({', '.join(flaws)})"
