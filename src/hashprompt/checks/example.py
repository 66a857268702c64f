"""A method that has learned a small stream, and everything that was seen on the way."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hashprompt.backbone.plain import Architecture, PlainViT
from hashprompt.backbone.preprocessing import LoadedBackbone, Preprocessing, weights_hash
from hashprompt.backbone.vit import Backbone
from hashprompt.engine.callbacks import Callback, StepEnd
from hashprompt.engine.passes import uncounted
from hashprompt.engine.seeding import seed_everything
from hashprompt.engine.trainer import Trainer
from hashprompt.methods.base import Method
from hashprompt.methods.registry import find_method
from hashprompt.runs import benchmark
from hashprompt.runs.plan import make_plan

STREAMS = {
    "class": ("digits", {"tasks": 3, "classes": 6}),
    "domain": ("glyphs-domains", {"tasks": 3, "classes": 3}),
}
# Two epochs of two steps in every phase, so that a run can be cut off inside one and between two.
QUICK = {
    **{"batch_size": 8, "train_per_class": 8, "test_per_class": 8, "eval_batch_size": 16},
    "checkpoint_minutes": 0,  # save after every step
}
# Where a method has them.
SHORT = {
    **{"schedule": "cosine", "align_samples": 8, "operator_steps": 2},
    **{"projection": 64, "noise_draws": 8},
}


def narrow_backbone() -> LoadedBackbone:
    """A ViT of six blocks and width 32 for images of 32 pixels, with random weights."""
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 6, "num_heads": 2}
    vit = PlainViT(Architecture.model_validate(sizes))
    for parameter in vit.parameters():
        nn.init.normal_(parameter, std=0.2)
    colours = (0.5, 0.5, 0.5)
    return LoadedBackbone(
        "narrow", Backbone(vit), Preprocessing(32, colours, colours), weights_hash(vit)
    )


class SavedState(NamedTuple):
    """A checkpoint in memory."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]

    @property
    def phase(self) -> tuple[int, int]:
        """(task, phase) that it stands in."""
        return self.state["position"]["task"], self.state["position"]["phase"]

    @property
    def step(self) -> tuple[int, int]:
        """(epoch, step) of that phase."""
        return self.state["position"]["epoch"], self.state["position"]["step"]


class PowerCutError(BaseException):
    """What no `except Exception` may catch."""


class Recorder:
    """In the place of checkpoints on disk: keeps every save, and may cut the power after one.

    Args:
        start: what is there to be resumed.
        last: the position to be saved before the power goes off; nothing before is kept.
    """

    folder = Path("memory")

    def __init__(self, start: SavedState | None = None, last: dict[str, int] | None = None) -> None:
        self.saves: list[SavedState] = []
        self._start, self._last = start, last

    def load(self) -> SavedState | None:
        return deepcopy(self._start)

    def prune(self) -> None:
        """Nothing is removed."""

    def save(self, tensors: Mapping[str, Tensor], state: dict[str, Any]) -> None:
        if self._last not in (None, state["position"]):
            return
        before = self.saves[-1].tensors if self.saves else {}
        copies = {name: _copied(tensor, before.get(name)) for name, tensor in tensors.items()}
        self.saves.append(SavedState(copies, deepcopy(state)))
        if self._last is not None:
            raise PowerCutError


def _copied(tensor: Tensor, before: Tensor | None) -> Tensor:
    """A copy, or what was kept before if it is the same: a ViT in every save is much."""
    kept = tensor.detach().cpu()
    same = before is not None and before.shape == kept.shape and torch.equal(before, kept)
    return before if same and before is not None else kept.clone()


class Watch(Callback):
    """Every step of training, by (task, phase, epoch, step)."""

    def __init__(self) -> None:
        self.steps: dict[tuple[int, str, int, int], StepEnd] = {}

    def on_step_end(self, step: StepEnd) -> None:
        place = (step.task, step.phase, step.epoch, step.step)
        self.steps[place] = replace(step, images=0)  # counted by each process


class Example(Callback):
    """A method after three small tasks on the embedded ViT.

    Args:
        method: a registered name.
        preset: of its options.
        scenario: new classes, or the same classes in new surroundings.
        options: in addition to those that make it small.
    """

    def __init__(
        self,
        method: str,
        preset: str | None = None,
        scenario: str = "class",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        stream, small = STREAMS[scenario]
        known = find_method(method).config.model_fields
        # Fewer than there are, so that a memory has to choose.
        kept = {"buffer_per_class": 3} if find_method(method).info.keeps_images else {}
        epochs = {name: 2 for name in known if name.endswith("epochs")}
        short = {name: value for name, value in SHORT.items() if name in known}
        chosen = {**small, **QUICK, **epochs, **short, **kept, **(options or {})}
        self.plan = make_plan(method, stream, "nano", 0, preset, chosen)
        self.loaded = replace(benchmark.prepare(self.plan), backbone=narrow_backbone())
        self.stream, self.backbone = self.loaded.stream, self.loaded.backbone
        self.vit_before = weights_hash(self.backbone.model.vit)
        self.recorder, self.watch = Recorder(), Watch()
        self.trainer = self.make_trainer(self.recorder, self.watch)
        self.method = self.trainer.method
        self.widths: list[int] = []  # number of outputs after each task
        self.trainer.callbacks.add(self)
        self.log = self.trainer.fit()

    def on_task_end(self, task: int) -> None:
        self.widths.append(self.logits(self.images(2)).shape[1])

    def make_method(self) -> Method:
        """The method before it has learned anything."""
        seed_everything(self.plan.seed, "method")
        return find_method(self.plan.method).load()(self.plan.method_config, self.backbone.model)

    def make_trainer(self, checkpoints: Recorder, *callbacks: Callback) -> Trainer:
        """The same run, from the start or from what the checkpoints hold."""
        self.backbone.model.passes.clear()
        run = replace(self.loaded, method=self.make_method())
        trainer = run.trainer(Recorder.folder, callbacks)
        trainer.state.checkpoints = checkpoints  # type: ignore[assignment]
        return trainer

    def after_tasks(self) -> list[dict[str, Tensor]]:
        """The state of the method after each task."""
        ends = [save for save in self.recorder.saves[1:] if save.phase[1] == -1]
        return [{k.removeprefix("method/"): v for k, v in save.tensors.items()} for save in ends]

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """(B, C) over the classes seen; the pass is not counted."""
        with uncounted(self.backbone.model.passes):
            return self.method.predict(images).logits

    def images(self, count: int = 24) -> Tensor:
        """Test images of all tasks in mixed order, (count, 3, S, S)."""
        tables = [task.test.images for task in self.stream.stages]
        tensors = [images for images in tables if isinstance(images, Tensor)]
        mixed = torch.cat(tensors).repeat(3, 1, 1, 1)
        order = torch.randperm(len(mixed), generator=torch.Generator().manual_seed(0))[:count]
        return self.trainer.views.clean(mixed[order])


def decisive(save: SavedState) -> dict[str, Any]:
    """Everything that interruptions must not change: not the clock, nor frozen forward passes,
    which the cache on disk may save."""
    log = save.state["log"]
    kept = {name: log[name] for name in ("accuracy", "after_task", "diagnostics")}
    passes = {k: v for k, v in save.state["passes"].items() if k != "plain"}
    return {**kept, "passes": passes, "position": save.state["position"]}


def compare(found: SavedState, expected: SavedState, where: str) -> None:
    """Raise an AssertionError if two checkpoints differ."""
    for name, value in decisive(expected).items():
        assert decisive(found)[name] == value, f"{where}: {name} differs"
    assert found.tensors.keys() == expected.tensors.keys(), f"{where}: other names of tensors"
    for name, tensor in expected.tensors.items():
        assert torch.equal(found.tensors[name], tensor), f"{where}: {name} differs"
