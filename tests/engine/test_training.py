"""One step of training: rates, what is not finite, half precision, several devices."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hashprompt
from hashprompt.checks.example import Example
from hashprompt.engine.callbacks import Callback, StepEnd
from hashprompt.engine.checkpoint import Checkpoints
from hashprompt.engine.optimization import make_optimizer
from hashprompt.engine.replicas import Replicas
from hashprompt.engine.trainer import Trainer
from hashprompt.errors import UserError
from hashprompt.methods.base import Batch, ParamGroup, Phase, StepRecord, StepResult, TaskView
from hashprompt.methods.er.method import ER
from hashprompt.methods.finetune.method import Finetune
from hashprompt.methods.frames.full_finetuning import FullFinetuning
from hashprompt.methods.hash.method import Hash
from hashprompt.runs import benchmark

SMALL: dict[str, Any] = {
    **{"stream": "digits", "tasks": 2, "classes": 4, "train_per_class": 8, "test_per_class": 4},
    **{"batch_size": 8, "quiet": True},
}


class Rates(Callback):
    """The rates of every step, by (task, phase)."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, str], list[tuple[float, ...]]] = {}

    def on_step_end(self, step: StepEnd) -> None:
        self.seen.setdefault((step.task, step.phase), []).append(step.rates)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> Rates:
    """The rates of all runs of a test."""
    watching, inner = Rates(), Trainer.__init__

    def watched(self: Trainer, *args: Any, **kwargs: Any) -> None:
        inner(self, *args, **kwargs)
        self.callbacks.add(watching)

    monkeypatch.setattr(Trainer, "__init__", watched)
    return watching


# Phases are values. ------------------------------------------------------------------------


def test_an_optimiser_cannot_change_the_phase_it_was_made_from() -> None:
    group = ParamGroup((nn.Parameter(torch.zeros(2)),), lr=0.5, weight_decay=0.1)
    phase = Phase("train", step=lambda _: {}, groups=[group], epochs=1, batch_size=1)
    optimizer = make_optimizer(phase)
    optimizer.param_groups[0]["lr"] = 0.01
    assert phase.groups[0] == group
    assert make_optimizer(phase).param_groups[0]["lr"] == 0.5
    assert make_optimizer(phase).param_groups[0]["weight_decay"] == 0.1
    bare = ParamGroup(group.params, lr=0.1)
    for kind in ("adam", "adamw", "sgd"):  # AdamW has a default of its own
        phase = replace(phase, groups=[bare], optimizer=kind)
        assert make_optimizer(phase).param_groups[0]["weight_decay"] == 0


def test_a_phase_trains_or_computes() -> None:
    with pytest.raises(ValueError, match="either"):
        Phase("both", work=lambda: None, step=lambda _: {})
    with pytest.raises(ValueError, match="either"):
        Phase("neither")
    with pytest.raises(ValueError, match="batch_size"):
        Phase("no batches", step=lambda _: {})
    with pytest.raises(ValueError, match="not `draw`"):
        Phase("x", step=lambda _: {}, draw=list, record=lambda _: None)


def factors(phase: Phase, steps: int) -> list[float]:
    return [phase.rate_factor(e, s, steps) for e in range(phase.epochs) for s in range(steps)]


def test_rates_by_epoch_and_by_step() -> None:
    base: dict[str, Any] = {"step": lambda _: {}, "epochs": 4, "batch_size": 1}
    by_epoch = Phase("p", schedule="cosine", **base)
    assert factors(by_epoch, 2) == pytest.approx(
        [1, 1, 0.853553, 0.853553, 0.5, 0.5, 0.146447, 0.146447], abs=1e-6
    )
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    torchs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    expected = []
    for _ in range(8):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        torchs.step()
    by_step = Phase("p", schedule="cosine", schedule_per="step", **base)
    assert factors(by_step, 2) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("ovor", {"epochs": 2, "outlier_epochs": 2, "prompt_lengths": (2,), "layers": (1,)}),
        ("smope", {"epochs": 4, "schedule": "cosine", "align_epochs": 2, "layers": (1,)}),
    ],
)
def test_a_phase_runs_at_its_own_rates_whatever_ran_before(
    method: str, options: dict[str, Any], rates: Rates, tmp_path: Path
) -> None:
    hashprompt.run(method, out=tmp_path / "run", lr=0.1, **{**SMALL, **options})
    steps = 2  # of an epoch
    if method == "ovor":
        lr = 0.1 * torch.tensor([torch.pi * 0.495 * e / 3 for e in range(4)]).cos()
        for task in (0, 1):
            head = [seen[-1] for seen in rates.seen[task, "train"] + rates.seen[task, "outliers"]]
            assert head == pytest.approx(lr.repeat_interleave(steps).tolist(), rel=1e-5)
    else:
        lr = 0.5 * 0.1 * (1 + torch.tensor([torch.pi * e / 4 for e in range(4)]).cos())
        for task in (0, 1):  # the first one after a warm-up that shares its groups
            prompts = [seen[0] for seen in rates.seen[task, "train"]]
            assert prompts == pytest.approx(lr.repeat_interleave(steps).tolist(), rel=1e-5)


class PowerCutError(BaseException):
    pass


@contextmanager
def power_cut(when: Callable[[dict[str, Any], int], bool]) -> Iterator[None]:
    """The power goes off after a save, chosen by its state and its number."""
    save, saves = Checkpoints.save, 0

    def save_then_fail(self: Checkpoints, tensors: Any, state: Any) -> None:
        nonlocal saves
        save(self, tensors, state)
        saves += 1
        if when(state, saves):
            raise PowerCutError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", save_then_fail)
        with pytest.raises(PowerCutError):
            yield


# What is not finite. -----------------------------------------------------------------------


def overflow_at(patch: pytest.MonkeyPatch, number: int) -> None:
    """The gradient of the n-th step of the prompts overflows, the loss does not."""
    inner, calls = Hash.step, 0

    def step(self: Hash, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        result = inner(self, *args)
        if calls == number:
            prompts = self.pool.prompts
            result.losses["huge"] = (1e38 * (prompts - prompts.detach())).sum() * 1e10
        return result

    patch.setattr(Hash, "step", step)


def test_a_step_with_an_overflowing_gradient_is_not_taken_and_the_run_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {**SMALL, "epochs": 2, "tii_epochs": 0, "align_epochs": 0}
    whole = hashprompt.run(out=tmp_path / "whole", **small)
    with monkeypatch.context() as patch:
        overflow_at(patch, 3)
        message = "norm of the gradient is inf in task 1, phase wtp, .* Try a smaller lr\\.$"
        with pytest.raises(UserError, match=message):  # no clip=1: it is clipped already
            hashprompt.run(out=tmp_path / "run", **small)
    resumed = benchmark.resume(tmp_path / "run", quiet=True)
    assert resumed.accuracy == whole.accuracy
    assert resumed.data["usage"] == whole.data["usage"]  # its images were not counted twice


@pytest.fixture
def half_precision(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Runs with a loss scaler on the CPU; the function gives the newest run's scaler."""
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.precision import MixedPrecision

    made: list[Any] = []

    def launch(options: Any) -> Fabric:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        plugin = MixedPrecision("16-mixed", "cpu", scaler)
        monkeypatch.setattr(plugin, "forward_context", nullcontext)  # halves are slow on CPUs
        made.append(scaler)
        return Fabric(accelerator="cpu", devices=1, plugins=[plugin])

    monkeypatch.setattr(benchmark, "launch", launch)
    return lambda: made[-1]


def test_with_a_loss_scaler_an_overflow_costs_one_step_and_no_run(
    half_precision: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {**SMALL, "epochs": 2, "tii_epochs": 0, "align_epochs": 0}
    with monkeypatch.context() as patch:
        overflow_at(patch, 3)
        result = hashprompt.run(out=tmp_path / "run", **small)
    assert result.metrics["FAA"] is not None
    state = json.loads(sorted((tmp_path / "run" / "checkpoints").glob("state-*"))[-1].read_text())
    assert state["precision"]["scale"] == half_precision().get_scale()


def test_the_loss_scaler_goes_on_where_it_was(
    half_precision: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {**SMALL, "epochs": 4, "tii_epochs": 0, "align_epochs": 0, "checkpoint_minutes": 0}
    whole = hashprompt.run(out=tmp_path / "whole", **small)
    scale = half_precision().get_scale()
    assert scale > 1024  # it has grown

    with power_cut(lambda state, saves: saves == 9):
        hashprompt.run(out=tmp_path / "run", **small)
    resumed = benchmark.resume(tmp_path / "run", quiet=True)
    assert half_precision().get_scale() == scale
    assert resumed.accuracy == whole.accuracy


# Resuming. ---------------------------------------------------------------------------------


@pytest.fixture
def cut_run(tmp_path: Path) -> Path:
    """A run that ended after three steps of the first task."""
    small = {**SMALL, "epochs": 2, "checkpoint_minutes": 0}
    position = {"task": 0, "phase": 0, "epoch": 1, "step": 1}
    with power_cut(lambda state, saves: state["position"] == position):
        hashprompt.run("finetune", out=tmp_path / "run", **small)
    return tmp_path / "run"


@pytest.mark.parametrize("kind", [RuntimeError, IndexError, ValueError])
def test_an_error_of_the_method_is_not_blamed_on_the_checkpoint(
    kind: type[Exception], cut_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise kind("of the method")

    monkeypatch.setattr(Finetune, "_step", fail)
    with pytest.raises(kind, match="of the method"):
        benchmark.resume(cut_run, quiet=True)


# Passes. -----------------------------------------------------------------------------------


def test_passes_of_an_epoch_that_is_drawn_again_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OVOR looks at all images to draw the batches of an epoch; so it does again on resume."""
    options = {"epochs": 1, "outlier_epochs": 2, "prompt_lengths": (2,), "layers": (1,)}
    small = {**SMALL, **options, "checkpoint_minutes": 0}
    hashprompt.run("ovor", out=tmp_path / "first", **small)  # fills the cache of plain features
    whole = hashprompt.run("ovor", out=tmp_path / "whole", **small)

    position = {"task": 1, "phase": 1, "epoch": 0, "step": 1}  # inside the second phase
    with power_cut(lambda state, saves: state["position"] == position):
        hashprompt.run("ovor", out=tmp_path / "run", **small)
    resumed = benchmark.resume(tmp_path / "run", quiet=True)
    assert resumed.data["passes"] == whole.data["passes"]
    assert resumed.accuracy == whole.accuracy


# What a step was taken on. -------------------------------------------------------------------


def test_a_phase_is_told_what_each_step_was_taken_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, list[StepRecord]] = {}
    labels: dict[int, Tensor] = {}

    def phases(self: ER, task: TaskView) -> list[Phase]:
        labels[task.index] = task.labels
        record = told.setdefault(task.index, []).append
        return [replace(phase, record=record) for phase in FullFinetuning.phases(self, task)]

    def losses(self: ER, batch: Batch, task: TaskView) -> StepResult:
        found = FullFinetuning.losses(self, batch, task)
        assert isinstance(found, dict)
        return StepResult(found, outputs=batch.labels[:, None].float())

    monkeypatch.setattr(ER, "phases", phases)
    monkeypatch.setattr(ER, "losses", losses)
    example = Example("er")
    for task in example.stream.tasks:
        steps = told[task.index]
        for epoch in (0, 1):
            rows = torch.cat([seen.rows for seen in steps if seen.epoch == epoch])
            assert rows.sort().values.tolist() == list(range(len(task.train)))
        for seen in steps:
            assert seen.outputs is not None
            assert seen.outputs[:, 0].tolist() == labels[task.index][seen.rows].tolist()


@pytest.mark.parametrize("count", [2, 6, 7])
def test_devices_join_what_they_have_of_a_batch_in_its_order(count: int) -> None:
    rows = torch.arange(count)
    each: list[Tensor] = []

    def all_gather(padded: Tensor) -> Tensor:
        each.append(padded)
        return torch.stack(each) if len(each) == 3 else padded

    devices = [
        Replicas(SimpleNamespace(world_size=3, global_rank=rank, all_gather=all_gather))  # type: ignore[arg-type]
        for rank in range(3)
    ]
    joined = [device.whole(10.0 * device.share(rows)[:, None], count) for device in devices]
    assert joined[-1][:, 0].tolist() == [10.0 * row for row in range(count)]


# Several devices. --------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "hashprompt"]


def launch_two(
    out: Path, *settings: str, method: str = "hash", own: str = "", timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """`hashprompt run` on two CPU devices (Gloo); `own` is code of a method file."""
    environment = dict(os.environ)
    if own:
        file = out.with_suffix(".py")
        file.write_text(own)
        environment["HASHPROMPT_METHODS"] = str(file)
    flags = [f"--set={name}={value}" for name, value in SMALL.items() if name not in QUIET]
    devices = ["--set=device=cpu", "--set=devices=2", *(f"--set={s}" for s in settings)]
    run = ["run", f"--method={method}", "--stream=digits", f"--out={out}", "--quiet"]
    return subprocess.run(
        [*COMMAND, *run, *flags, *devices],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


QUIET = ("stream", "quiet")
BROKEN = """
import torch.distributed as dist
from hashprompt.methods.registry import register
from hashprompt.methods.finetune.config import FinetuneConfig
from hashprompt.methods.finetune.method import Finetune

@register("broken", title="Broken", summary="for tests")
class BrokenConfig(FinetuneConfig):
    pass

class Broken(Finetune):
    '''Its loss is not finite on the second device alone.'''

    def _step(self, batch, task):
        losses = super()._step(batch, task)
        return {"ce": losses["ce"] * (float("nan") if dist.get_rank() else 1.0)}
"""


@pytest.mark.slow
def test_what_is_not_finite_on_one_device_stops_all(tmp_path: Path) -> None:
    done = launch_two(tmp_path / "run", "epochs=1", method="broken", own=BROKEN, timeout=120)
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "not finite in task 1, phase train, epoch 1, step 1" in said, said
    assert (tmp_path / "run" / "checkpoints").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"mask_inactive": True}, {"history": "step"}], ids=str)
def test_two_devices_count_together(options: dict[str, Any], tmp_path: Path) -> None:
    """Masks and live penalties follow from counts: the same on all devices, and as on one."""
    common = {"epochs": 2, "augment": "none", "contrastive": 0, "tii_epochs": 1, "align_epochs": 1}
    settings = {**common, **options}
    done = launch_two(tmp_path / "two", *(f"{k}={v}" for k, v in settings.items()))
    assert done.returncode == 0, done.stderr
    two = benchmark.load_result(tmp_path / "two")
    one = hashprompt.run(out=tmp_path / "one", **{**SMALL, **settings})
    assert two.data["usage"] == one.data["usage"]
    assert two.accuracy == one.accuracy


def test_what_could_not_be_loaded_is_not_saved(
    tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Hash, task: TaskView) -> dict[str, float]:
        self.penalties[-1] = torch.nan  # after the evaluation, which would notice
        return {}

    monkeypatch.setattr(Hash, "diagnostics", broken)
    with pytest.raises(UserError, match="Non-finite values in `penalties`"):
        tiny_run(tmp_path / "run")
