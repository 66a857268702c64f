"""The log for Weights & Biases: offline in the run directory unless `WANDB_MODE` is set."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from hashprompt.loggers.log import LOGS, NUMBERED_BY, Log, Row, save_state, saved_state
from hashprompt.storage.files import inside, make_folder


class WandbLog(Log):
    """A run of Weights & Biases.

    Its offline files cannot be read back, so `logs/wandb.json` holds the last row of each table,
    and no row is sent twice.
    """

    package: ClassVar[str | None] = "wandb"
    files = (
        "wandb.json",
        *(f"wandb/*run-*/{name}" for name in ("run-*.wandb*", "files/*", "logs/*")),
        *("wandb/*run-*/tmp/code/*", "wandb/cache/logs/*"),
    )

    def __init__(self, run_dir: Path, options: Mapping[str, Any]) -> None:
        import wandb

        self._run_dir = run_dir
        make_folder(inside(run_dir, LOGS, "wandb"))
        self._done: dict[str, Any] = {"run": secrets.token_hex(4), "last": {}}
        self._done |= saved_state(run_dir, "wandb")
        os.environ.setdefault("WANDB_MODE", "offline")
        os.environ.setdefault("WANDB_CACHE_DIR", str(inside(run_dir, LOGS, "wandb", "cache")))
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "hashprompt"),
            name=run_dir.name,
            id=self._done["run"],
            resume="allow" if os.environ["WANDB_MODE"] == "online" else None,
            dir=str(inside(run_dir, LOGS)),
            config=dict(options),
            settings=wandb.Settings(
                console="off",
                disable_git=True,
                save_code=False,
                silent=True,
                symlink=False,
                x_disable_stats=True,
            ),
        )
        for table, number in NUMBERED_BY.items():
            self._run.define_metric(f"{table}/*", step_metric=number)

    def write(self, row: Row) -> None:
        if row.number <= self._done["last"].get(row.table, 0):
            return  # logged before the run was killed
        self._run.log({**row.scalars(), NUMBERED_BY[row.table]: row.number})
        self._done["last"][row.table] = row.number
        save_state(self._run_dir, "wandb", self._done)

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)
