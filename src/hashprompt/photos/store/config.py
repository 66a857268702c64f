"""What the first session fixes: backbone and options."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hashprompt.backbone.catalogue import FILE_TYPES
from hashprompt.backbone.preprocessing import LoadedBackbone
from hashprompt.backbone.weights import load_backbone
from hashprompt.data.reading.image_stores import PhotoBatch
from hashprompt.data.streams.stream import Stream, TaskData
from hashprompt.data.transforms.views import Views
from hashprompt.engine.callbacks import Callback
from hashprompt.engine.devices import autocast, launch, single_device
from hashprompt.engine.seeding import seed_everything
from hashprompt.engine.views import views_of
from hashprompt.errors import UserError, shortened
from hashprompt.methods.averaged_prompt.config import AveragedPromptConfig
from hashprompt.methods.averaged_prompt.method import AveragedPrompt
from hashprompt.options import Options, build
from hashprompt.options.run import RunOptions
from hashprompt.photos.options import complete, new_options

if TYPE_CHECKING:
    from hashprompt.engine.trainer import Trainer

# Options that may change: they change no answer, or one session only.
CHANGEABLE = {"epochs", "batch_size", "device", "eval_batch_size", "checkpoint_minutes"}
# Photos are reduced to this share of the ViT's input when they are read: 256 pixels for 224.
READING_MARGIN = 8 / 7


@dataclass(frozen=True)
class ClassifierConfig:
    """What never changes in a classifier: backbone, options and random seed."""

    options: dict[str, Any]  # every option of Averaged prompt and of a run
    seed: int
    backbone: LoadedBackbone

    @classmethod
    def new(
        cls, backbone: LoadedBackbone, options: Mapping[str, Any], seed: int
    ) -> "ClassifierConfig":
        """Choices for a new classifier; what the user sets goes first."""
        size = {"image_size": backbone.preprocessing.image_size}
        return cls(new_options({**size, **options}), seed, backbone)

    @classmethod
    def stored(
        cls,
        folder: Path,
        header: dict[str, Any],
        backbone: str | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> "ClassifierConfig":
        """The choices of a classifier on disk, with its own backbone and no other.

        Args:
            changes: options given now; only those in ``CHANGEABLE`` may differ.
        """
        options = _with_changes(folder, header, changes or {})
        recorded = header["backbone"]
        name = backbone or find_backbone(folder, recorded)
        plain = recorded["plain"]  # with its sizes timm is not imported
        known = plain and {"architecture": plain, **recorded["preprocessing"]}
        loaded = load_backbone(name, recorded["image_size"], backbone is not None, known)
        if loaded.weights_sha256 != recorded["sha256"]:
            raise UserError(
                f"{name} is not the backbone of {folder}: the weights differ. Give the right one, "
                f"`{recorded['name']}`, SHA-256 {recorded['sha256'][:12]}…, as `--backbone`."
            )
        statistics = loaded.preprocessing.statistics()
        if recorded["preprocessing"] != statistics:
            raise UserError(
                f"{name} has the weights of {folder}, but other preprocessing: {statistics}, "
                f"expected {shortened(recorded['preprocessing'], 200)}. Give the file as it was."
            )
        return cls(options, header["seed"], loaded)

    def header(self) -> dict[str, Any]:
        """As `classifier.json` keeps it."""
        backbone = self.backbone
        return {
            "seed": self.seed,
            "options": self.options,
            "backbone": {
                "name": backbone.name,
                "sha256": backbone.weights_sha256,
                "image_size": backbone.preprocessing.image_size,
                "preprocessing": backbone.preprocessing.statistics(),
                "plain": getattr(backbone.model.vit, "sizes", None),
            },
        }

    @cached_property
    def run_options(self) -> RunOptions:
        return build(RunOptions, _part(self.options, RunOptions))

    @cached_property
    def device(self) -> torch.device:
        return single_device(self.run_options)

    @cached_property
    def views(self) -> Views:
        return views_of(self.run_options, self.backbone.preprocessing, photo_stream(()))

    @torch.no_grad()
    def frozen_features(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """(B, D) of images (3, h, w) uint8 of any size."""
        seen = self.views.clean(PhotoBatch(map(torch.from_numpy, images)).to(self.device))
        with autocast(self.run_options, self.device):
            return self.backbone.model(seen).float().cpu().numpy()

    def trainer(
        self,
        training: Mapping[str, Any],
        tasks: tuple[TaskData, ...],
        folder: Path,
        callbacks: Sequence[Callback] = (),
        resume_with: str | None = None,
    ) -> "Trainer":
        """What trains and tests a method that has learned nothing.

        Args:
            training: replaces options for one session.
            tasks: of the method, the last of which is to be learned.
            folder: for checkpoints.
        """
        from hashprompt.engine.trainer import Trainer  # answers do without it

        options = self.run_options
        method, stream, fabric = self.make_method(training), photo_stream(tasks), launch(options)
        own = method, stream, self.backbone, options, fabric, folder, self.seed
        return Trainer(*own, callbacks, resume_with)

    @property
    def short_side(self) -> int:
        """Pixels to which the shorter side of a photo is reduced when it is read."""
        return reading_size(self.backbone)

    def make_method(self, training: Mapping[str, Any] | None = None) -> AveragedPrompt:
        """A method that has learned nothing; `training` replaces options for one session."""
        values = _part({**self.options, **(training or {})}, AveragedPromptConfig)
        seed_everything(self.seed, "method")
        self.backbone.model.to(self.device)
        config = build(AveragedPromptConfig, values)
        return AveragedPrompt(config, self.backbone.model).to(self.device)


def _with_changes(
    folder: Path, header: dict[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Stored options with those given now; refuses to change what the first session fixed."""
    stored: dict[str, Any] = header["options"]
    options = complete({**stored, **changes})
    for name in changes:
        if name not in CHANGEABLE and options[name] != stored[name]:
            raise UserError(
                f"{folder} has {name}={stored[name]}, which its first session fixed; "
                f"{name}={options[name]} needs a new classifier."
            )
    return options


def reading_size(backbone: LoadedBackbone) -> int:
    return round(backbone.preprocessing.image_size * READING_MARGIN)


def _part(values: Mapping[str, Any], group: type[Options]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if k in group.model_fields}


def find_backbone(folder: Path, recorded: Mapping[str, Any]) -> str:
    """The name under which the backbone of a classifier can be loaded on this machine."""
    name: str = recorded["name"]
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
        f"The backbone of {folder} is missing: no file {file}, nor one of that name in the folder "
        "that HASHPROMPT_WEIGHTS names. Give the file as backbone (`--backbone FILE`)."
    )


def photo_stream(tasks: tuple[TaskData, ...]) -> Stream:
    """Photos as a stream."""
    return Stream("photos", "class", tasks, (), (), (), "", flip=True)
