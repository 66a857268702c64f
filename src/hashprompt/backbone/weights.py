"""Where the frozen weights come from: the embedded nano, a published name, or a local file."""

from pathlib import Path
from typing import Any

import timm
from timm.models.vision_transformer import VisionTransformer

from hashprompt.backbone.architecture import empty_vit, load_strictly
from hashprompt.backbone.catalogue import (
    CATALOGUE,
    HOW_TO_NAME,
    NANO,
    Checksum,
    brought_file,
    obtain,
)
from hashprompt.backbone.convert import read_weights
from hashprompt.backbone.hub import timm_file
from hashprompt.backbone.names import nano_file
from hashprompt.backbone.preprocessing import (
    STATISTICS,
    LoadedBackbone,
    Preprocessing,
    resize,
    weights_hash,
)
from hashprompt.backbone.vit import Backbone
from hashprompt.errors import UserError


def load_backbone(
    name: str, image_size: int | None = None, may_download: bool = True
) -> LoadedBackbone:
    """Load a frozen ViT by name or file.

    Args:
        name: see ``HOW_TO_NAME``.
        image_size: square input in pixels; the position table is resampled when it differs from
            the size the weights were made for.
        may_download: False for a name that the user did not type but a stored folder holds.
    """
    vit, config = _find(name, may_download)
    native = vit.patch_embed.img_size[0]
    sha = weights_hash(vit)  # before resampling: the hash names the weights, not the input size
    size = resize(vit, image_size)
    mean, std = tuple(config["mean"]), tuple(config["std"])
    preprocessing = Preprocessing(size, mean, std, config.get("interpolation", "bicubic"))
    return LoadedBackbone(name, Backbone(vit), preprocessing, sha, native)


def _find(name: str, may_download: bool) -> tuple[VisionTransformer, dict[str, Any]]:
    """The model, and its preprocessing under the names of timm's configurations."""
    if name == NANO:
        return _from_file(nano_file())
    brought = brought_file(name)
    if brought is not None:
        architecture, file = brought
        return _from_file(file, architecture)
    get = obtain if name in CATALOGUE else timm_file
    path = get(name, may_download)
    checksum = Checksum(path)
    checksum.check()
    found = _from_file(path, name)
    checksum.record()
    return found


def _from_file(path: Path, named: str | None = None) -> tuple[VisionTransformer, dict[str, Any]]:
    """The model of a file.

    Args:
        path: any of ``FILE_TYPES``.
        named: a name of the catalogue or a timm name; None to tell it from the file.
    """
    if not path.is_file():
        raise UserError(f"No weights file at {path}. {HOW_TO_NAME}")
    entry = CATALOGUE.get(named or "")
    architecture = entry.architecture if entry else named
    if architecture is not None and not timm.is_model(architecture):
        raise UserError(f"`{architecture}` is not a timm architecture. {HOW_TO_NAME}")
    weights = read_weights(path)
    vit, config = empty_vit(architecture, weights, path)
    load_strictly(vit, weights, path)
    normalize = entry.normalize if entry else weights.normalize
    if normalize is not None:
        config["mean"], config["std"] = STATISTICS[normalize]
    return vit, config
