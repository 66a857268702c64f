"""Logs of runs: CSV files, TensorBoard, MLflow, Weights & Biases.

All write below `logs/` of the run directory. Their packages are imported when a run starts.
"""

from collections.abc import Iterable
from importlib.util import find_spec

from hashprompt.engine.callbacks import Callback
from hashprompt.errors import UserError
from hashprompt.loggers.csv_log import CsvLog
from hashprompt.loggers.log import LOGS, Log
from hashprompt.loggers.mlflow_log import MlflowLog
from hashprompt.loggers.run_logger import RunLogger
from hashprompt.loggers.tensorboard_log import TensorBoardLog
from hashprompt.loggers.wandb_log import WandbLog
from hashprompt.options import unknown

LOGGERS: dict[str, type[Log]] = {
    "csv": CsvLog,
    "tensorboard": TensorBoardLog,
    "mlflow": MlflowLog,
    "wandb": WandbLog,
}
# All files of logs in a run directory.
LOG_FILES = tuple(f"{LOGS}/{name}" for log in LOGGERS.values() for name in log.files)


def make_loggers(names: Iterable[str]) -> list[Callback]:
    """Callbacks that log a run, each name once.

    Raises:
        UserError: for an unknown name, and where a package is missing.
    """
    different = dict.fromkeys([names] if isinstance(names, str) else names)
    for name in different:
        if name not in LOGGERS:
            raise UserError(unknown("logger", name, LOGGERS))
        package = LOGGERS[name].package
        found = find_spec(package) if package else None
        if package and (found is None or found.origin is None):  # a folder of this name has none
            raise UserError(f"{name} needs a package: pip install 'hashprompt[{name}]'")
    return [RunLogger(name, LOGGERS[name]) for name in different]
