"""The tables and figures of the paper, as stored in this package."""

import re
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field

from hashprompt.errors import UserError
from hashprompt.options import Options, unknown
from hashprompt.report.text_table import Stat
from hashprompt.sweeps.grid import RowSpec

Scale = Literal["nano", "mini", "full"]
SCALES: tuple[Scale, ...] = ("nano", "mini", "full")
ByScale = dict[Scale, dict[str, Any]]  # options


class Column(Options):
    """A column of numbers.

    Args:
        set: data set, by its name in the paper.
    """

    set: str
    metric: Literal["FAA", "CAA", "FM", "hours", "drift"] = "FAA"

    @property
    def name(self) -> str:
        return f"{self.set} {self.metric}"


class PaperRow(RowSpec):
    """A row: its name in the paper, the run that stands for it, the paper's values.

    Args:
        name: unique in its table.
        labels: cells before the numbers.
        backbone: weights at scale full.
        at: options of one scale.
        paper: values of the paper: mean, or mean and deviation.
        reading_of: the row that this is another reading of; the paper has one value for both.
        series: line in a figure.
        x: position on that line.
    """

    name: str
    labels: list[str] = Field(default_factory=list)
    backbone: str = "sup21k"
    at: ByScale = Field(default_factory=dict)
    paper: list[float | tuple[float, float]] = Field(default_factory=list)
    reading_of: str = ""
    series: str = ""
    x: float | None = None


class Mark(Options):
    """A contradiction in the paper. Without rows and columns it concerns the whole table."""

    text: str
    rows: list[str] = Field(default_factory=list)
    columns: list[str] = Field(default_factory=list)


class Experiment(Options):
    """A table, or the runs of a figure.

    Args:
        label: in the LaTeX source.
        header: headings of labels.
        uses: tables whose runs it needs.
        options: options of all runs.
        at: options of one scale.
        streams: other streams of a scale.
        evaluate: further evaluations; see `Grid.evaluate`.
        notes: differences of a scale.
    """

    name: str
    title: str
    label: str = ""
    header: list[str] = Field(["row"])
    columns: list[Column] = Field(default_factory=list)
    rows: list[PaperRow] = Field(default_factory=list)
    uses: list[str] = Field(default_factory=list)
    scales: list[Scale] = Field([*SCALES])
    options: dict[str, Any] = Field(default_factory=dict)
    at: ByScale = Field(default_factory=dict)
    streams: dict[Scale, str] = Field(default_factory=dict)
    evaluate: dict[str, dict[str, Any]] = Field(default_factory=dict)
    notes: dict[Scale, str] = Field(default_factory=dict)
    marks: list[Mark] = Field(default_factory=list)

    @property
    def sets(self) -> list[str]:
        """Data sets, in the order of the columns."""
        return list(dict.fromkeys(column.set for column in self.columns))

    def sets_at(self, scale: Scale) -> list[str]:
        """Data sets at a scale. Below `full` one stream stands for the first."""
        if scale not in self.scales:
            return []
        return self.sets if scale == "full" else self.sets[:1]

    def row(self, name: str) -> PaperRow:
        return next(row for row in self.rows if row.name == name)

    def value(self, row: PaperRow, column: Column) -> Stat | None:
        """The value in the paper, if there is one."""
        values = self.row(row.reading_of or row.name).paper
        if not values:
            return None
        found = values[self.columns.index(column)]
        return Stat(*found) if isinstance(found, tuple) else Stat(found)

    def marks_on(self, row: PaperRow, column: Column) -> list[str]:
        """Numbers of the marks on a cell."""
        return [
            f"†{number}"
            for number, mark in enumerate(self.marks, 1)
            if row.name in mark.rows and column.name in mark.columns
        ]


class StreamOfSet(Options):
    """Our stream for a data set of the paper."""

    stream: str
    tasks: int
    shared_test: bool = Field(False, description="one test set serves all tasks")
    images: tuple[int, int] = Field((0, 0), description="where the data set has no fixed counts")


class ScaleSpec(Options):
    """Data, weights and options of a scale."""

    about: str
    stream: str = ""
    backbone: str = ""
    first_order: int | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    if_known: dict[str, Any] = Field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = Field(default_factory=dict)


class ScaleTable(Options):
    """`scales.yaml`."""

    sets: dict[str, StreamOfSet]
    scales: dict[Scale, ScaleSpec]


@cache
def experiments() -> dict[str, Experiment]:
    """All tables and figures by name: T1 … T14, F1 …"""
    folder = files("hashprompt.paper") / "experiments"
    stems = [f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")]
    found = {}
    for stem in sorted(stems, key=lambda stem: (stem[0] != "T", stem)):
        name = re.sub(r"^(\D)0*", r"\1", stem)
        found[name] = Experiment(name=name, **read_data(f"experiments/{stem}.yaml"))
    return found


def find_experiment(name: str) -> Experiment:
    """A table or figure by its name."""
    known = experiments()
    if name.upper() not in known:
        text = unknown("table or figure", name.upper(), known)
        raise UserError(f"{text} See `hashprompt paper list`.")
    return known[name.upper()]


@cache
def scale_table() -> ScaleTable:
    """All scales."""
    return ScaleTable(**read_data("scales.yaml"))


def read_data(name: str) -> Any:
    """A YAML file of this package."""
    import yaml  # not needed for names

    return yaml.safe_load((files("hashprompt.paper") / name).read_text("utf-8"))
