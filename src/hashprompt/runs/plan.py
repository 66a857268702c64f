"""The plan of a run: names checked, presets and options resolved.

Nothing here imports torch, so that a bad name or option is refused at once.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from hashprompt.backbone.names import with_full_file
from hashprompt.data.streams.names import DEMO, EMBEDDED, with_full_path
from hashprompt.errors import UserError
from hashprompt.methods.config import MethodConfig
from hashprompt.methods.registry import default_preset, find_method, preset_options
from hashprompt.options import Options, build, split_options
from hashprompt.options.run import RunOptions
from hashprompt.options.stream import StreamOptions
from hashprompt.runs.run_dir import RunConfig
from hashprompt.storage.files import inside
from hashprompt.storage.json_files import DamagedError, read_json

# Options that change no result: where and how fast a run computes, and the place of its images.
NEUTRAL = frozenset({"data_root", "memory_gb", "device", "devices", "checkpoint_minutes"})
ADVICE = "Restore the file, or start a new run with `hashprompt run --set NAME=VALUE`."


class RunNames(Options):
    """Names and seed of a run."""

    method: str
    stream: str
    backbone: str
    preset: str | None
    seed: int = Field(ge=-(2**63), lt=2**63)

    @field_validator("stream", "backbone")
    @classmethod
    def _can_be_a_path(cls, value: str) -> str:
        if any(len(part.encode(errors="replace")) > 255 for part in Path(value).parts):
            raise ValueError("too long for a name or a file")  # the system raises an error
        return value


@dataclass(frozen=True)
class Plan:
    """A fully resolved run, independent of presets and defaults."""

    method: str
    preset: str
    stream: str
    backbone: str
    seed: int
    method_config: MethodConfig
    stream_options: StreamOptions
    run_options: RunOptions

    def options(self) -> dict[str, Any]:
        groups = (self.method_config, self.stream_options, self.run_options)
        return {k: v for group in groups for k, v in group.model_dump(mode="json").items()}

    def to_dict(self) -> dict[str, Any]:
        names = ("method", "preset", "stream", "backbone", "seed")
        return {**{n: getattr(self, n) for n in names}, "options": self.options()}

    def identity(self) -> dict[str, Any]:
        """Everything that decides the results, independent of the machine and of later versions.

        Files are named without their folders. Options with their default are omitted, so that an
        option that is added later does not change the identity.
        """
        groups = (self.method_config, self.stream_options, self.run_options)
        set_here = {
            name
            for group in groups
            for name, field in type(group).model_fields.items()
            if getattr(group, name) != field.get_default(call_default_factory=True)
        }
        options = {k: v for k, v in self.options().items() if k in set_here - NEUTRAL}
        return {**without_folders(self.to_dict()), "options": options}

    @property
    def digest(self) -> str:
        """Digest of the identity: 16 hexadecimal digits."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def without_folders(names: Mapping[str, Any]) -> dict[str, Any]:
    """The names of a plan, with files and folders without their parents: `npz:cifar.npz`."""

    def base_name(name: str) -> str:
        prefix, mark, place = name.rpartition(":" if ":" in name else "@")
        return name if prefix == "hf" else f"{prefix}{mark}{Path(place).name}"

    return {**names, **{kind: base_name(names[kind]) for kind in ("stream", "backbone")}}


def make_plan(
    method: str = "hash",
    stream: str = DEMO,
    backbone: str = "nano",
    seed: int = 0,
    preset: str | None = None,
    options: Mapping[str, Any] | None = None,
    files_needed: bool = True,
) -> Plan:
    """Resolve options: defaults, then the preset for this stream, then the user's.

    Args:
        files_needed: refuse missing weights; without them the plan serves only for its digest.
    """
    given = {"method": method, "stream": stream, "backbone": backbone, "preset": preset}
    seed = build(RunNames, {**given, "seed": seed}).seed  # a YAML file may hold anything
    config = find_method(method).config
    preset = preset or default_preset(method)
    # Other splits of the same images share presets.
    about = "embedded" if stream in EMBEDDED else stream.removesuffix("-lamda")
    chosen = {**preset_options(method, preset, about, backbone), **(options or {})}
    of_method, of_stream, of_run = split_options(chosen, config, StreamOptions, RunOptions)
    weights = with_full_file(backbone) if files_needed else backbone
    names = (method, preset, with_full_path(stream), weights, seed)
    groups = (build(config, of_method), build(StreamOptions, of_stream), build(RunOptions, of_run))
    return Plan(*names, *groups)


def stored_plan(
    folder: Path, changes: Mapping[str, Any] | None = None, instead: Plan | None = None
) -> tuple[Plan, dict[str, Any]]:
    """The plan of a run directory, and the protocol it started with.

    Args:
        changes: replace stored options.
        instead: replaces the stored plan, if files or devices have moved.
    """
    path = inside(folder, "config.json")
    try:
        stored = read_json(path, RunConfig, ADVICE)
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not a run directory: no config.json in it.") from error
    except DamagedError as error:
        raise UserError(f"{folder} is not a run directory, or was changed: {error}") from error
    given = stored if instead is None else instead.to_dict()
    options = {**given["options"], **(changes or {})}
    return plan_of({**given, "options": options}), stored["protocol"]


def plan_of(stored: Mapping[str, Any], files_needed: bool = True) -> Plan:
    """The plan from `to_dict`, which has all options: the preset is only a name."""
    values = {k: stored[k] for k in ("method", "stream", "backbone", "seed", "options")}
    return replace(make_plan(**values, files_needed=files_needed), preset=stored["preset"])
