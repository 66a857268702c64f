"""A classifier's fixed choices, and one of its versions ready to answer."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hashprompt.backbone.catalogue import CATALOGUE, NANO, brought_file, obtain
from hashprompt.backbone.convert import FILE_TYPES
from hashprompt.backbone.hub import timm_file
from hashprompt.backbone.weights import LoadedBackbone, load_backbone
from hashprompt.classifier.calibration import Strangeness, share_below
from hashprompt.data.reading.image_stores import PhotoBatch
from hashprompt.data.streams.stream import Stream
from hashprompt.engine.devices import autocast, single_device
from hashprompt.engine.seeding import seed_everything
from hashprompt.engine.settings import RunOptions
from hashprompt.errors import UserError
from hashprompt.methods.base import find_method, preset_options, presets
from hashprompt.methods.pipeline import HeadsConfig, Pipeline
from hashprompt.options import Options, build, split_options
from hashprompt.parts.growing import load_grown

# Options that may be others each time: they change no answer, or one learn only.
FREE = {"epochs", "batch_size", "device", "eval_batch_size", "checkpoint_minutes"}
# Photos are reduced to this share of the ViT's input when they are read: 256 pixels for 224.
READ_AT = 8 / 7


@dataclass(frozen=True)
class Setup:
    """What never changes in a classifier's life: backbone, method, options."""

    method_name: str
    options: dict[str, Any]  # every option of the method and the run
    seed: int
    backbone: LoadedBackbone

    @classmethod
    def new(
        cls, backbone: LoadedBackbone, method: str, options: Mapping[str, Any], seed: int
    ) -> "Setup":
        """Choices for a new classifier; what the user says goes first."""
        config_type = find_method(method)[1]
        if not issubclass(config_type, HeadsConfig):
            known = "`hash`, `hide`, `norga` and `gaussian-head`"
            raise UserError(
                f"`{method}` keeps no Gaussians of classes, which a classifier needs. Use {known}."
            )
        chosen = {
            "tii": "discriminant",
            "align": "discriminant",
            **preset_options(method, "photos" if "photos" in presets(method) else "paper", ""),
            "image_size": backbone.preprocessing.image_size,
            **options,
        }
        own, rest = split_options(chosen, config_type, RunOptions)
        groups = (build(config_type, own), build(RunOptions, rest))
        if groups[1].devices > 1:
            raise UserError("A classifier learns on one device: leave out `devices`.")
        full = {k: v for group in groups for k, v in group.model_dump(mode="json").items()}
        return cls(method, full, seed, backbone)

    @classmethod
    def stored(
        cls,
        folder: Path,
        header: dict[str, Any],
        backbone: str | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> "Setup":
        """The choices of a classifier on disk, with its own backbone and no other.

        Args:
            changes: options the user gives today; only those in ``FREE`` may differ.
        """
        options = _with_changes(folder, header, changes or {})
        about = header["backbone"]
        name = backbone or find_backbone(folder, about)
        loaded = load_backbone(name, about["image_size"])
        if loaded.weights_sha256 != about["sha256"]:
            raise UserError(
                f"{name} is not the backbone that {folder} was taught with: the weights differ "
                f"(SHA-256 {loaded.weights_sha256[:12]}…, expected {about['sha256'][:12]}…). Give "
                f"the right one, `{about['name']}`, as backbone (`--backbone`)."
            )
        return cls(header["method"], options, header["seed"], loaded)

    def header(self) -> dict[str, Any]:
        """As `classifier.json` keeps it."""
        backbone = self.backbone
        return {
            "method": self.method_name,
            "seed": self.seed,
            "options": self.options,
            "backbone": {
                "name": backbone.name,
                "sha256": backbone.weights_sha256,
                "image_size": backbone.preprocessing.image_size,
            },
        }

    @cached_property
    def run_options(self) -> RunOptions:
        return build(RunOptions, _part(self.options, RunOptions))

    @cached_property
    def device(self) -> torch.device:
        return single_device(self.run_options)

    @property
    def short_side(self) -> int:
        """Pixels to which the shorter side of a photo is reduced when it is read."""
        return reading_size(self.backbone)

    def make_method(self, training: Mapping[str, Any] | None = None) -> Pipeline:
        """An empty learner; `training` replaces options for one learn."""
        method_type, config_type = find_method(self.method_name)
        values = _part({**self.options, **(training or {})}, config_type)
        seed_everything(self.seed, "method")
        self.backbone.model.to(self.device)
        method = method_type(build(config_type, values), self.backbone.model)
        assert isinstance(method, Pipeline)
        return method.to(self.device)


def _with_changes(
    folder: Path, header: dict[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Stored options with today's; refuses to change what the first learn has fixed."""
    stored: dict[str, Any] = header["options"]
    groups: tuple[type[Options], ...] = (find_method(header["method"])[1], RunOptions)
    parts = split_options({**stored, **changes}, *groups)
    given = [build(g, p).model_dump(mode="json") for g, p in zip(groups, parts, strict=True)]
    options = {k: v for part in given for k, v in part.items()}
    for name in changes:
        if name not in FREE and options[name] != stored[name]:
            raise UserError(
                f"{folder} was taught with {name}={stored[name]}, which its first learn fixed; "
                f"{name}={options[name]} needs a new classifier."
            )
    return options


def reading_size(backbone: LoadedBackbone) -> int:
    return round(backbone.preprocessing.image_size * READ_AT)


def _part(values: Mapping[str, Any], group: type[Options]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if k in group.model_fields}


def weights_file(name: str) -> tuple[str | None, Path] | None:
    """What the architecture of a backbone is called, and its file; None for the embedded one."""
    if name == NANO:
        return None
    brought = brought_file(name)
    if brought is not None:
        return brought
    return name, obtain(name) if name in CATALOGUE else timm_file(name)


def find_backbone(folder: Path, about: Mapping[str, Any]) -> str:
    """The name under which the backbone of a classifier can be loaded on this machine."""
    name: str = about["name"]
    prefix = f"{name.partition('@')[0]}@" if "@" in name or not name.endswith(FILE_TYPES) else ""
    inside = next((p for p in folder.glob("backbone.*") if p.name.endswith(FILE_TYPES)), None)
    if inside is not None:  # exported with its backbone
        return f"{prefix}{inside}"
    file = Path(name.rpartition("@")[2])
    if not name.endswith(FILE_TYPES) or file.is_file():
        return name
    elsewhere = Path(os.environ.get("HASHPROMPT_WEIGHTS", ".")) / file.name
    if elsewhere.is_file():
        return f"{prefix}{elsewhere}"
    raise UserError(
        f"The backbone of {folder} is not here: no file {file}, and none of that name in the "
        "folder that HASHPROMPT_WEIGHTS names. Give the file as backbone (`--backbone FILE`), or "
        "export the classifier with its backbone."
    )


class Said(NamedTuple):
    """What a version says of B images."""

    logits: Tensor  # (B, C)
    strange: Tensor  # (B,)
    distances: Tensor  # (B, M) to the cells


class Learner:
    """One version, ready to answer. It is only read, so threads may share it."""

    def __init__(self, setup: Setup, info: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.setup, self.info = setup, info
        self.method = setup.make_method()
        try:
            load_grown(self.method, tensors)
        except KeyError as error:
            raise UserError(
                f"The stored learner does not fit its options: {error}. Was it made by another "
                "version of hashprompt?"
            ) from error
        self.method.eval()
        self.views = setup.run_options.views(setup.backbone.preprocessing, photo_stream(()))
        self.strangeness = Strangeness(self.method)
        self.cells = list(zip(*(t.tolist() for t in self._cells()), strict=True))

    def _cells(self) -> tuple[Tensor, Tensor]:
        return self.method.cells.task, self.method.cells.label

    @torch.no_grad()
    def ask(self, photos: PhotoBatch) -> Said:
        """Answers for images of any size; every image is answered as if it were alone."""
        device = self.setup.device
        images = self.views.clean(photos.to(device))
        with autocast(self.setup.run_options, device):
            plain = self.setup.backbone.model(images)
            prediction = self.method.predict(images, plain)
        strange, distances = self.strangeness.of(plain.float())
        return Said(prediction.logits.float().cpu(), strange.cpu(), distances.cpu())

    def unknown(self, strange: Tensor) -> Tensor:
        """Share of held-out photos that were less strange, (B,)."""
        return share_below(strange, self.info["distances"])

    def probabilities(self, logits: Tensor) -> Tensor:
        """(B, C) calibrated."""
        return (logits.double() / self.info["temperature"]).softmax(1)


def photo_stream(tasks: tuple) -> Stream:
    """Photos as a stream: nothing else about them decides a number."""
    return Stream("photos", "class", tasks, (), (), (), "", flip=True)
