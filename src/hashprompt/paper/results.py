"""Finished runs of ledgers, found by their row of a table."""

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from hashprompt.errors import UserError
from hashprompt.paper.data import SCALES, Experiment, PaperRow, experiments, find_experiment
from hashprompt.paper.grids import Place, check_changes, key_of, place_of, row_keys
from hashprompt.report import ResultData
from hashprompt.report.compare import Run, SeedAndOrder
from hashprompt.report.ledger import read_results
from hashprompt.runs.plan import plan_of

RunsOfRow = dict[SeedAndOrder, ResultData]


class Results:
    """All runs of ledgers, sweeps and run directories, by place and row."""

    def __init__(self, folders: Iterable[Path], changes: Mapping[str, Any] | None = None) -> None:
        check_changes(experiments().values(), changes or {})
        self._changes = json.dumps(changes or {}, sort_keys=True, default=str)
        self._runs: dict[tuple[Place, str], RunsOfRow] = {}
        for path, result in read_results(folders):
            try:
                planned = plan_of(result["config"], files_needed=False)
            except UserError as error:
                raise UserError(f"{path} is of another version of hashprompt: {error}") from error
            place = place_of(planned)
            if place is not None:
                runs = self._runs.setdefault((place, key_of(planned, place.scale)), {})
                same = runs.setdefault(Run(path, result).pairing, result)  # copies count once
                found = (result.get("evaluations", {}), same.get("evaluations", {}))
                same["evaluations"] = {**found[0], **found[1]}

    @cached_property
    def places(self) -> list[Place]:
        """Places with runs of any table, the paper's own scale first."""
        found = {
            place
            for place, key in self._runs
            for name in experiments()
            if key in row_keys(name, place.scale, self._changes).values()
        }
        return sorted(found, key=lambda place: (-SCALES.index(place.scale), place))

    def name(self, place: Place) -> str:
        """The scale, with a number if several sets of files were used."""
        same = [other for other in self.places if other.scale == place.scale]
        return place.scale if len(same) == 1 else f"{place.scale} {same.index(place) + 1}"

    def find(self, place: Place, experiment: Experiment, row: PaperRow, data_set: str) -> RunsOfRow:
        """Runs of a row on a data set; empty if there are none."""
        keys = row_keys(experiment.name, place.scale, self._changes)
        return self._runs.get((place, keys.get((row.name, data_set), "")), {})

    def rows(self, place: Place, table: str, data_set: str = "") -> dict[str, list[ResultData]]:
        """Runs of all rows of a table that have some, by name; the first seed first.

        Args:
            data_set: default, and at a place with one stream: the first.
        """
        experiment = find_experiment(table)
        sets = experiment.sets_at(place.scale)
        name = data_set if data_set in sets else next(iter(sets), "")
        found = {row.name: self.find(place, experiment, row, name) for row in experiment.rows}
        return {row: [runs[key] for key in sorted(runs)] for row, runs in found.items() if runs}
