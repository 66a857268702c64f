"""Methods by name: what can be set of each, what users should know of it, where its code is.

Nothing here imports torch: the code of a method is imported by `RegisteredMethod.load`.
"""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hashprompt.backbone.catalogue import CATALOGUE
from hashprompt.errors import UserError, shortened
from hashprompt.methods.config import MethodConfig, MethodInfo
from hashprompt.options import unknown
from hashprompt.options.run import RunOptions
from hashprompt.options.stream import StreamOptions

if TYPE_CHECKING:
    from hashprompt.backbone import Backbone
    from hashprompt.methods.base import Method

MOVED_PRESETS = {("hash", name): "averaged-prompt" for name in ("best", "pool", "photos")}
C = TypeVar("C", bound=type[MethodConfig])
OWN_METHODS = "HASHPROMPT_METHODS"  # environment: Python files with methods of the user's own


@dataclass(frozen=True)
class RegisteredMethod:
    """A method that can be chosen by its name."""

    name: str
    config: type[MethodConfig]

    @property
    def info(self) -> MethodInfo:
        return self.config.info

    @property
    def place(self) -> str:
        """Where the class is, `package.module:Class`: `hash/config.py` with `HashConfig` belongs to
        `hash/method.py` with `Hash`. A single file holds both.
        """
        module = re.sub(r"\.config$", ".method", self.config.__module__)
        return f"{module}:{self.config.__name__.removesuffix('Config')}"

    def load(self) -> "type[Method]":
        """The class; imports its module, and torch with it."""
        module, _, name = self.place.partition(":")
        found: type[Method] | None = getattr(import_module(module), name, None)
        if found is None:
            raise UserError(f"Method `{self.name}`: expected a class {name} in {module}.")
        return found


METHODS: dict[str, RegisteredMethod] = {}  # `known_methods` adds the user's own


def register(name: str, **info: Any) -> Callable[[C], C]:
    """Class decorator for the options of a method, which makes the method known by its name.

    `FirstPromptConfig` holds the options of the class `FirstPrompt`: see `RegisteredMethod.place`.
    Its docstring begins with `Title: summary.`, which is what lists and tables show.

    Args:
        name: how users call the method.
        info: fields of :class:`MethodInfo` in which it differs from others of its frame.
    """

    def add(config: C) -> C:
        first_paragraph = (config.__doc__ or "").partition("\n\n")[0]
        title, _, summary = " ".join(first_paragraph.split()).rstrip(".").partition(": ")
        config.info = replace(config.info, **{"title": title or name, "summary": summary, **info})
        method = RegisteredMethod(name, config)
        if not config.__name__.endswith("Config"):
            raise UserError(f"Name the options of `{name}` like its class, with Config at the end.")
        there = METHODS.get(name)
        if there is not None and there.place != method.place:  # the same class may be reloaded
            raise UserError(f"`{name}` is the name of a method already: {there.place}.")
        for kind, group in (("stream", StreamOptions), ("run", RunOptions)):
            for option in method.config.model_fields.keys() & group.model_fields.keys():
                what = f"option `{option}` of method `{name}`"
                raise UserError(f"Rename the {what}: it is also an option of the {kind}.")
        METHODS[name] = method
        return config

    return add


def known_methods() -> dict[str, RegisteredMethod]:
    """All methods by name: ours, and those of the user's own files."""
    for file in filter(None, os.environ.get(OWN_METHODS, "").split(os.pathsep)):
        try:
            import_methods(Path(file).expanduser().resolve())
        except UserError as error:
            raise UserError(f"{OWN_METHODS} names {file}. {error}") from error
    return METHODS


@cache
def import_methods(file: Path) -> tuple[str, ...]:
    """Run a file of the user's that registers methods; returns their names.

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
        raise UserError(f"{file}, a file of methods, cannot be imported. {what}") from error
    return tuple(n for n, method in METHODS.items() if method.place.startswith(f"{name}:"))


def find_method(name: str) -> RegisteredMethod:
    """A method by its name."""
    methods = known_methods()
    if name not in methods:
        raise UserError(
            f"{unknown('method', name, methods)} See `hashprompt methods`. One of your own: "
            f"{OWN_METHODS}=FILE.py."
        )
    return methods[name]


def build_method(name: str, config: MethodConfig, backbone: "Backbone") -> "Method":
    """A method that has learned nothing, unless it asks for more than this machine has."""
    from hashprompt.parts.budget import MemoryGuard  # imports torch

    method_type = find_method(name).load()
    try:
        with MemoryGuard(f"The tensors of {name} with these options"):
            return method_type(config, backbone)
    except (RuntimeError, MemoryError, OverflowError) as error:  # sizes beyond any memory
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"{name} cannot be built with these options: {shortened(reason, 200)}. Its sizes "
            "(experts, prompt_length, …) may be too large for this machine."
        ) from error


@cache
def presets(method: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Named sets of options of a method: preset -> section -> options.

    A section is `default`, a benchmark, or both with a pre-training: `split-cifar100@dino1k`,
    `split-cifar100@self-supervised`. Files `METHOD/presets.yaml` name the source of each value.
    """
    file = files("hashprompt.methods") / method.replace("-", "_") / "presets.yaml"
    if not file.is_file():
        return {"default": {}}
    import yaml  # not for names alone

    return {
        preset: {section: options or {} for section, options in (sections or {}).items()}
        for preset, sections in yaml.safe_load(file.read_text()).items()
    }


def default_preset(method: str) -> str:
    """The preset of a method that names none: for most the harness of the Hash paper."""
    return next(name for name in ("recommended", "paper", "default") if name in presets(method))


def preset_options(method: str, preset: str, benchmark: str, backbone: str = "") -> dict[str, Any]:
    """The options of a preset for a benchmark and pre-trained weights.

    A preset can name both: `paper/split-cub200`, `paper/split-cifar100@dino1k`.
    """
    known = presets(method)
    preset, _, named = preset.partition("/")
    if preset not in known:
        if moved_to := MOVED_PRESETS.get((method, preset)):
            raise UserError(f"`{preset}` of {method} is now a method: --method {moved_to}.")
        raise UserError(unknown(f"preset of {method}", preset, known))
    sections = known[preset]
    if named and named not in sections:
        raise UserError(unknown(f"benchmark of preset {preset} of {method}", named, sections))
    benchmark, _, weights = (named or f"{benchmark}@{backbone}").partition("@")
    known_weights = CATALOGUE.get(weights)
    kinds = (known_weights.pretraining if known_weights else "", weights)
    names = ["default", benchmark, *(f"{benchmark}@{kind}" for kind in kinds)]
    return {k: v for name in names for k, v in sections.get(name, {}).items()}
