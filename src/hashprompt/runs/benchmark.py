"""Runs: resolve the options, keep a run directory, learn a stream, give back a result."""

import json
import platform
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashprompt.backbone.preprocessing import LoadedBackbone
from hashprompt.backbone.weights import load_backbone
from hashprompt.data.streams.names import DEMO
from hashprompt.data.streams.stream import Stream, joint, load_stream
from hashprompt.engine.callbacks import Callback
from hashprompt.engine.checkpoint import FILES, Checkpoints
from hashprompt.engine.devices import launch
from hashprompt.engine.metrics import summarise
from hashprompt.engine.seeding import seed_everything
from hashprompt.engine.trainer import Trainer
from hashprompt.engine.views import describe_transform
from hashprompt.errors import UserError
from hashprompt.loggers import LOG_FILES, make_loggers
from hashprompt.methods.base import Method
from hashprompt.methods.building import build_method
from hashprompt.methods.config import MethodConfig
from hashprompt.methods.frames.options import SWITCHES, BufferOptions
from hashprompt.methods.registry import find_method
from hashprompt.report import read_result
from hashprompt.runs.plan import Plan, plan, stored_plan
from hashprompt.storage.files import as_given, inside, make_folder, read_file, remove_ours
from hashprompt.storage.json_files import FORMAT, DamagedError, write_json
from hashprompt.storage.lock import LOCK, locked
from hashprompt.ui.progress import ProgressBars, reading_bar

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# All that a run directory holds of ours; what a user put there stays there.
RUN_FILES = (
    *("config.json", "result.json", "report.html", "figures/*.png", LOCK),
    *(f"checkpoints/{name}" for name in FILES),
    *LOG_FILES,
)


@dataclass(frozen=True)
class Result:
    """What a finished run found. `data` is the content of its `result.json`."""

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
        seed: of everything: class order, initial values, batches, augmentation.
        preset: `paper` (the Hash paper's harness), `original` (the method's own code) or `best`
            (ours); they know the usual benchmarks, and `paper/split-cub200` names one.
        out: run directory; default `runs/METHOD-STREAM-SEED`.
        overwrite: replace a run that is there already.
        quiet: no progress.
        log: where to log as it goes: `csv`, `tensorboard`, `mlflow`, `wandb`.
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
        callbacks: told what happens, beside the progress bars.
    """
    if folder is None:
        stream = Path(planned.stream.partition(":")[2] or planned.stream).stem
        folder = Path("runs") / f"{planned.method}-{stream}-{planned.seed}"
    parts = prepare(planned)  # before the directory: bad input must leave no trace
    fabric = parts[-1]
    if fabric.is_global_zero:
        _make_folder(folder, overwrite)
        write_json(inside(folder, "config.json"), {**planned.to_dict(), "protocol": parts[0]})
    fabric.barrier()
    return _carry_out(planned, folder, [*_bars(quiet), *callbacks], *parts)


def resume(
    folder: str | Path,
    quiet: bool = False,
    download: bool = False,
    callbacks: Sequence[Callback] = (),
    log: Sequence[str] = (),
    planned: Plan | None = None,
) -> Result:
    """Go on with an interrupted run; it ends with the numbers of an undisturbed one.

    A finished run whose result or learned model is damaged is finished again.

    Args:
        quiet: no progress.
        download: whether weights or images that the folder names may be downloaded.
        callbacks: told what happens, beside the progress bars.
        log: as in `run`; a log that is there goes on where the checkpoint stands.
        planned: its plan, where files and devices are others than when it began.
    """
    folder, loggers = Path(folder), make_loggers(log)
    result = _finished(folder)
    if result is not None:
        return result
    planned, protocol = stored_plan(folder, instead=planned)
    parts = prepare(planned, download)
    _check_same(folder, protocol, parts[0])
    return _carry_out(planned, folder, [*_bars(quiet), *callbacks, *loggers], *parts)


def _bars(quiet: bool) -> list[Callback]:
    return [] if quiet else [ProgressBars()]


def _finished(folder: Path) -> Result | None:
    """The result of a finished run; None if there is something to go on with."""
    if not (folder / "result.json").exists():
        return None
    checkpoints = Checkpoints(folder / "checkpoints").check()
    try:
        result = load_result(folder)
    except DamagedError as error:
        if checkpoints in ("none", "all damaged"):
            raise
        warnings.warn(f"{error} It is made anew.", stacklevel=3)
        return None
    if checkpoints == "newest damaged":
        warnings.warn(
            f"The learned model in {folder} is damaged. It is learned anew from the checkpoint "
            "before it, to the same numbers.",
            stacklevel=3,
        )
        return None
    if checkpoints == "all damaged":
        warnings.warn(
            f"The learned model in {folder} is damaged, and the checkpoint before it too: only the "
            "result is left. `hashprompt run --overwrite` learns it anew.",
            stacklevel=3,
        )
    return result


def evaluate(
    folder: str | Path,
    quiet: bool = False,
    download: bool = False,
    planned: Plan | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Test the learner of a finished run again, with other options of prediction.

    For example ``eval_batch_size=1``, or ``align="discriminant"`` for a method that keeps
    Gaussians. Nothing is trained and the run is not changed. `planned` as in `resume`.

    Returns:
        `average` and `accuracy` per task after the last task, `task_inference`, and the rest of
        what `after_task` of a result holds.
    """
    folder = Path(folder)
    planned, protocol = stored_plan(folder, options, planned)
    parts = prepare(planned, download)
    may_differ = {name for name in protocol if name in options} | {"legacy"}
    _check_same(folder, {k: v for k, v in protocol.items() if k not in may_differ}, parts[0])
    _, stream, backbone, method, fabric = parts
    run_options, seed = planned.run_options, planned.seed
    callbacks = _bars(quiet)
    trainer = Trainer(method, stream, backbone, run_options, fabric, folder, seed, callbacks)
    return trainer.evaluate()


def _check_same(folder: Path, then: dict[str, Any], now: dict[str, Any]) -> None:
    for name, value in then.items():
        if name not in now:
            raise UserError(
                f"Cannot go on with {folder}: its protocol has `{name}`, which this version of "
                "hashprompt does not know. Use the version that made it."
            )
        if now[name] != value:
            raise UserError(
                f"Cannot go on with {folder}: {name} is {str(now[name])[:60]} now and was "
                f"{str(value)[:60]} when the run began. Restore the data or weights it began with."
            )


def load_result(folder: str | Path) -> Result:
    """The result of a finished run."""
    return Result(Path(folder), read_result(Path(folder)))


def prepare(
    planned: Plan, may_download: bool = True
) -> tuple[dict[str, Any], Stream, LoadedBackbone, Method, "Fabric"]:
    """Everything that can fail on bad input, before anything is trained."""
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
    switches = [s for s in SWITCHES if getattr(planned.method_config, s, False)]
    protocol = {
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
        "transform": describe_transform(planned.run_options, backbone.preprocessing, stream),
        "eval_batch_size": planned.run_options.eval_batch_size,
        "precision": planned.run_options.precision,
        "legacy": switches,
        "keeps_images": planned.method_config.keeps_images(),
    }
    _warn_if_all_is_kept(planned.method_config, stream)
    if method.info.joint:
        stream = joint(stream)
    if switches:
        warnings.warn(
            f"{' and '.join(switches)}: as in the public code, an image's answer depends "
            "on the images beside it. The result is stamped with this.",
            stacklevel=2,
        )
    return protocol, stream, backbone, method, launch(planned.run_options)


def _warn_if_all_is_kept(config: MethodConfig, stream: Stream) -> None:
    """A memory that holds all images of all tasks makes a run no continual one."""
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


def _make_folder(folder: Path, overwrite: bool) -> None:
    place = as_given(folder.resolve())
    try:
        # A kill while config.json was written leaves its beginning: nothing to protect.
        left_over = ".config.json."
        if folder.is_dir() and any(not p.name.startswith(left_over) for p in folder.iterdir()):
            ours = _is_run(folder)
            if not overwrite or not ours:
                what = "a run is there" if ours else "it exists and is not a run directory"
                way = "`hashprompt resume` goes on with it, --overwrite replaces it"
                raise UserError(
                    f"Cannot use {folder}: {what}. {way if ours else 'Choose another --out'}."
                )
            with _alone(folder):
                pass  # nobody is at work there
            remove_ours(place, RUN_FILES)
        make_folder(place)
    except OSError as error:
        raise UserError(
            f"Cannot create {folder}: {error.strerror or error}. Choose another --out."
        ) from error


def _alone(folder: Path) -> AbstractContextManager[None]:
    """Be the only process that works on a run: two would write over each other's checkpoints."""
    busy = f"Another process is working on {folder}. Wait for it, or choose another --out."
    return locked(folder, lambda: busy)


def _is_run(folder: Path) -> bool:
    """Whether we made this folder: other programs keep a `config.json` too."""
    try:  # not `read_json`: a damaged run, or one of an older version, is ours too
        stored = json.loads(read_file(inside(folder, "config.json")))
        return {"format", "method", "protocol"} <= stored.keys()
    except (OSError, UserError, ValueError, RecursionError, AttributeError):
        return False


def _carry_out(
    planned: Plan,
    folder: Path,
    callbacks: Sequence[Callback],
    protocol: dict[str, Any],
    stream: Stream,
    backbone: LoadedBackbone,
    method: Method,
    fabric: "Fabric",
) -> Result:
    trainer = Trainer(
        method, stream, backbone, planned.run_options, fabric, folder, planned.seed, callbacks
    )
    with _alone(folder) if fabric.is_global_zero else nullcontext():
        told, data = trainer.callbacks, None
        told.on_run_start(folder, planned.to_dict())
        try:
            data = _result(planned, protocol, trainer)
        finally:
            told.on_run_end(data)
        if fabric.is_global_zero:
            write_json(inside(folder, "result.json"), data)
    fabric.barrier()
    return Result(folder, data, fabric.is_global_zero)


def _result(planned: Plan, protocol: dict[str, Any], trainer: Trainer) -> dict[str, Any]:
    """Learn the stream to its end, and tell all that was found."""
    method, log = trainer.method, trainer.fit()
    return {
        "format": FORMAT,
        "finished": True,
        "config": planned.to_dict(),
        "protocol": protocol,
        **log,
        "metrics": summarise(log["accuracy"], trainer.stream.shared_test),
        "usage": method.usage(),
        "parameters": method.sizes(),
        "images_stored": method.images_stored(),
        "image_bytes": method.image_bytes(),
        "passes": dict(trainer.backbone.model.passes),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("hashprompt", "torch", "timm", "lightning-fabric")},
        },
    }
