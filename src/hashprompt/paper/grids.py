"""The runs behind a table or figure: a grid at each scale, and how finished runs are recognised."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hashprompt.data.streams.names import EMBEDDED
from hashprompt.errors import UserError
from hashprompt.methods.registry import find_method
from hashprompt.options import Options, build, split_options
from hashprompt.options.run import RunOptions
from hashprompt.options.stream import StreamOptions
from hashprompt.paper.data import (
    SCALES,
    Experiment,
    PaperRow,
    Scale,
    ScaleSpec,
    find_experiment,
    scale_table,
)
from hashprompt.runs.plan import Plan, without_folders
from hashprompt.sweeps.grid import Cell, Grid, RowSpec

SEEDS = 3  # as the paper
CHANCE = {"seed", "order_seed"}  # what may differ between the runs of one row


@dataclass(frozen=True)
class Setting:
    """Where and how often an experiment is run.

    Args:
        stream, backbone: at mini, those of the user.
        changes: options that the user wants otherwise; what makes a row stays as it is.
    """

    scale: Scale
    stream: str = ""
    backbone: str = ""
    seeds: int = SEEDS
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> ScaleSpec:
        return scale_table().scales[self.scale]

    def seed_list(self) -> list[int | dict[str, Any]]:
        first = self.spec.first_order
        if first is None:
            return list(range(self.seeds))
        return [{"seed": seed, "order_seed": first + seed} for seed in range(self.seeds)]


def make_setting(
    scale: str,
    data: Path | None = None,
    weights: Path | None = None,
    seeds: int = SEEDS,
    changes: Mapping[str, Any] | None = None,
) -> Setting:
    """What the user asked for, checked."""
    if scale not in SCALES:
        raise UserError(f"Unknown scale `{scale}`. There are: {', '.join(SCALES)}.")
    if seeds < 1:
        raise UserError(f"seeds={seeds}: at least one has to be run.")
    if scale != "mini":
        if data or weights:
            raise UserError(f"--data and --weights are for --scale mini; {scale} has its own.")
        return Setting(scale, seeds=seeds, changes=changes or {})
    if data is None or weights is None:
        raise UserError(
            "--scale mini needs images and weights of yours: --data IMAGES.npz (x_train, y_train, "
            "x_test, y_test) and --weights VIT.safetensors, e.g. a ViT-Ti. Nothing of yours: "
            "--scale nano."
        )
    if not data.is_file():
        raise UserError(f"No images at {data}. Expected an .npz file with x_train, y_train, …")
    return Setting("mini", f"npz:{data}", str(weights), seeds, changes or {})


def grids(experiment: Experiment, setting: Setting) -> list[Grid]:
    """The grid of an experiment; one for each pre-training, since rows may depend on it."""
    scale, spec = setting.scale, setting.spec
    if scale not in experiment.scales:
        raise UserError(
            f"{experiment.name} cannot be run at scale {scale}, only at "
            f"{', '.join(experiment.scales)}: {experiment.title}."
        )
    own = experiment.streams.get(scale) or setting.stream or spec.stream
    sets = scale_table().sets
    streams = [own] if own else [sets[name].stream for name in experiment.sets]
    backbone = setting.backbone or spec.backbone
    rows: dict[str, dict[str, RowSpec]] = {}
    for row in experiment.rows:
        options = _options(experiment, row, setting)
        run = RowSpec(method=row.method, preset=row.preset, options=options)
        rows.setdefault(backbone or row.backbone, {})[row.name] = run
    common = {
        "streams": streams,
        "seeds": setting.seed_list(),
        "options": spec.options,
        "options_if_known": spec.if_known,
        "ask": experiment.ask,
    }
    return [build(Grid, {**common, "rows": rows[name], "backbones": [name]}) for name in rows]


def _options(experiment: Experiment, row: PaperRow, setting: Setting) -> dict[str, Any]:
    """From what suits the method here to what makes the row what it is."""
    known = {name for group in _groups(row) for name in group.model_fields}
    return {
        **setting.spec.options_of(row.method, row.preset),
        **experiment.options,
        **experiment.at.get(setting.scale, {}),
        **{name: value for name, value in setting.changes.items() if name in known},
        **row.options,
        **row.at.get(setting.scale, {}),
    }


def check_changes(found: Iterable[Experiment], changes: Mapping[str, Any]) -> None:
    """Refuse an option that no row of these tables and figures has."""
    groups = [group for experiment in found for row in experiment.rows for group in _groups(row)]
    split_options(changes, *dict.fromkeys(groups))


def _groups(row: PaperRow) -> tuple[type[Options], ...]:
    return find_method(row.method).config, StreamOptions, RunOptions


def cells(names: Iterable[str], setting: Setting) -> list[Cell]:
    """All runs that tables and figures need; rows that are one run have the same digest."""
    found = _with_used(names)
    check_changes(found, setting.changes)
    return [
        replace(cell, row=f"{experiment.name} {cell.row}")
        for experiment in found
        for grid in grids(experiment, setting)
        for cell in grid.cells()
    ]


def _with_used(names: Iterable[str]) -> list[Experiment]:
    """Experiments by name; a figure that uses tables stands for them."""
    found = [find_experiment(name) for name in names]
    used = [[find_experiment(table) for table in e.uses] or [e] for e in found]
    return list({e.name: e for group in used for e in group}.values())


class Place(NamedTuple):
    """Where a run took place; at mini also on what."""

    scale: Scale
    stream: str = ""
    backbone: str = ""

    @property
    def files(self) -> str:
        """Those of the user's, at mini."""
        return ", ".join(filter(None, [self.stream.removeprefix("npz:"), self.backbone]))


def place_of(plan: Plan) -> Place | None:
    """Where a run took place; None for a stream that stands for none of the paper's."""
    names = without_folders({"stream": plan.stream, "backbone": plan.backbone})
    if plan.stream in EMBEDDED:
        return Place("nano")
    if plan.stream.startswith("npz:") or plan.stream.endswith(".npz"):
        return Place("mini", names["stream"], names["backbone"])
    published = {spec.stream for spec in scale_table().sets.values()}
    return Place("full") if plan.stream in published else None


def key_of(plan: Plan, scale: Scale) -> str:
    """The row that a run belongs to: all that decides but chance.

    At mini it does not name the user's files, so that a report can look for it without them.
    """
    identity = {name: value for name, value in plan.identity().items() if name not in CHANCE}
    options = {k: v for k, v in identity.pop("options").items() if k not in CHANCE}
    if scale == "mini":
        identity |= {"stream": "", "backbone": ""}
    return json.dumps([identity, options], sort_keys=True)


@cache
def row_keys(name: str, scale: Scale, changes: str = "{}") -> dict[tuple[str, str], str]:
    """(row, data set) -> key of the runs that belong there.

    Args:
        changes: the user's options as JSON.
    """
    experiment = find_experiment(name)
    if scale not in experiment.scales:
        return {}
    # Files of the user's are not in the key, so any names do.
    names = ("npz:any", "nano") if scale == "mini" else ("", "")
    setting = Setting(scale, *names, seeds=1, changes=json.loads(changes))
    sets = {spec.stream: data_set for data_set, spec in scale_table().sets.items()}
    return {
        (cell.row, sets.get(cell.plan.stream, experiment.sets[0])): key_of(cell.plan, scale)
        for grid in grids(experiment, setting)
        for cell in grid.cells()
    }
