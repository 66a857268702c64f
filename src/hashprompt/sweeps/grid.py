"""Grids: rows × streams × backbones × seeds × options become cells, each the plan of one run.

Nothing here imports torch, so that a mistake in a grid is refused at once.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from hashprompt.data.streams.names import DEMO
from hashprompt.errors import UserError, shortened
from hashprompt.methods.registry import default_preset, find_method, known_methods
from hashprompt.options import Options, build, split_options, unknown
from hashprompt.options.run import RunOptions
from hashprompt.options.stream import StreamOptions
from hashprompt.runs.plan import Plan, plan

MAX_CELLS = 100_000


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


Names = Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)]
Seeds = Annotated[list[int | dict[str, Any]], BeforeValidator(_as_list), Field(min_length=1)]


class RowSpec(Options):
    """What a row of the table stands for."""

    method: str = Field("hash", description="its method")
    preset: str | None = Field(None, description="set of options to start from")
    options: dict[str, Any] = Field(default_factory=dict, description="options of this row")


class Grid(Options):
    """What a sweep runs. A list may also be one value."""

    methods: Annotated[list[str], BeforeValidator(_as_list)] = Field(
        default_factory=list, description="with every preset, a row each"
    )
    presets: Names | None = Field(None, description="of these methods; default: that of each")
    rows: dict[str, RowSpec] = Field(
        default_factory=dict, description="rows with names of their own: method, preset, options"
    )
    streams: Names = Field([DEMO], description="what is learned")
    backbones: Names = Field(["nano"], description="frozen ViTs")
    seeds: Seeds = Field([0], description="numbers, or a number with options: {seed: 0, …}")
    options: dict[str, Any] = Field(default_factory=dict, description="of all runs")
    options_if_known: dict[str, Any] = Field(
        default_factory=dict, description="of the runs whose method has them"
    )
    ask: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="finished learners are tested again: name -> options of prediction",
    )
    vary: dict[str, list[Any]] = Field(
        default_factory=dict, description="option -> values, every combination a row of its own"
    )

    def all_rows(self) -> dict[str, RowSpec]:
        """Rows by name, with the options that vary."""
        by_method = [(m, p) for m in self.methods for p in self.presets or [default_preset(m)]]
        named = {f"{m} ({p})": RowSpec(method=m, preset=p) for m, p in by_method}
        rows = {**named, **self.rows}
        if not rows:
            raise UserError("The grid names no method. Add e.g. `methods: [hash, hide]`.")
        found = {}
        for (name, row), values in product(rows.items(), product(*self.vary.values())):
            change = dict(zip(self.vary, values, strict=True))
            told = "".join(f", {option}={value}" for option, value in change.items())
            found[name + told] = row.model_copy(update={"options": {**row.options, **change}})
        return found

    def cells(self, only: Collection[str] | None = None, files_needed: bool = True) -> "list[Cell]":
        """All cells, seed by seed, so that the first ones already fill a table.

        Args:
            only: names of rows; default: all.
            files_needed: see `plan`.
        """
        rows = self.all_rows()
        for name in only or ():
            if name not in rows:
                raise UserError(unknown("row", name, rows))
        rows = {name: row for name, row in rows.items() if not only or name in only}
        sizes = (len(rows), len(self.streams), len(self.backbones), len(self.seeds))
        if (count := prod(sizes)) > MAX_CELLS:
            raise UserError(f"The grid has {count:,} cells; at most {MAX_CELLS:,} are run.")
        split_options(self.options_if_known, *_all_groups())
        for options in self.ask.values():
            split_options(options, *_all_groups())
        cells = list(self._cells(rows, files_needed))
        _refuse_namesakes(cells)
        return cells

    def _cells(self, rows: Mapping[str, RowSpec], files_needed: bool) -> "Iterator[Cell]":
        places = product(self.seeds, self.streams, self.backbones, rows.items())
        for seed, stream, backbone, (name, row) in places:
            more = dict(seed) if isinstance(seed, dict) else {"seed": seed}
            number = more.pop("seed", 0)
            try:
                known = {n for g in _groups(row.method) for n in g.model_fields}
                common = {k: v for k, v in self.options_if_known.items() if k in known}
                options = {**common, **self.options, **more, **row.options}
                names = (row.method, stream, backbone, number, row.preset)
                planned = plan(*names, options, files_needed)
                ask = {n: o for n, o in self.ask.items() if o.keys() <= known}
                for asked in ask.values():
                    plan(*names, {**options, **asked}, files_needed)  # refuses wrong values
            except UserError as error:
                raise UserError(f"Row `{shortened(name)}` of the grid: {error}") from error
            yield Cell(name, planned, ask)


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    row: str  # of the table it belongs to
    plan: Plan
    ask: dict[str, dict[str, Any]] = field(default_factory=dict)  # see `Grid.ask`

    @property
    def digest(self) -> str:
        """Its name: two grids that want the same run share it."""
        return self.plan.digest


def _refuse_namesakes(cells: Sequence[Cell]) -> None:
    """Files are known by their names, so that a cell is the same on every machine."""
    places: dict[str, tuple[str, str]] = {}
    for cell in cells:
        here = (cell.plan.stream, cell.plan.backbone)
        there = places.setdefault(cell.digest, here)
        if there != here:
            two = next(pair for pair in zip(there, here, strict=True) if pair[0] != pair[1])
            raise UserError(
                f"{two[0]} and {two[1]} have the same name, by which their results would be kept. "
                "Give one of them another name."
            )


def read_grid(values: Mapping[str, Any]) -> Grid:
    """A grid as it came out of YAML.

    Raises:
        UserError: says what is wrong with it.
    """
    unknown = [name for name in values if name not in Grid.model_fields]
    if unknown:
        raise UserError(
            f"A grid has no `{shortened(unknown[0])}`. It has {', '.join(Grid.model_fields)}; "
            "options of runs belong below `options`."
        )
    return build(Grid, values)


def _groups(method: str) -> tuple[type[Options], ...]:
    return find_method(method).config, StreamOptions, RunOptions


def _all_groups() -> list[type[Options]]:
    return [StreamOptions, RunOptions, *(method.config for method in known_methods().values())]
