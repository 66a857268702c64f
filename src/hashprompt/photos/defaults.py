"""What a person with photos need not decide: backbone, image size, epochs and batch size."""

import math
import os
import time
import warnings
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from hashprompt.backbone.catalogue import FILE_TYPES, NANO, download_folder
from hashprompt.backbone.hub import timm_file
from hashprompt.backbone.names import cached_models
from hashprompt.backbone.preprocessing import LoadedBackbone
from hashprompt.errors import UserError
from hashprompt.photos.learn_job import Effort
from hashprompt.texts import counted, visible

# Steps of training that a learn aims at, and the most epochs; on 60 photos a class at ViT-Ti 75
# steps were enough for prompts to pay (docs/results/photos.md).
STEPS = {"quick": (20, 8), "normal": (80, 20), "best": (240, 60)}
LOOKING = "looking at photos"  # the first step of a learn; the others are its second
FROM_HUB = "vit_small_patch16_224.augreg_in21k"
TRAINING_COST = 2.1  # a training step over a forward pass of the ViT (docs/results/speed.md)


def choose_backbone() -> str:
    """The best backbone that can be had: a file on this machine, the hub, else the toy."""
    local = [*_weight_files(), *_cached_vits()]
    if local:
        # Without a GPU the smallest ViT is the one that learns in minutes.
        pick = max if torch.cuda.is_available() else min
        return pick(local)[1]
    try:
        timm_file(FROM_HUB)
    except UserError:
        warnings.warn(
            "No pretrained vision transformer is here and none can be downloaded, so the embedded "
            "toy `nano` is used: it has only ever seen drawings and will be poor on photos. Bring "
            "a weights file (`--backbone FILE`, or put it into the folder that HASHPROMPT_WEIGHTS "
            "names): see docs/backbones.md.",
            stacklevel=2,
        )
        return NANO
    return FROM_HUB


def _weight_files() -> list[tuple[int, str]]:
    chosen = os.environ.get("HASHPROMPT_WEIGHTS")
    folders = [*([Path(chosen)] if chosen else []), download_folder()]
    found = [p for folder in folders if folder.is_dir() for p in folder.iterdir()]
    return [(p.stat().st_size, str(p.resolve())) for p in found if p.name.endswith(FILE_TYPES)]


def _cached_vits() -> list[tuple[int, str]]:
    import timm

    vits = timm.list_models(module="vision_transformer")
    names = [name for name in cached_models() if name.partition(".")[0] in vits]
    files = []
    for name in names:
        with suppress(UserError):  # something else of it is in the cache
            files.append((timm_file(name, may_download=False).stat().st_size, name))
    return files


def choose_image_size(native: int, patch: int, short_sides: list[int]) -> int:
    """The weights' own size, or half of it where the photos hold no more than that."""
    half = round(native / 2 / patch) * patch
    if short_sides and sorted(short_sides)[len(short_sides) // 2] <= half >= 2 * patch:
        return half
    return native


def choose_training(images: int, effort: Effort) -> dict[str, int]:
    """Batch size and epochs for a number of training photos; 0 epochs train nothing."""
    batch = 64 if images >= 1024 else 32 if images >= 128 else 16
    if effort == "instant":
        return {"batch_size": batch, "epochs": 0}
    steps, most = STEPS[effort]
    per_epoch = math.ceil(images / batch)
    return {"batch_size": batch, "epochs": max(2, min(most, round(steps / per_epoch)))}


@dataclass(frozen=True)
class LearnPlan:
    """What a learn would do, and how long it would take."""

    source: str
    new_classes: list[str]
    known_classes: list[str]
    photos: dict[str, int]  # that are new, by class: for training and held out
    training: int  # photos
    held_out: int
    backbone: str
    image_size: int
    epochs: int
    batch_size: int
    seconds: dict[str, float]  # by phase, from a measured pass of the ViT
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        total = round(sum(self.seconds.values()), 2)
        return {**asdict(self), "first_answer_seconds": self.first_answer, "total_seconds": total}

    @property
    def first_answer(self) -> float:
        """Seconds until the photos were looked at and a version answers."""
        return self.seconds[LOOKING]

    def text(self, doing: str = "Would learn") -> str:
        known, held_out = len(self.known_classes), self.held_out
        new = counted(len(self.new_classes), "new class", "new classes")
        again = f", {counted(known, 'known one', 'known ones')} again" if known else ""
        split = ", ".join(f"{name} {in_words(value)}" for name, value in self.seconds.items())
        how, rest = "no training", ""
        if self.epochs:
            how = f"{self.epochs} epochs in batches of {self.batch_size}"
            rest = f"; all of it takes about {in_words(sum(self.seconds.values()))}: {split}"
        return "\n".join(
            visible(line)
            for line in [
                f"{doing} {self.source}: {new}{again}, from "
                f"{counted(self.training, 'photo', 'photos')}; "
                f"{held_out:,} {'is' if held_out == 1 else 'are'} held out for testing.",
                f"Backbone {self.backbone} at {self.image_size} px, {how}.",
                f"It answers after about {in_words(self.first_answer)}{rest}.",
                *self.notes,
            ]
        )


def in_words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def seconds_per_image(backbone: LoadedBackbone, device: torch.device) -> float:
    """Of a forward pass of the ViT, measured now."""
    model, size = backbone.model.to(device), backbone.preprocessing.image_size
    images = torch.zeros(8, 3, size, size, device=device)
    with torch.no_grad():
        times = []
        for _ in range(4):  # the first pass allocates, and others may be disturbed
            started = time.perf_counter()
            model(images).cpu()
            times.append(time.perf_counter() - started)
    model.passes.clear()
    return min(times) / len(images)


def estimate_seconds(
    seconds_each: float,
    training: int,
    held_out: int,
    earlier: int,
    epochs: int,
    followed: int = 0,
) -> dict[str, float]:
    """Seconds by phase.

    Args:
        seconds_each: of one forward pass of one image.
        training, held_out: photos of this learn.
        earlier: held-out photos of earlier learns.
        epochs: 0 for a look alone.
        followed: views of a photo, by routers of earlier learns, with which old classes follow.
    """
    looks = training * (2 if followed else 1)  # with the prompts that are there, too
    look = {LOOKING: round(seconds_each * (looks + held_out + earlier), 2)}
    if not epochs:
        return look
    return {
        **look,
        "training prompts": round(seconds_each * training * epochs * TRAINING_COST, 2),
        "describing classes": round(seconds_each * training * (1 + 2 * followed), 2),
        "testing": round(seconds_each * (held_out + earlier), 2),
    }
