"""The paper's tables and figures as they are written down in this package."""

import re
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from hashprompt.errors import UserError
from hashprompt.options import Options, unknown
from hashprompt.sweeps.grid import RowSpec

Scale = Literal["nano", "mini", "full"]
Metric = Literal["FAA", "CAA", "FM", "hours", "drift"]
SCALES: tuple[Scale, ...] = ("nano", "mini", "full")


class Value(NamedTuple):
    """A number of the paper."""

    mean: float
    deviation: float | None = None

    def __str__(self) -> str:
        more = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{more}"


def _as_value(given: Any) -> Any:
    return (given, None) if isinstance(given, int | float) else given


PaperValue = Annotated[Value, BeforeValidator(_as_value)]


class Column(Options):
    """A column of numbers."""

    set: str = Field(description="data set, as the paper calls it")
    metric: Metric = Field("FAA", description="what is measured")

    @property
    def name(self) -> str:
        return f"{self.set} {self.metric}"


class PaperRow(RowSpec):
    """A row: what the paper calls it, what we run for it, what the paper found."""

    name: str = Field(description="unique in its table")
    labels: list[str] = Field(default_factory=list, description="its cells before the numbers")
    backbone: str = Field("sup21k", description="weights at scale full")
    at: dict[Scale, dict[str, Any]] = Field(
        default_factory=dict, description="options that differ at a scale"
    )
    paper: list[PaperValue] = Field(default_factory=list, description="the paper's values")
    series: str = Field("", description="its line in a figure")
    x: float | None = Field(None, description="its place on that line")


class Mark(Options):
    """Where the paper contradicts itself. Without rows and columns the whole table is meant."""

    text: str
    rows: list[str] = Field(default_factory=list)
    columns: list[str] = Field(default_factory=list)


class Experiment(Options):
    """A table, or what a figure needs beside the tables."""

    name: str
    title: str
    label: str = Field("", description="in the LaTeX source")
    header: list[str] = Field(default_factory=lambda: ["row"], description="of the labels")
    columns: list[Column] = Field(default_factory=list)
    rows: list[PaperRow] = Field(default_factory=list)
    uses: list[str] = Field(default_factory=list, description="tables whose runs it needs")
    scales: list[Scale] = Field(default_factory=lambda: list(SCALES))
    options: dict[str, Any] = Field(default_factory=dict, description="of all its runs")
    at: dict[Scale, dict[str, Any]] = Field(
        default_factory=dict, description="options that differ at a scale"
    )
    streams: dict[Scale, str] = Field(
        default_factory=dict, description="streams other than the scale's own"
    )
    ask: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="finished learners are tested again; see `Grid.ask`"
    )
    notes: dict[Scale, str] = Field(default_factory=dict, description="how a scale differs")
    marks: list[Mark] = Field(default_factory=list)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        names = [row.name for row in self.rows]
        columns = {column.name for column in self.columns}
        if len(set(names)) < len(names):
            raise ValueError(f"{self.name}: two rows have the same name")
        for row in self.rows:
            if len(row.paper) not in (0, len(columns)):
                raise ValueError(f"{self.name}, {row.name}: a value for each column, or none")
            if len(row.labels) not in (0, len(self.header)):
                raise ValueError(f"{self.name}, {row.name}: a label for each heading, or none")
        for mark in self.marks:
            if not (set(mark.rows) <= set(names) and set(mark.columns) <= columns):
                raise ValueError(f"{self.name}: a mark on cells that are not there: {mark.text}")
        return self

    @property
    def sets(self) -> list[str]:
        """Data sets, in the order of the columns."""
        return list(dict.fromkeys(column.set for column in self.columns))

    def sets_at(self, scale: Scale) -> list[str]:
        """Data sets that a scale can stand for: one stream stands for the first."""
        if scale not in self.scales:
            return []
        return self.sets if scale == "full" else self.sets[:1]

    def row(self, name: str) -> PaperRow:
        return next(row for row in self.rows if row.name == name)

    def value(self, row: PaperRow, column: Column) -> Value | None:
        """The paper's number, if it gives one."""
        return row.paper[self.columns.index(column)] if row.paper else None

    def marks_on(self, row: PaperRow, column: Column) -> list[Mark]:
        return [m for m in self.marks if row.name in m.rows and column.name in m.columns]


class StreamOfSet(Options):
    """Where a data set of the paper is found here."""

    stream: str
    tasks: int
    shared_test: bool = Field(False, description="one test set serves all tasks")


class ScaleSpec(Options):
    """Where runs take place, and with which options."""

    about: str
    stream: str = ""
    backbone: str = ""
    first_order: int | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    if_known: dict[str, Any] = Field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def options_of(self, method: str, preset: str | None) -> dict[str, Any]:
        """What suits a method here; `method/preset` where a preset needs other values."""
        return self.methods.get(f"{method}/{preset}", self.methods.get(method, {}))


class ScaleTable(Options):
    """`scales.yaml`."""

    sets: dict[str, StreamOfSet]
    scales: dict[Scale, ScaleSpec]


@cache
def experiments() -> dict[str, Experiment]:
    """All tables and figures by name: T1 … T14, F1 …"""
    folder = files("hashprompt.paper") / "experiments"
    stems = sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if "yaml" in f.name)
    ordered = sorted(stems, key=lambda stem: (stem[0] != "T", stem))
    named = {re.sub(r"^(\D)0*", r"\1", stem): stem for stem in ordered}
    return {
        name: Experiment(name=name, **read_data(f"experiments/{stem}.yaml"))
        for name, stem in named.items()
    }


def find_experiment(name: str) -> Experiment:
    """A table or figure by its name."""
    known = experiments()
    found = known.get(name.upper())
    if found is None:
        raise UserError(
            f"{unknown('table or figure', name.upper(), known)} See `hashprompt paper list`."
        )
    return found


@cache
def scale_table() -> ScaleTable:
    """What the scales are."""
    return ScaleTable(**read_data("scales.yaml"))


def read_data(name: str) -> Any:
    """A YAML file of this package."""
    import yaml  # not for names alone

    return yaml.safe_load((files("hashprompt.paper") / name).read_text("utf-8"))
