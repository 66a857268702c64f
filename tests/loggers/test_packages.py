"""The logs of other packages, read back with these packages; nothing twice after a kill."""

from pathlib import Path
from typing import Any

import pytest

from hashprompt.engine.callbacks import StepEnd
from hashprompt.loggers import make_loggers, run_logger
from hashprompt.runs.run_dir import RUN_FILES
from hashprompt.storage.files import as_given, remove_ours

CONFIG = {"method": "hash", "seed": 3, "options": {"lr": 0.5, "transform": None}}
RESULT = {"accuracy": [[100.0, 50.0], [None, 75.0]], "metrics": {"FAA": 62.5, "FM": None}}
LOSSES = {1: 10.0, 2: 20.0, 3: 30.0, 4: 40.0}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every step is logged; what the environment says of servers and homes does not count."""
    monkeypatch.setattr(run_logger, "STEP_SECONDS", 0.0)
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_CACHE_DIR", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def log(name: str, folder: Path, steps: list[int], task: int, finish: bool) -> None:
    """What one process tells: some steps, a tested task, perhaps the end."""
    (logger,) = make_loggers([name])
    logger.on_run_start(folder, CONFIG)
    for total in steps:
        logger.on_step_end(
            StepEnd(0, "prompts", 0, 2, total - 1, 5, 8, LOSSES[total], (0.25,), total)
        )
    average = 100.0 if task == 0 else 62.5
    entry = {"task": task, "average": average, "new_classes": None, "task_inference": None}
    accuracy = [row[task] for row in RESULT["accuracy"][: task + 1]]  # type: ignore[index]
    logger.on_evaluation_end({**entry, "accuracy": accuracy}, 2)
    logger.on_run_end(RESULT if finish else None)


@pytest.fixture(params=["tensorboard", "mlflow", "wandb"])
def twice(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A run that logged three steps and a task, was killed, and did two of them once more."""
    name = request.param
    pytest.importorskip(name)
    folder = tmp_path / "run"
    folder.mkdir()
    log(name, folder, [1, 2, 3], task=0, finish=False)
    log(name, folder, [2, 3, 4], task=0, finish=False)
    log(name, folder, [], task=1, finish=True)
    return name, folder


EXPECTED = {
    "steps/prompts/loss": [(1, 10.0), (2, 20.0), (3, 30.0), (4, 40.0)],
    "steps/prompts/rate_1": [(1, 0.25), (2, 0.25), (3, 0.25), (4, 0.25)],
    "tasks/average": [(1, 100.0), (2, 62.5)],
    "tasks/accuracy_1": [(1, 100.0), (2, 50.0)],
    "tasks/accuracy_2": [(2, 75.0)],
    "final/FAA": [(2, 62.5)],
}


def test_every_number_is_there_once(twice: tuple[str, Path]) -> None:
    name, folder = twice
    values, options = READERS[name](folder)
    assert values == EXPECTED
    assert {k: str(options[k]) for k in ("method", "seed", "lr", "transform")} == {
        **{"method": "hash", "transform": "None"},
        **{"seed": "3.0" if name == "tensorboard" else "3", "lr": "0.5"},
    }


def test_nothing_is_written_elsewhere_and_overwriting_removes_all(
    twice: tuple[str, Path], tmp_path: Path
) -> None:
    name, folder = twice
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and not p.is_relative_to(folder)]
    assert outside == []
    (folder / "mine.txt").write_text("keep")
    remove_ours(as_given(folder), RUN_FILES)
    assert [p.relative_to(folder).as_posix() for p in folder.rglob("*")] == ["mine.txt"], name


# Reading back. -------------------------------------------------------------------------------

Values = dict[str, list[tuple[int, float]]]


def read_tensorboard(folder: Path) -> tuple[Values, dict[str, Any]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    values: Values = {}
    options: dict[str, Any] = {}
    for place in (folder / "logs" / "tensorboard").iterdir():
        events = EventAccumulator(str(place))
        events.Reload()
        for tag in events.Tags()["scalars"]:
            values[tag] = [(e.step, e.value) for e in events.Scalars(tag)]
        if place.name == "final":
            content = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
            found = HParamsPluginData.FromString(content).session_start_info.hparams
            options = {k: v.string_value or v.number_value for k, v in found.items()}
    return values, options


def read_mlflow(folder: Path) -> tuple[Values, dict[str, Any]]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'logs' / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("hashprompt")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    names = run.data.metrics
    history = {name: client.get_metric_history(run.info.run_id, name) for name in names}
    return {k: [(m.step, m.value) for m in v] for k, v in history.items()}, run.data.params


def read_wandb(folder: Path) -> tuple[Values, dict[str, Any]]:
    import json

    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    values: Values = {}
    options: dict[str, Any] = {}
    ids = set()
    for file in sorted((folder / "logs" / "wandb").glob("offline-run-*/run-*.wandb")):
        store = DataStore()
        store.open_for_scan(str(file))
        while (data := store.scan_data()) is not None:
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "run":
                ids.add(record.run.run_id)
                options |= {i.key: json.loads(i.value_json) for i in record.run.config.update}
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items}
                number = row.get("step", row.get("task"))
                for name, value in row.items():
                    if "/" in name:
                        values.setdefault(name, []).append((number, value))
    assert len(ids) == 1
    return values, options


READERS = {"tensorboard": read_tensorboard, "mlflow": read_mlflow, "wandb": read_wandb}
