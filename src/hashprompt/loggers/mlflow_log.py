"""The log for MLflow: a database in the run directory, or the server the environment names."""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from hashprompt.loggers.log import LOGS, NUMBERED_BY, Log, Row, save_state, saved_state
from hashprompt.storage.files import inside, make_folder

SERVER = "MLFLOW_TRACKING_URI"
MAX_VALUE = 500  # characters of a parameter, in every version of MLflow


class MlflowLog(Log):
    """A run of MLflow. Its tags hold the last row of each table, so no row is sent twice."""

    package: ClassVar[str | None] = "mlflow"
    files = ("mlflow.json", "mlflow/mlflow.db", "mlflow/mlflow.db-journal")

    def __init__(self, run_dir: Path, options: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it logs every table it creates
        from mlflow.tracking import MlflowClient

        folder = inside(run_dir, LOGS, "mlflow")
        if SERVER not in os.environ:
            make_folder(folder)
        own = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        self._client = MlflowClient(os.environ.get(SERVER, own))
        self._run = saved_state(run_dir, "mlflow").get("run") or self._create(run_dir, options)
        self._client.update_run(self._run, "RUNNING")
        tags = self._client.get_run(self._run).data.tags
        self._last = {k: int(v) for k, v in tags.items() if k in NUMBERED_BY}

    def _create(self, run_dir: Path, options: Mapping[str, Any]) -> str:
        from mlflow.entities import Param

        found = self._client.get_experiment_by_name("hashprompt")
        experiment = found.experiment_id if found else self._client.create_experiment("hashprompt")
        run: str = self._client.create_run(experiment, run_name=run_dir.name).info.run_id
        params = [Param(name, str(value)[:MAX_VALUE]) for name, value in options.items()]
        for begin in range(0, len(params), 100):  # the largest batch
            self._client.log_batch(run, params=params[begin : begin + 100])
        save_state(run_dir, "mlflow", {"run": run})
        return run

    def write(self, row: Row) -> None:
        from mlflow.entities import Metric, RunTag

        if row.number <= self._last.get(row.table, 0):
            return  # logged before the run was killed
        now = int(1000 * time.time())
        metrics = [Metric(name, v, now, row.number) for name, v in row.scalars().items()]
        done = RunTag(row.table, str(row.number))
        self._client.log_batch(self._run, metrics=metrics, tags=[done])

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")
