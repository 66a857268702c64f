"""The log for TensorBoard: `tensorboard --logdir RUN/logs/tensorboard`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from hashprompt.loggers.log import LOGS, Log, Row
from hashprompt.storage.files import inside

FINAL = ("FAA", "CAA", "FM", "BWT")


class TensorBoardLog(Log):
    """A folder for each table, since rows are purged by number, and steps are no tasks.

    Options and final metrics share a folder, for TensorBoard's table of hyper-parameters.
    """

    package: ClassVar[str | None] = "tensorboard"
    files = ("tensorboard/*/events.out.tfevents.*",)

    def __init__(self, run_dir: Path, options: Mapping[str, Any]) -> None:
        self._folder = inside(run_dir, LOGS, "tensorboard")
        self._writers: dict[str, Any] = {}  # SummaryWriter of each table
        from torch.utils.tensorboard.summary import hparams

        shown = {k: v if isinstance(v, int | float) else str(v) for k, v in options.items()}
        writer = self._writer("final", 0)
        for summary in hparams(shown, {f"final/{name}": 0.0 for name in FINAL}):
            writer._get_file_writer().add_summary(summary)
        writer.flush()

    def write(self, row: Row) -> None:
        writer = self._writer(row.table, row.number)
        for name, value in row.scalars().items():
            writer.add_scalar(name, value, row.number)
        writer.flush()

    def close(self, finished: bool) -> None:
        for writer in self._writers.values():
            writer.close()

    def _writer(self, table: str, first: int) -> Any:
        """The writer of a table; readers drop earlier entries from the first number on."""
        from torch.utils.tensorboard import SummaryWriter

        if table not in self._writers:
            folder = str(inside(self._folder, table))
            self._writers[table] = SummaryWriter(folder, purge_step=first)
        return self._writers[table]
