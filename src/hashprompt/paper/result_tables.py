"""Tables of the paper with our values next to the paper's."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from hashprompt.paper.data import Column, Experiment, PaperRow, experiments
from hashprompt.paper.grids import Place
from hashprompt.paper.results import Results, RunsOfRow
from hashprompt.report import ResultData
from hashprompt.report.compare import Run, differing_fields
from hashprompt.report.measures import MEASURES
from hashprompt.report.text_table import Stat, TextTable

NOT_RUN = "not run"
TOLERANCE = "The paper gives no deviation here; ±0.5 is usual in its other tables."


@dataclass(frozen=True)
class PaperTable:
    """One data set of a table at one place. Without a place nothing was run."""

    experiment: Experiment
    data_set: str
    place: Place | None
    results: Results

    def table(self) -> TextTable:
        """The paper's values, ours with the number of runs, and their differences."""
        columns = [column for column in self.experiment.columns if column.set == self.data_set]
        header = list(self.experiment.header)
        rows = [list(row.labels or [row.name]) for row in self.experiment.rows]
        for column in columns:
            header += [f"{column.metric}, paper", "ours (n)", "difference"]
            for row, cells in zip(self.experiment.rows, rows, strict=True):
                cells += self.cells(row, column)
        where = NOT_RUN if self.place is None else self.results.name(self.place)
        is_own = self.place is None or self.place.scale == "full"
        title = f"{self.data_set}, {where}" if is_own else f"{where}, instead of {self.data_set}"
        return TextTable(title, header, rows)

    def cells(self, row: PaperRow, column: Column) -> list[str]:
        """The paper's value, ours, and the difference."""
        value, runs = self.experiment.value(row, column), self.runs(row)
        marks = self.experiment.marks_on(row, column)
        paper = " ".join(["–" if value is None else str(value), *marks])
        if not runs:
            return [paper, NOT_RUN, "–"]
        found = Stat.of([MEASURES[column.metric](result) for result in runs.values()])
        if found is None:
            return [paper, f"– ({len(runs)})", "–"]
        if column.metric == "hours":  # of another machine: no difference
            return [paper, f"{found.mean:.3g} ({len(runs)})", "–"]
        difference = "–" if value is None else f"{found.mean - value.mean:+.2f}"
        return [paper, f"{found} ({len(runs)})", difference]

    def runs(self, row: PaperRow) -> RunsOfRow:
        if self.place is None:
            return {}
        return self.results.find(self.place, self.experiment, row, self.data_set)

    def notes(self) -> list[str]:
        """Size of the runs, differences of the scale, rows with another protocol."""
        if self.place is None:
            return []
        found = {row.name: list(self.runs(row).values()) for row in self.experiment.rows}
        ran = [(name, runs) for name, runs in found.items() if runs]
        protocol = ran[0][1][0]["protocol"]
        images = sum(train for train, _ in protocol["images"])
        classes = len(set(chain(*protocol["tasks"])))
        size = f"{len(protocol['tasks'])} tasks, {classes} classes, {images:,} training images"
        notes = [size, self.experiment.notes.get(self.place.scale), *_departures(ran)]
        return [f"{note[0].upper()}{note[1:]}." for note in notes if note]


def tables_of(experiment: Experiment, results: Results) -> Iterator[PaperTable]:
    """A table for every data set and place with runs; without runs one without a place."""
    for data_set in experiment.sets:
        tables = [PaperTable(experiment, data_set, place, results) for place in results.places]
        ran = [table for table in tables if any(map(table.runs, experiment.rows))]
        yield from ran or [PaperTable(experiment, data_set, None, results)]


def marks_of(experiment: Experiment) -> list[str]:
    """Contradictions in the paper, with the numbers in the cells."""
    marks = [f"†{number} {mark.text}" for number, mark in enumerate(experiment.marks, 1)]
    values = [value for row in experiment.rows for value in row.paper]
    has_none = values and all(isinstance(value, float) for value in values)
    is_time = any(column.metric == "hours" for column in experiment.columns)
    return [*marks, *([TOLERANCE] if has_none and not is_time else [])]


def progress_table(results: Results) -> TextTable:
    """How many rows of each table have runs, by place."""
    header = ["table", "title", *map(results.name, results.places)]
    body = []
    for experiment in experiments().values():
        if experiment.rows:
            line = [experiment.name, experiment.title]
            for place in results.places:
                sets = experiment.sets_at(place.scale)
                rows = [(row, name) for row in experiment.rows for name in sets]
                done = sum(bool(results.find(place, experiment, *row)) for row in rows)
                line.append(f"{done} of {len(rows)}" if rows else "–")
            body.append(line)
    return TextTable("Rows with runs", header, body)


def _departures(ran: list[tuple[str, list[ResultData]]]) -> Iterator[str]:
    """Rows with another protocol than the first, stored images, legacy switches."""
    rows = [(name, [Run(Path(name), result) for result in found]) for name, found in ran]
    first_name, first = rows[0]
    pairs = {run.pairing: run for run in first}
    for name, runs in rows:
        protocols = [run.result["protocol"] for run in runs]
        differing = [differing_fields(pairs.get(run.pairing, first[0]), run) for run in runs]
        fields = [f for f in dict.fromkeys(chain(*differing)) if f != "legacy"]
        if fields:
            yield f"{name} differs from {first_name} in {', '.join(fields)}"
        for kept in dict.fromkeys(p["keeps_images"] for p in protocols if p.get("keeps_images")):
            yield f"{name} keeps images of old tasks ({kept})"
        flaws = dict.fromkeys(chain(*(protocol["legacy"] for protocol in protocols)))
        if flaws:
            yield f"{name} repeats a flaw of public code ({', '.join(flaws)})"
