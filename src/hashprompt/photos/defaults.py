"""Choices that a person with photos need not make: backbone, image size, epochs, batch size."""

import math
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from hashprompt.backbone.catalogue import FILE_TYPES, NANO, download_folder
from hashprompt.backbone.hub import timm_file
from hashprompt.backbone.names import cached_models
from hashprompt.backbone.weights import load_backbone
from hashprompt.errors import UserError
from hashprompt.photos.inputs.photo_dataset import PhotoDataset
from hashprompt.photos.session import Effort
from hashprompt.photos.store.config import ClassifierConfig, reading_size

# Training steps that a session aims at, and its most epochs; on 60 photos a class at ViT-Ti 75
# steps were enough for training to pay (docs/results/photos.md).
STEPS = {"quick": (20, 8), "normal": (80, 20), "best": (240, 60)}
FROM_HUB = "vit_small_patch16_224.augreg_in21k"


def choose_backbone() -> str:
    """The best backbone at hand: a file on this machine, the hub, else the toy."""
    local = [*_weight_files(), *_cached_vits()]
    if local:
        # Without a GPU the smallest ViT is the one that learns in minutes.
        pick = max if torch.cuda.is_available() else min
        return pick(local)[1]
    try:
        timm_file(FROM_HUB)
    except UserError:
        warnings.warn(
            "There is no pretrained vision transformer here and none can be downloaded. Using the "
            "embedded toy `nano`, which is poor on photos. Bring a weights file "
            "(`--backbone FILE`, or a file in the folder that HASHPROMPT_WEIGHTS names): see "
            "docs/backbones.md.",
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
    files = []
    for name in (name for name in cached_models() if name.partition(".")[0] in vits):
        with suppress(UserError):  # something else of it is in the cache
            files.append((timm_file(name, may_download=False).stat().st_size, name))
    return files


def choose_image_size(native: int, patch: int, short_sides: list[int]) -> int:
    """The weights' own size, or half of it where the photos hold no more than that."""
    half = round(native / 2 / patch) * patch
    if short_sides and sorted(short_sides)[len(short_sides) // 2] <= half >= 2 * patch:
        return half
    return native


def choose_training(
    images: int, effort: Effort, options: Mapping[str, Any] | None = None
) -> dict[str, int]:
    """Batch size and epochs for a number of training photos; 0 epochs train nothing.

    Args:
        options: what the user set goes first, unless nothing is trained.
    """
    batch = 64 if images >= 1024 else 32 if images >= 128 else 16
    if effort == "instant":
        return {"batch_size": batch, "epochs": 0}
    steps, most = STEPS[effort]
    epochs = max(2, min(most, round(steps / math.ceil(images / batch))))
    chosen = {"batch_size": batch, "epochs": epochs}
    return {k: (options or {}).get(k, v) for k, v in chosen.items()}


def new_config(
    backbone: str | None,
    options: Mapping[str, Any],
    seed: int,
    open_photos: Callable[[int], PhotoDataset],
) -> tuple[PhotoDataset, ClassifierConfig]:
    """The photos and the choices of a first session.

    Args:
        backbone, options, seed: what the user set goes first.
        open_photos: takes the pixels to which the shorter side of a photo is reduced.
    """
    image_size = options.get("image_size")
    loaded = load_backbone(backbone or choose_backbone(), image_size)
    dataset = open_photos(reading_size(loaded))
    if image_size is None:
        native = loaded.preprocessing.image_size
        patch = loaded.model.vit.patch_embed.patch_size[0]
        chosen = choose_image_size(native, patch, [min(size) for size in dataset.images.sizes()])
        if chosen != native:
            loaded = load_backbone(loaded.name, chosen)
    return dataset, ClassifierConfig.new(loaded, options, seed)
