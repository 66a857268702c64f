"""The run directory: schemas of its files, creating it, locking it. Imports no torch."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hashprompt.engine.checkpoint import FILES
from hashprompt.engine.run_log import RunLog
from hashprompt.errors import UserError
from hashprompt.loggers import LOG_FILES
from hashprompt.storage.files import as_given, inside, make_folder, read_file, remove_ours
from hashprompt.storage.lock import LOCK, locked
from hashprompt.storage.schema import Count, Pair, Percent, Schema, Usage, Values

# All our files in a run directory; files of the user are never removed.
RUN_FILES = (
    *("config.json", "result.json", "report.html", "figures/*.png", LOCK),
    *(f"checkpoints/{name}" for name in FILES),
    *LOG_FILES,
)


class StoredPlan(Schema):
    """Names, seed and options of a run."""

    method: str
    preset: str
    stream: str
    backbone: str
    seed: int
    options: Values


class Protocol(Schema):
    """Settings that must agree for results to be comparable."""

    stream: str
    class_order: list[Count]
    class_names: list[str]
    tasks: list[list[Count]]
    images: list[Pair] = Field(default_factory=list)  # training and test images of each task
    legacy: list[str]
    keeps_images: str = ""


class RunConfig(StoredPlan):
    """`config.json`."""

    protocol: Protocol


class Evaluation(Schema):
    """A finished model, evaluated again with other options of prediction."""

    average: Percent
    task_inference: Percent | None = None


class RunResult(RunLog):
    """`result.json`."""

    finished: Literal[True]
    config: StoredPlan
    protocol: Protocol
    metrics: dict[str, float | None]  # None if undefined
    usage: Usage | None
    parameters: Annotated[dict[str, Count], Field(max_length=100)]
    images_stored: Count = 0
    image_bytes: Count = 0
    passes: dict[str, Count]
    versions: dict[str, str]
    machine: str = ""
    evaluations: dict[str, Evaluation] = Field(default_factory=dict)  # in a ledger: further ones

    @model_validator(mode="after")
    def _has_accuracies(self) -> Self:
        rows = {len(row) for row in self.accuracy}
        tested = any(value is not None for row in self.accuracy for value in row)
        if len(rows) != 1 or not tested or not self.after_task:
            raise ValueError("`accuracy` is not an accuracy matrix")
        return self


def make_run_dir(folder: Path, overwrite: bool) -> None:
    """Make a run directory, or empty an existing one; refuse any other folder."""
    place = as_given(folder.resolve())
    try:
        # Remains of an interrupted write of config.json need no protection.
        left_over = ".config.json."
        if folder.is_dir() and any(not p.name.startswith(left_over) for p in folder.iterdir()):
            if not _is_run(folder):
                raise UserError(f"{folder} is not a run directory. Choose another --out.")
            if not overwrite:
                raise UserError(
                    f"{folder} contains a run: give --overwrite, or use `hashprompt resume`."
                )
            with only_process(folder):
                pass  # no other process works there
            remove_ours(place, RUN_FILES)
        make_folder(place)
    except OSError as error:
        raise UserError(
            f"Cannot create {folder}: {error.strerror or error}. Choose another --out."
        ) from error


def only_process(folder: Path) -> AbstractContextManager[None]:
    """Lock a run: two processes would overwrite each other's checkpoints."""
    return locked(folder, lambda: f"Another process is working on {folder}. Wait for it.")


def _is_run(folder: Path) -> bool:
    """Whether this folder is a run directory: other programs have a `config.json` too."""
    try:  # not `read_json`: a damaged run is one, too
        stored = json.loads(read_file(inside(folder, "config.json")))
        return {"format", "method", "protocol"} <= stored.keys()
    except (OSError, UserError, ValueError, RecursionError, AttributeError):
        return False
