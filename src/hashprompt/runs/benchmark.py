"""Runs: resolve the options, make a run directory, learn a stream, return a result."""

import platform
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashprompt.backbone.preprocessing import LoadedBackbone
from hashprompt.backbone.weights import load_backbone
from hashprompt.data.streams.names import DEMO
from hashprompt.data.streams.stream import Stream, joint, load_stream
from hashprompt.engine.callbacks import Callback
from hashprompt.engine.checkpoint import Checkpoints
from hashprompt.engine.devices import launch
from hashprompt.engine.metrics import summarise
from hashprompt.engine.seeding import seed_everything
from hashprompt.engine.trainer import Trainer
from hashprompt.engine.views import describe_transform
from hashprompt.errors import UserError
from hashprompt.loggers import make_loggers
from hashprompt.methods.base import Method
from hashprompt.methods.building import build_method
from hashprompt.methods.config import MethodConfig
from hashprompt.methods.frames.options import SWITCHES, BufferOptions
from hashprompt.methods.registry import find_method
from hashprompt.report import read_result
from hashprompt.runs.plan import Plan, plan, stored_plan
from hashprompt.runs.run_dir import make_run_dir, only_process
from hashprompt.storage.files import inside
from hashprompt.storage.json_files import FORMAT, DamagedError, write_json
from hashprompt.ui.progress import ProgressBars, reading_bar

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class Result:
    """Results of a finished run. `data` is the content of its `result.json`."""

    folder: Path
    data: dict[str, Any]
    reporter: bool = True  # False in the helper processes of a run on several devices

    @property
    def accuracy(self) -> list[list[float | None]]:
        """accuracy[i][t]: percent on task i after learning task t."""
        return self.data["accuracy"]

    @property
    def metrics(self) -> dict[str, float | None]:
        """FAA, CAA, FM and BWT in percent."""
        return self.data["metrics"]

    def report(self) -> Path:
        """Write `report.html` and its figures; returns the page."""
        from hashprompt.report.html import write_report  # drawing is slow to import

        return write_report(self.folder)


def run(
    method: str = "hash",
    stream: str = DEMO,
    backbone: str = "nano",
    seed: int = 0,
    preset: str | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    log: Sequence[str] = (),
    **options: Any,
) -> Result:
    """Train a method over a stream of tasks and evaluate it after each.

    Args:
        method, stream, backbone: names; see `hashprompt methods`, `streams` and `backbones`.
        seed: random seed of class order, initialisation, batches and augmentation.
        preset: `paper` (the Hash paper's harness) or `original` (the method's own code);
            both know the usual benchmarks, and `paper/split-cub200` names one.
        out: run directory; default `runs/METHOD-STREAM-SEED`.
        overwrite: replace an existing run.
        quiet: no progress.
        log: loggers: `csv`, `tensorboard`, `mlflow`, `wandb`.
        **options: any option of the method, the stream or the run, e.g. ``top_k=3``.
    """
    planned, loggers = plan(method, stream, backbone, seed, preset, options), make_loggers(log)
    return execute(planned, None if out is None else Path(out), overwrite, quiet, loggers)


def execute(
    planned: Plan,
    folder: Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run a plan in a new run directory, `runs/METHOD-STREAM-SEED` unless given.

    Args:
        callbacks: are called with what happens, beside the progress bars.
    """
    if folder is None:
        stream = Path(planned.stream.partition(":")[2] or planned.stream).stem
        folder = Path("runs") / f"{planned.method}-{stream}-{planned.seed}"
    loaded = prepare(planned)  # before the directory: bad input must leave no trace
    if loaded.fabric.is_global_zero:
        make_run_dir(folder, overwrite)
        config = {**planned.to_dict(), "protocol": loaded.protocol}
        write_json(inside(folder, "config.json"), config)
    loaded.fabric.barrier()
    return _train(loaded, folder, [*_bars(quiet), *callbacks])


def resume(
    folder: str | Path,
    quiet: bool = False,
    download: bool = False,
    callbacks: Sequence[Callback] = (),
    log: Sequence[str] = (),
    planned: Plan | None = None,
) -> Result:
    """Resume an interrupted run. Results are identical to an uninterrupted run.

    A finished run whose result or trained model is damaged is finished again.

    Args:
        quiet: no progress.
        download: whether weights or images that the folder names may be downloaded.
        callbacks: are called with what happens, beside the progress bars.
        log: as in `run`; an existing log continues where the checkpoint stands.
        planned: its plan, where files and devices are others than when it began.
    """
    folder, loggers = Path(folder), make_loggers(log)
    result = _finished(folder)
    if result is not None:
        return result
    planned, protocol = stored_plan(folder, instead=planned)
    loaded = prepare(planned, download)
    _check_same(folder, protocol, loaded.protocol)
    return _train(loaded, folder, [*_bars(quiet), *callbacks, *loggers])


def evaluate(
    folder: str | Path,
    quiet: bool = False,
    download: bool = False,
    planned: Plan | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Test the model of a finished run again, with other options of prediction.

    For example ``eval_batch_size=1``, or ``align="discriminant"`` for a method that keeps
    Gaussians. Nothing is trained and the run is not changed. `planned` as in `resume`.

    Returns:
        `average` and `accuracy` per task after the last task, `task_inference`, and the rest of
        what `after_task` of a result holds.
    """
    folder = Path(folder)
    planned, protocol = stored_plan(folder, options, planned)
    loaded = prepare(planned, download)
    may_differ = {"legacy", *options}
    decided = {name: value for name, value in protocol.items() if name not in may_differ}
    _check_same(folder, decided, loaded.protocol)
    return loaded.trainer(folder, _bars(quiet)).evaluate()


def load_result(folder: str | Path) -> Result:
    """The result of a finished run."""
    return Result(Path(folder), read_result(Path(folder)))


# Before training. ------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoadedRun:
    """A plan, and all that it names."""

    plan: Plan
    protocol: dict[str, Any]
    stream: Stream
    backbone: LoadedBackbone
    method: Method
    fabric: "Fabric"

    def trainer(self, folder: Path, callbacks: Sequence[Callback] = ()) -> Trainer:
        """What trains it in a run directory."""
        return Trainer(
            method=self.method,
            stream=self.stream,
            backbone=self.backbone,
            options=self.plan.run_options,
            fabric=self.fabric,
            folder=folder,
            seed=self.plan.seed,
            callbacks=callbacks,
        )


def prepare(planned: Plan, may_download: bool = True) -> LoadedRun:
    """Load all that a plan names: whatever can fail on bad input, before anything is trained."""
    if planned.stream.startswith("hf:") and not may_download:
        raise UserError(
            f"This run learns `{planned.stream}`, a data set of the Hugging Face hub, and nothing "
            "is downloaded because a folder names it. Allow it with `--download` (download=True)."
        )
    stream = load_stream(planned.stream, planned.stream_options, planned.seed, reading_bar)
    backbone = load_backbone(planned.backbone, planned.run_options.image_size, may_download)
    if stream.scenario not in find_method(planned.method).info.scenarios:
        raise UserError(f"{planned.method} cannot learn {stream.scenario}-incremental streams.")
    seed_everything(planned.seed, "method")
    method = build_method(planned.method, planned.method_config, backbone.model)
    protocol = _protocol(planned, stream, backbone)
    _warn_if_all_is_kept(planned.method_config, stream)
    if protocol["legacy"]:
        warnings.warn(
            f"{' and '.join(protocol['legacy'])}: as in the public code, an image's answer depends "
            "on the images beside it. The result is stamped with this.",
            stacklevel=2,
        )
    if method.info.joint:
        stream = joint(stream)
    return LoadedRun(planned, protocol, stream, backbone, method, launch(planned.run_options))


def _protocol(planned: Plan, stream: Stream, backbone: LoadedBackbone) -> dict[str, Any]:
    """What decides whether two results can be compared."""
    config, options = planned.method_config, planned.run_options
    return {
        "stream": stream.name,
        "scenario": stream.scenario,
        "fingerprint": stream.fingerprint,
        "split": stream.split,
        "class_order": list(stream.class_order),
        "class_names": list(stream.class_names),
        "tasks": [list(task.classes) for task in stream.tasks],
        "images": [[len(task.train), len(task.test)] for task in stream.tasks],
        "weights_sha256": backbone.weights_sha256,
        "image_size": backbone.preprocessing.image_size,
        "transform": describe_transform(options, backbone.preprocessing, stream),
        "eval_batch_size": options.eval_batch_size,
        "precision": options.precision,
        "legacy": [switch for switch in SWITCHES if getattr(config, switch, False)],
        "keeps_images": config.keeps_images(),
    }


def _warn_if_all_is_kept(config: MethodConfig, stream: Stream) -> None:
    """A memory that holds all images of all tasks makes a run joint training."""
    if not isinstance(config, BufferOptions) or not config.keeps_images():
        return
    images = Counter(label for task in stream.tasks for label in task.train.labels.tolist())
    fits = (
        images.total() <= config.buffer_total
        if config.buffer_total
        else max(images.values()) <= config.buffer_per_class
    )
    if fits:
        warnings.warn(
            f"The buffer ({config.keeps_images()}) holds all {images.total():,} images of this "
            "stream: nothing has to be forgotten, as in joint training.",
            stacklevel=3,
        )


def _bars(quiet: bool) -> list[Callback]:
    return [] if quiet else [ProgressBars()]


# Training. -------------------------------------------------------------------------------------


def _train(loaded: LoadedRun, folder: Path, callbacks: Sequence[Callback]) -> Result:
    """Train from where the checkpoints stand to the end, and write the result."""
    trainer, fabric = loaded.trainer(folder, callbacks), loaded.fabric
    with only_process(folder) if fabric.is_global_zero else nullcontext():
        data = None
        trainer.callbacks.on_run_start(folder, loaded.plan.to_dict())
        try:
            data = _result_data(loaded, trainer.fit())
        finally:
            trainer.callbacks.on_run_end(data)
        if fabric.is_global_zero:
            write_json(inside(folder, "result.json"), data)
    fabric.barrier()
    return Result(folder, data, fabric.is_global_zero)


def _result_data(loaded: LoadedRun, log: dict[str, Any]) -> dict[str, Any]:
    """The content of `result.json`."""
    method = loaded.method
    return {
        "format": FORMAT,
        "finished": True,
        "config": loaded.plan.to_dict(),
        "protocol": loaded.protocol,
        **log,
        "metrics": summarise(log["accuracy"], loaded.stream.shared_test),
        "usage": method.usage(),
        "parameters": method.sizes(),
        "images_stored": method.images_stored(),
        "image_bytes": method.image_bytes(),
        "passes": dict(loaded.backbone.model.passes),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("hashprompt", "torch", "timm", "lightning-fabric")},
        },
    }


# Resuming. -------------------------------------------------------------------------------------


def _finished(folder: Path) -> Result | None:
    """The result of a finished run; None if there is something to resume."""
    if not (folder / "result.json").exists():
        return None
    checkpoints = Checkpoints(folder / "checkpoints").check()
    try:
        result = load_result(folder)
    except DamagedError as error:
        if checkpoints in ("none", "all damaged"):
            raise
        warnings.warn(f"{error} It is recomputed.", stacklevel=3)
        return None
    if checkpoints == "newest damaged":
        warnings.warn(
            f"The trained model in {folder} is damaged. It is trained again from the checkpoint "
            "before it, to the same numbers.",
            stacklevel=3,
        )
        return None
    if checkpoints == "all damaged":
        warnings.warn(
            f"The trained model in {folder} is damaged, and the checkpoint before it too: only the "
            "result is left. `hashprompt run --overwrite` trains it again.",
            stacklevel=3,
        )
    return result


def _check_same(folder: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to resume with another protocol than the run began with."""
    for name, value in then.items():
        if name not in now:
            raise UserError(
                f"Cannot resume {folder}: its protocol has `{name}`, which this version of "
                "hashprompt does not know. Use the version that made it."
            )
        if now[name] != value:
            raise UserError(
                f"Cannot resume {folder}: {name} is {str(now[name])[:60]} now and was "
                f"{str(value)[:60]} when the run began. Restore the data or weights it began with."
            )
