"""The runs of a table or figure at each scale, and the recognition of finished runs."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from hashprompt.data.streams.names import EMBEDDED
from hashprompt.errors import UserError, shortened
from hashprompt.options import unknown
from hashprompt.paper.data import Experiment, Scale, find_experiment, scale_table
from hashprompt.runs.plan import Plan, make_plan, without_folders
from hashprompt.sweeps.grid import GridRun, option_names

SEEDS = 3  # as in the paper
SEED_OPTIONS = {"seed", "order_seed"}  # may differ between the runs of a row


@dataclass(frozen=True)
class Setting:
    """Where and how often an experiment is run.

    Args:
        stream, backbone: at mini, files of the user.
        changes: options of the user; those that define a row stay as they are.
    """

    scale: Scale
    stream: str = ""
    backbone: str = ""
    seeds: int = SEEDS
    changes: Mapping[str, Any] = field(default_factory=dict)


def make_setting(
    scale: Scale,
    data: Path | None = None,
    weights: Path | None = None,
    seeds: int = SEEDS,
    changes: Mapping[str, Any] | None = None,
) -> Setting:
    """The setting of a command, checked."""
    if scale != "mini":
        if data or weights:
            raise UserError(f"--data and --weights are for --scale mini, not for {scale}.")
        return Setting(scale, seeds=seeds, changes=changes or {})
    if data is None or weights is None:
        raise UserError(
            "--scale mini needs your images and weights: --data IMAGES.npz (x_train, y_train, "
            "x_test, y_test) and --weights VIT.safetensors, e.g. a ViT-Ti. --scale nano needs none."
        )
    if not data.is_file():
        raise UserError(f"No images at {data}. Expected an .npz file with x_train, y_train, …")
    return Setting("mini", f"npz:{data}", str(weights), seeds, changes or {})


def runs_of(names: Iterable[str], setting: Setting) -> list[GridRun]:
    """All runs of tables and figures. Rows that share a run have the same digest."""
    found = [find_experiment(name) for name in names]
    used = [[find_experiment(table) for table in e.uses] or [e] for e in found]
    different = list({e.name: e for group in used for e in group}.values())
    check_changes(different, setting.changes)
    return [
        replace(run, row=f"{experiment.name} {run.row}")
        for experiment in different
        for run in _runs(experiment, setting)
    ]


def _runs(experiment: Experiment, setting: Setting) -> Iterator[GridRun]:
    scale, spec = setting.scale, scale_table().scales[setting.scale]
    if scale not in experiment.scales:
        scales = ", ".join(experiment.scales)
        raise UserError(f"{experiment.name} cannot be run at scale {scale}, only at {scales}.")
    own = experiment.streams.get(scale) or setting.stream or spec.stream
    sets = scale_table().sets
    streams = [own] if own else [sets[name].stream for name in experiment.sets]
    for seed, stream, row in product(range(setting.seeds), streams, experiment.rows):
        known = option_names(row.method)
        backbone = setting.backbone or spec.backbone or row.backbone
        # `method/preset` where a preset needs other values.
        of_method = spec.methods.get(f"{row.method}/{row.preset}", spec.methods.get(row.method, {}))
        options = {  # a later one replaces an earlier one
            **{name: value for name, value in spec.if_known.items() if name in known},
            **spec.options,
            **({} if spec.first_order is None else {"order_seed": spec.first_order + seed}),
            **of_method,
            **experiment.options,
            **experiment.at.get(scale, {}),
            **{name: value for name, value in setting.changes.items() if name in known},
            **row.options,
            **row.at.get(scale, {}),
        }
        planned = make_plan(row.method, stream, backbone, seed, row.preset, options)
        evaluate = {n: o for n, o in experiment.evaluate.items() if o.keys() <= known}
        yield GridRun(row.name, planned, evaluate)


def check_changes(found: Iterable[Experiment], changes: Mapping[str, Any]) -> None:
    """Refuse an option that no row of these tables and figures has."""
    methods = {row.method for experiment in found for row in experiment.rows}
    known = set().union(*map(option_names, methods))
    for name in changes:
        if name not in known:
            raise UserError(unknown("option", shortened(name), known))


class Place(NamedTuple):
    """Scale of a run; at mini also its files."""

    scale: Scale
    stream: str = ""
    backbone: str = ""

    @property
    def files(self) -> str:
        """Files of the user, at mini."""
        return ", ".join(filter(None, [self.stream.removeprefix("npz:"), self.backbone]))


def place_of(plan: Plan) -> Place | None:
    """Scale of a run; None for a stream of no scale."""
    if plan.stream in EMBEDDED:
        return Place("nano")
    if plan.stream.startswith("npz:") or plan.stream.endswith(".npz"):
        names = without_folders({"stream": plan.stream, "backbone": plan.backbone})
        return Place("mini", names["stream"], names["backbone"])
    published = {spec.stream for spec in scale_table().sets.values()}
    return Place("full") if plan.stream in published else None


def key_of(plan: Plan, scale: Scale) -> str:
    """Identity of a run without seeds, which all runs of a row share.

    At mini the files of the user are left out, so that a report needs no files.
    """
    identity = plan.identity()
    options = {k: v for k, v in identity.pop("options").items() if k not in SEED_OPTIONS}
    names = ["method", "preset", *(["stream", "backbone"] if scale != "mini" else [])]
    return json.dumps([identity[name] for name in names] + [options], sort_keys=True)


@cache
def row_keys(name: str, scale: Scale, changes: str = "{}") -> dict[tuple[str, str], str]:
    """Keys of the runs of a table by row and data set.

    Args:
        changes: options of the user as JSON.
    """
    experiment = find_experiment(name)
    if scale not in experiment.scales:
        return {}
    # A key holds no files of the user, so any names do.
    names = ("npz:any", "nano") if scale == "mini" else ("", "")
    setting = Setting(scale, *names, seeds=1, changes=json.loads(changes))
    sets = {spec.stream: data_set for data_set, spec in scale_table().sets.items()}
    return {
        (run.row, sets.get(run.plan.stream, experiment.sets[0])): key_of(run.plan, scale)
        for run in _runs(experiment, setting)
    }
