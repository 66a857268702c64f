"""The contract every method meets, and the registry of methods."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
import yaml
from pydantic import Field
from torch import Tensor, nn

from hashprompt.backbone import Backbone
from hashprompt.errors import UserError
from hashprompt.methods.phase import (
    Batch,
    Losses,
    ParamGroup,
    Phase,
    Schedule,
    StepResult,
    learning_rate_factor,
)
from hashprompt.options import Options, unknown

__all__ = [
    "Batch",
    "Losses",
    "Method",
    "MethodConfig",
    "MethodInfo",
    "ParamGroup",
    "Phase",
    "Prediction",
    "Schedule",
    "StepResult",
    "TaskView",
    "blocks_of",
    "find_method",
    "known_methods",
    "learning_rate_factor",
    "parameter_count",
    "preset_options",
    "presets",
    "register",
]

KINDS = ("prompts", "routers", "head", "tii", "statistics")  # of stored numbers


class Prediction(NamedTuple):
    """What a method says about images."""

    logits: Tensor  # (B, C) over the classes seen so far
    task: Tensor | None = None  # (B,) inferred task
    first_guess: Tensor | None = None  # (B,) class that task inference would answer


class TaskView(Protocol):
    """What a method may see of the current task; there is no way to old or test images."""

    index: int
    classes: tuple[int, ...]
    labels: Tensor  # (N,) of the training images

    def features(self) -> Tensor:
        """Plain features (N, D) of the clean view, cached on disk."""

    def map(
        self, function: Callable[[Tensor], Tensor], view: Literal["train", "clean"] = "clean"
    ) -> Tensor:
        """`function` over a view in batches, without gradients, joined to (N, …)."""


@dataclass(frozen=True)
class MethodInfo:
    """What a user should know before choosing a method."""

    title: str
    summary: str
    paper: str = ""
    scenarios: tuple[str, ...] = ("class", "domain")
    joint: bool = False  # trained on all tasks at once
    batch_invariant: bool = True


class MethodConfig(Options):
    """Options every method has."""

    batch_size: int = Field(128, ge=1, description="images per step")


class Method(nn.Module):
    """A continual learner. All its state is in parameters and registered buffers."""

    info: ClassVar[MethodInfo]
    keeps: tuple[str, ...] = ()  # state (by prefix) whose old rows never change
    # Kind of what is stored, by prefix of its name; names that are a kind need no entry.
    stores: ClassVar[Mapping[str, str]] = {}
    backbone: Backbone
    config: MethodConfig

    def __init__(self, config: MethodConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        # Not a submodule: the frozen ViT is no part of what a method saves.
        self.__dict__["backbone"] = backbone

    @property
    def device(self) -> torch.device:
        return next(chain(self.parameters(), self.buffers())).device

    def begin_task(self, task: TaskView) -> None:
        """Grow for the new classes, take snapshots."""

    def phases(self, task: TaskView) -> list[Phase]:
        """How to learn the task. Called again on resume: it must not change any state."""
        raise NotImplementedError

    def end_task(self, task: TaskView) -> None:
        """After the last phase, before evaluation."""

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        """Classify images, whatever task they come from.

        Args:
            images: (B, 3, S, S) clean view.
            plain: (B, D) their plain features, when they are known already.
        """
        raise NotImplementedError

    def accumulators(self) -> list[Tensor]:
        """Buffers to which steps add counts of images; after each step all devices have the sum."""
        return []

    def diagnostics(self) -> dict[str, float]:
        """Averages over the training of the current task, for the log."""
        return {}

    def usage(self) -> list[list[int]] | None:
        """Activations of each expert while each task was trained, (T, N)."""
        return None

    def sizes(self) -> dict[str, int]:
        """Stored numbers by kind: those of `state_dict` under the prefixes of `stores`.

        `prompts` (and what generates or adapts them), `routers` (what selects: routers, keys,
        gates), `head`, `tii` (task inference by a network), `statistics` (of features).
        Counts and flags, which are no floating-point numbers, do not count.
        """
        sizes = dict.fromkeys(KINDS, 0)
        kinds = {**{kind: kind for kind in KINDS}, **self.stores}
        for name, tensor in self.state_dict().items():
            for prefix, kind in kinds.items():
                if f"{name}.".startswith(f"{prefix}.") and tensor.is_floating_point():
                    sizes[kind] += tensor.numel()
        return sizes


def blocks_of(layers: tuple[int, ...], backbone: Backbone) -> list[int]:
    """0-based blocks for the option `layers`, which counts from 1."""
    if not all(1 <= layer <= backbone.depth for layer in layers):
        raise UserError(f"layers={list(layers)}: this backbone has blocks 1–{backbone.depth}.")
    return [layer - 1 for layer in layers]


OWN_METHODS = "HASHPROMPT_METHODS"  # environment: Python files with methods of the user's own
METHODS: dict[str, tuple[type[Method], type[MethodConfig]]] = {}


def register(name: str, config: type[MethodConfig]) -> Callable[[type[Method]], type[Method]]:
    """Class decorator: `@register("hash", HashConfig)`."""

    def add(method: type[Method]) -> type[Method]:
        METHODS[name] = (method, config)
        return method

    return add


def known_methods() -> dict[str, tuple[type[Method], type[MethodConfig]]]:
    """All methods by name: ours, and those of the user's own files."""
    for file in filter(None, os.environ.get(OWN_METHODS, "").split(os.pathsep)):
        _import_own(Path(file).expanduser().resolve())
    return METHODS


@cache
def _import_own(file: Path) -> None:
    """Run a file of the user's that registers methods.

    Run directories never name such a file: code must come from who types the command.
    """
    name = f"hashprompt_own_{file.stem}"
    spec = spec_from_file_location(name, file)
    try:
        if spec is None or spec.loader is None:
            raise ImportError("it is not a Python file")
        module = module_from_spec(spec)
        sys.modules[name] = module  # pydantic looks types up there
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's code raises
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{OWN_METHODS} names {file}, which cannot be imported. {what}") from error


def find_method(name: str) -> tuple[type[Method], type[MethodConfig]]:
    """A registered method and its option group."""
    methods = known_methods()
    if name not in methods:
        raise UserError(
            f"{unknown('method', name, methods)} See `hashprompt methods`. One of your own: "
            f"{OWN_METHODS}=FILE.py."
        )
    return methods[name]


def presets(method: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Named sets of options of a method: preset -> benchmark (or `default`) -> options.

    They are in `presets/METHOD.yaml`, with the source of each value beside it.
    """
    file = files("hashprompt.methods") / "presets" / f"{method}.yaml"
    if not file.is_file():
        return {"paper": {}}
    table = yaml.safe_load(file.read_text())
    return {name: {k: v or {} for k, v in (of or {}).items()} for name, of in table.items()}


def preset_options(method: str, preset: str, benchmark: str) -> dict[str, Any]:
    """The options of a preset for a benchmark; `paper/split-cub200` names both."""
    known = presets(method)
    preset, _, named = preset.partition("/")
    if preset not in known:
        raise UserError(unknown(f"preset of {method}", preset, known))
    sections = known[preset]
    if named and named not in sections:
        raise UserError(unknown(f"benchmark of preset {preset} of {method}", named, sections))
    return {**sections.get("default", {}), **sections.get(named or benchmark, {})}


def parameter_count(*modules: nn.Module | Tensor) -> int:
    """Numbers held in parameters (of modules) or in tensors."""
    return sum(
        m.numel() if isinstance(m, Tensor) else sum(p.numel() for p in m.parameters())
        for m in modules
    )
