"""Grids: rows × streams × backbones × seeds × options, each combination the plan of one run.

Nothing here imports torch, so an invalid grid is refused at once.
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
from hashprompt.runs.plan import Plan, make_plan

MAX_RUNS = 100_000


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


Names = Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)]
Seeds = Annotated[list[int | dict[str, Any]], BeforeValidator(_as_list), Field(min_length=1)]


class RowSpec(Options):
    """A row of the result table.

    Args:
        method: method of the row.
        preset: preset of the method.
        options: options of the row.
    """

    method: str = "hash"
    preset: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class Tuning(Options):
    """The choice of learning rates on held-out training images; see `sweeps/tuning.py`.

    Args:
        rates: row -> the options to choose, with the values of the first trial.
        trials: number of trials of every row.
        seeds: as in a grid, with class orders that the grid itself does not use.
        options: options of all trials: `holdout`.
    """

    rates: dict[str, dict[str, float]] = Field(min_length=1)
    trials: int = Field(5, ge=3)
    seeds: Seeds
    options: dict[str, Any] = Field(default_factory=dict)


class Grid(Options):
    """A grid of runs. A list may also be a single value.

    Args:
        methods: methods; each one with each preset is a row.
        presets: presets of `methods`.
        rows: named rows: method, preset, options.
        streams: data sets and splits.
        backbones: frozen vision transformers.
        seeds: random seeds, or a seed with options: {seed: 0, …}.
        options: options of all runs.
        options_if_known: options of the runs that have them.
        evaluate: further evaluations of the finished model: name -> options of prediction.
        vary: option -> values; each combination is a row.
        tune: how rates are chosen.
    """

    methods: Annotated[list[str], BeforeValidator(_as_list)] = Field(default_factory=list)
    presets: Names | None = None
    rows: dict[str, RowSpec] = Field(default_factory=dict)
    streams: Names = Field([DEMO])
    backbones: Names = Field(["nano"])
    seeds: Seeds = Field([0])
    options: dict[str, Any] = Field(default_factory=dict)
    options_if_known: dict[str, Any] = Field(default_factory=dict)
    evaluate: dict[str, dict[str, Any]] = Field(default_factory=dict)
    vary: dict[str, list[Any]] = Field(default_factory=dict)
    tune: Tuning | None = None

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
            suffix = "".join(f", {option}={value}" for option, value in change.items())
            found[name + suffix] = row.model_copy(update={"options": {**row.options, **change}})
        return found

    def runs(self, only: Collection[str] = (), files_needed: bool = True) -> "list[GridRun]":
        """All runs, seed by seed, so that the first ones fill a table.

        Args:
            only: names of rows; default: all.
            files_needed: see `plan`.
        """
        rows = self.all_rows()
        for name in only:
            if name not in rows:
                raise UserError(unknown("row", name, rows))
        rows = {name: row for name, row in rows.items() if not only or name in only}
        count = prod(map(len, (rows, self.streams, self.backbones, self.seeds)))
        if count > MAX_RUNS:
            raise UserError(f"The grid has {count:,} runs. The limit is {MAX_RUNS:,}.")
        configs = (method.config for method in known_methods().values())
        groups: list[type[Options]] = [StreamOptions, RunOptions, *configs]
        for options in (self.options_if_known, *self.evaluate.values()):
            split_options(options, *groups)  # refuses unknown names
        runs = list(self._runs(rows, files_needed))
        _refuse_namesakes(runs)
        return runs

    def _runs(self, rows: Mapping[str, RowSpec], files_needed: bool) -> "Iterator[GridRun]":
        places = product(self.seeds, self.streams, self.backbones, rows.items())
        for seed, stream, backbone, (name, row) in places:
            more = dict(seed) if isinstance(seed, dict) else {"seed": seed}
            number = more.pop("seed", 0)
            try:
                known = option_names(row.method)
                common = {k: v for k, v in self.options_if_known.items() if k in known}
                options = {**common, **self.options, **more, **row.options}
                names = (row.method, stream, backbone, number, row.preset)
                planned = make_plan(*names, options, files_needed)
                further = {n: o for n, o in self.evaluate.items() if o.keys() <= known}
                for changes in further.values():
                    make_plan(*names, {**options, **changes}, files_needed)  # refuses wrong values
            except UserError as error:
                raise UserError(f"Row `{shortened(name)}` of the grid: {error}") from error
            yield GridRun(name, planned, further)


@dataclass(frozen=True)
class GridRun:
    """One run of a grid."""

    row: str  # of the result table
    plan: Plan
    evaluate: dict[str, dict[str, Any]] = field(default_factory=dict)  # see `Grid.evaluate`

    @property
    def digest(self) -> str:
        """The name of the run: two grids that need the same run share it."""
        return self.plan.digest


def _refuse_namesakes(runs: Sequence[GridRun]) -> None:
    """Two files of one name: a digest does not hold the folder of a file."""
    places: dict[str, tuple[str, str]] = {}
    for run in runs:
        here = (run.plan.stream, run.plan.backbone)
        for a, b in zip(places.setdefault(run.digest, here), here, strict=True):
            if a != b:
                raise UserError(f"{a} and {b} have the same file name. Rename one of them.")


def read_grid(values: Mapping[str, Any]) -> Grid:
    """A grid from the values of a YAML file.

    Raises:
        UserError: names what is wrong.
    """
    for name in values:
        if name not in Grid.model_fields:
            known = ", ".join(Grid.model_fields)
            text = f"A grid has no `{shortened(name)}`. It has {known}; "
            raise UserError(f"{text}options of runs belong below `options`.")
    return build(Grid, values)


def option_names(method: str) -> set[str]:
    """All options of runs of a method."""
    groups = (find_method(method).config, StreamOptions, RunOptions)
    return {name for group in groups for name in group.model_fields}
