"""What a log must know of itself when its run goes on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from hashprompt.loggers.log import LOGS
from hashprompt.storage.files import inside
from hashprompt.storage.json_files import DamagedError, read_json, write_json
from hashprompt.storage.schema import Count, Schema


class LogState(Schema):
    """`logs/NAME.json`: the run of MLflow or Weights & Biases, and the last row of each table."""

    run: Annotated[str, Field(pattern="^[0-9a-zA-Z_-]{1,128}$")]
    last: dict[str, Count] = Field(default_factory=dict)


def remember(run_dir: Path, name: str, state: Mapping[str, Any]) -> None:
    """Write it down."""
    write_json(inside(run_dir, LOGS, f"{name}.json"), state)


def read_remembered(run_dir: Path, name: str) -> dict[str, Any]:
    """What was written down; nothing at the start of a run, or if it is damaged."""
    try:
        return read_json(inside(run_dir, LOGS, f"{name}.json"), LogState, "")
    except (FileNotFoundError, DamagedError):
        return {}
