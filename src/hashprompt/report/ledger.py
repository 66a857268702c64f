"""The ledger: one small JSON file per finished run, kept when the run's folder is not.

An entry is the run's result under the digest of its plan. It names no folder of the machine that
made it, so ledgers of several machines are merged by copying files.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hashprompt.errors import UserError
from hashprompt.report import ResultData, read_result
from hashprompt.runs.plan import NEUTRAL, Plan, without_folders
from hashprompt.schemas.run import RunResult
from hashprompt.storage.files import Target, inside
from hashprompt.storage.json_files import read_json, write_json

LEDGER = "ledger"  # folder of a sweep that holds one
ADVICE = "Copy it again from where it was made, or remove it and run the sweep again."


def write_entry(ledger: Path, digest: str, result: ResultData) -> Path:
    """Keep the result of a finished run; returns the file."""
    config = without_folders(result["config"])
    config["options"] = {k: v for k, v in config["options"].items() if k not in NEUTRAL}
    file = inside(ledger, f"{digest}.json")
    write_json(file, {**result, "config": config})
    return file


def find_entry(ledger: Path, plan: Plan) -> ResultData | None:
    """The result of a plan, if the ledger has it.

    Raises:
        UserError: if it was made when some option had another default.
    """
    file = inside(ledger, f"{plan.digest}.json")
    try:
        entry = read_entry(file)
    except FileNotFoundError:
        return None
    then: dict[str, Any] = entry["config"]["options"]
    for name, value in plan.options().items():
        if name not in NEUTRAL and then.get(name, value) != value:
            raise UserError(
                f"{file} was made with {name}={then[name]}, the default at that time, which is "
                f"{value} now. Set {name}={then[name]} to use it, or remove it to run anew."
            )
    return entry


def read_entry(file: Target) -> ResultData:
    """One entry, checked."""
    return read_json(file, RunResult, ADVICE)


def read_results(paths: Iterable[Path]) -> Iterator[tuple[Path, ResultData]]:
    """Results of run directories, entries, ledgers and sweeps, each file once, in this order."""
    seen = set()
    for path in paths:
        for place in entries_of(path):
            if place.resolve() not in seen:
                seen.add(place.resolve())
                is_entry = place.suffix == ".json"
                found = read_entry(inside(place.parent, place.name)) if is_entry else None
                yield place, found or read_result(place)


def entries_of(path: Path) -> list[Path]:
    """What a path stands for: itself, or all entries of a ledger or of a sweep."""
    ledger = path / LEDGER if (path / LEDGER).is_dir() else path
    is_run = any((path / name).exists() for name in ("config.json", "result.json"))
    if is_run or not ledger.is_dir():
        return [path]
    return sorted(ledger.glob("[0-9a-f]*.json")) or [path]
