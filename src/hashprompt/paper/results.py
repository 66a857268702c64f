"""Finished runs of ledgers, found by the row of a table that they belong to."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hashprompt.errors import UserError
from hashprompt.paper.data import Experiment, PaperRow, Scale, experiments
from hashprompt.paper.grids import Place, check_changes, key_of, place_of, row_keys
from hashprompt.report import ResultData
from hashprompt.report.compare import Chance, Run
from hashprompt.report.ledger import is_empty_ledger, read_results
from hashprompt.runs.plan import Plan, plan

ORDER = ("full", "mini", "nano")
Runs = dict[Chance, ResultData]  # of one row, by the seed and class order they saw


class Results:
    """What ledgers hold, by place and row."""

    def __init__(
        self,
        entries: Iterable[tuple[Path, ResultData]],
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        check_changes(experiments().values(), changes or {})
        self._changes = json.dumps(changes or {}, sort_keys=True, default=str)
        self._runs: dict[tuple[Place, str], Runs] = {}
        for path, result in entries:
            planned = _stored_plan(path, result)
            place = place_of(planned)
            if place is not None:
                runs = self._runs.setdefault((place, key_of(planned, place.scale)), {})
                same = runs.setdefault(Run(path, result, ()).chance, result)  # copies count once
                same["asked"] = {**result.get("asked", {}), **same.get("asked", {})}

    @cached_property
    def places(self) -> list[Place]:
        """Where runs of any table took place, the paper's own scale first."""
        wanted = {scale: self._keys(scale) for scale in {place.scale for place, _ in self._runs}}
        places = {place for place, key in self._runs if key in wanted[place.scale]}
        return sorted(places, key=lambda place: (ORDER.index(place.scale), place))

    def _keys(self, scale: Scale) -> set[str]:
        """Of all rows that can be run at a scale."""
        tables = (row_keys(name, scale, self._changes) for name in experiments())
        return {key for keys in tables for key in keys.values()}

    def name(self, place: Place) -> str:
        """Its scale, with a number where the user's files make several places of one."""
        same = [other for other in self.places if other.scale == place.scale]
        return place.scale if len(same) == 1 else f"{place.scale} {same.index(place) + 1}"

    def find(self, place: Place, experiment: Experiment, row: PaperRow, data_set: str) -> Runs:
        """Runs of a row on a data set; none, if it was not run there."""
        keys = row_keys(experiment.name, place.scale, self._changes)
        key = keys.get((row.name, data_set), "")
        return self._runs.get((place, key), {})


def read_ledgers(folders: Iterable[Path], changes: Mapping[str, Any] | None = None) -> Results:
    """All runs of ledgers, sweeps and run directories."""
    found: list[tuple[Path, ResultData]] = []
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"There is no ledger in {folder}. Give the --out of a `paper run`.")
        if is_empty_ledger(folder):
            raise UserError(
                f"{folder} holds no results yet. Make some with: "
                f"hashprompt paper run T5 --scale nano --out {folder}"
            )
        found += read_results([folder])
    return Results(found, changes)


def _stored_plan(path: Path, result: ResultData) -> Plan:
    """The plan of a result; files that it names need not be on this machine."""
    config = result["config"]
    try:
        names = {n: config[n] for n in ("method", "stream", "backbone", "seed", "options")}
        planned = plan(**names, files_needed=False)
    except UserError as error:
        raise UserError(f"{path} was made by another version of hashprompt: {error}") from error
    return replace(planned, preset=config["preset"])
