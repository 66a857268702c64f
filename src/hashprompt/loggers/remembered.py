"""What a log must know of itself when its run goes on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hashprompt.loggers.log import LOGS
from hashprompt.schemas.run import LogState
from hashprompt.storage.files import inside
from hashprompt.storage.json_files import DamagedError, read_json, write_json


def remember(run_dir: Path, name: str, state: Mapping[str, Any]) -> None:
    """Write it down."""
    write_json(inside(run_dir, LOGS, f"{name}.json"), state)


def read_remembered(run_dir: Path, name: str) -> dict[str, Any]:
    """What was written down; nothing at the start of a run, or if it is damaged."""
    try:
        return read_json(inside(run_dir, LOGS, f"{name}.json"), LogState, "")
    except (FileNotFoundError, DamagedError):
        return {}
