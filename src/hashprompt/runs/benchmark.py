"""Runs: resolve options, make a run directory, train on a stream, return the result."""

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
from hashprompt.engine.devices import describe_machine, launch
from hashprompt.engine.metrics import summarise
from hashprompt.engine.seeding import seed_everything
from hashprompt.engine.trainer import Trainer
from hashprompt.engine.views import describe_transform
from hashprompt.errors import UserError
from hashprompt.loggers import make_loggers
from hashprompt.methods.base import Method
from hashprompt.methods.config import MethodConfig
from hashprompt.methods.frames.options import SWITCHES, BufferOptions
from hashprompt.methods.registry import build_method, find_method
from hashprompt.report import read_result
from hashprompt.runs.plan import Plan, make_plan, stored_plan
from hashprompt.runs.run_dir import make_run_dir, only_process
from hashprompt.storage.files import inside
from hashprompt.storage.json_files import FORMAT, DamagedError, write_json
from hashprompt.ui.progress import ProgressBars

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
    """Train a method on a stream of tasks, and test it after each task.

    Args:
        method, stream, backbone: names; see `hashprompt methods`, `streams` and `backbones`.
        seed: random seed of class order, initialisation, batches and augmentation.
        preset: e.g. `paper` (setting of the Hash paper) or `original` (the method's public code);
            `paper/split-cub200` also names the benchmark.
        out: run directory; default `runs/METHOD-STREAM-SEED`.
        overwrite: replace an existing run.
        quiet: show no progress.
        log: loggers: `csv`, `tensorboard`, `mlflow`, `wandb`.
        **options: any option of the method, the stream or the run, e.g. ``top_k=3``.
    """
    plan, loggers = make_plan(method, stream, backbone, seed, preset, options), make_loggers(log)
    return execute(plan, None if out is None else Path(out), overwrite, quiet, loggers)


def execute(
    plan: Plan,
    folder: Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run a plan in a new run directory, `runs/METHOD-STREAM-SEED` unless given.

    Args:
        callbacks: receive the events of the run.
    """
    if folder is None:
        stream = Path(plan.stream.partition(":")[2] or plan.stream).stem
        folder = Path("runs") / f"{plan.method}-{stream}-{plan.seed}"
    loaded = prepare(plan)  # before the directory: bad input must leave no trace
    if loaded.fabric.is_global_zero:
        make_run_dir(folder, overwrite)
        config = {**plan.to_dict(), "protocol": loaded.protocol}
        write_json(inside(folder, "config.json"), config)
    loaded.fabric.barrier()
    return _train(loaded, folder, [*_bars(quiet), *callbacks])


def resume(
    folder: str | Path,
    quiet: bool = False,
    download: bool = False,
    callbacks: Sequence[Callback] = (),
    log: Sequence[str] = (),
    plan: Plan | None = None,
) -> Result:
    """Resume an interrupted run. Results are identical to an uninterrupted run.

    If the result or the trained model of a finished run is damaged, it is recomputed.

    Args:
        quiet: show no progress.
        download: allow downloads of the weights or images that the run names.
        callbacks: receive the events of the run.
        log: as in `run`; an existing log continues from the checkpoint.
        plan: replaces the stored plan, if files or devices have moved.
    """
    folder, loggers = Path(folder), make_loggers(log)
    result = _finished(folder)
    if result is not None:
        return result
    plan, protocol = stored_plan(folder, instead=plan)
    loaded = prepare(plan, download)
    _check_same(folder, protocol, loaded.protocol)
    return _train(loaded, folder, [*_bars(quiet), *callbacks, *loggers])


def evaluate(
    folder: str | Path,
    quiet: bool = False,
    download: bool = False,
    plan: Plan | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Test the model of a finished run again, with other options of prediction.

    For example ``eval_batch_size=1``, or ``align="discriminant"`` for a method with class
    Gaussians. Nothing is trained, and the run is not changed. `plan` as in `resume`.

    Returns:
        `accuracy` of each task after the last task, and an entry of `after_task`.
    """
    folder = Path(folder)
    plan, protocol = stored_plan(folder, options, plan)
    loaded = prepare(plan, download)
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
    """A plan, and everything it names, loaded."""

    plan: Plan
    protocol: dict[str, Any]
    stream: Stream
    backbone: LoadedBackbone
    method: Method
    fabric: "Fabric"

    def trainer(self, folder: Path, callbacks: Sequence[Callback] = ()) -> Trainer:
        """The trainer of the run in a run directory."""
        own = self.method, self.stream, self.backbone, self.plan.run_options, self.fabric
        return Trainer(*own, folder, self.plan.seed, callbacks)


def prepare(plan: Plan, may_download: bool = True) -> LoadedRun:
    """Load everything a plan names: bad input fails here, before training."""
    if plan.stream.startswith("hf:") and not may_download:
        raise UserError(
            f"This run needs `{plan.stream}`. Allow the download: --download (download=True)."
        )
    stream = load_stream(plan.stream, plan.stream_options, plan.seed)
    backbone = load_backbone(plan.backbone, plan.run_options.image_size, may_download)
    if stream.scenario not in find_method(plan.method).info.scenarios:
        raise UserError(f"{plan.method} cannot learn {stream.scenario}-incremental streams.")
    seed_everything(plan.seed, "method")
    method = build_method(plan.method, plan.method_config, backbone.model)
    protocol = _protocol(plan, stream, backbone)
    _warn_if_all_is_kept(plan.method_config, stream)
    if protocol["legacy"]:
        warnings.warn(
            f"{' and '.join(protocol['legacy'])}: as in the public code, predictions depend on the "
            "other images of the test batch. The result records this.",
            stacklevel=2,
        )
    if method.info.joint:
        stream = joint(stream)
    return LoadedRun(plan, protocol, stream, backbone, method, launch(plan.run_options))


def _protocol(plan: Plan, stream: Stream, backbone: LoadedBackbone) -> dict[str, Any]:
    """Settings that must agree for two results to be comparable."""
    config, options = plan.method_config, plan.run_options
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
    """Warn if a buffer holds all images of all tasks, which is joint training."""
    if not isinstance(config, BufferOptions) or not config.keeps_images():
        return
    images = Counter(label for task in stream.tasks for label in task.train.labels.tolist())
    if config.buffer_total:
        fits = images.total() <= config.buffer_total
    else:
        fits = max(images.values()) <= config.buffer_per_class
    if fits:
        warnings.warn(
            f"The buffer ({config.keeps_images()}) holds all {images.total():,} images of this "
            "stream, as in joint training.",
            stacklevel=3,
        )


def _bars(quiet: bool) -> list[Callback]:
    return [] if quiet else [ProgressBars()]


# Training. -------------------------------------------------------------------------------------


def _train(loaded: LoadedRun, folder: Path, callbacks: Sequence[Callback]) -> Result:
    """Train from the checkpoint to the end, and write the result."""
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
        "machine": describe_machine(loaded.fabric.device),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("hashprompt", "torch", "timm", "lightning-fabric")},
        },
    }


# Resuming. -------------------------------------------------------------------------------------


def _finished(folder: Path) -> Result | None:
    """The result of a finished run; None if the run has to be resumed."""
    if not (folder / "result.json").exists():
        return None
    found, damages = Checkpoints(folder / "checkpoints").newest_intact()
    result, problem = None, f"The trained model in {folder} is damaged."
    try:
        result = load_result(folder)
    except DamagedError as error:
        if not found:
            raise
        problem = str(error)
    if result and not damages:
        return result
    if found:
        next_step = "It is recomputed from the checkpoint, with identical results."
    else:
        next_step = "Only the result is left: `hashprompt run --overwrite` trains it again."
    warnings.warn(f"{problem} {next_step}", stacklevel=3)
    return None if found else result


def _check_same(folder: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to resume with another protocol than the run started with."""
    for name, value in then.items():
        if now.get(name) != value:
            raise UserError(
                f"Cannot resume {folder}: {name} was {str(value)[:60]} when the run started. It is "
                f"{str(now.get(name))[:60]} now. Restore the original data or weights."
            )
