"""Where the frozen weights come from: the embedded nano, a published name, or a local file."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hashprompt.backbone.architecture import Metadata, build, own_metadata
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
    name: str,
    image_size: int | None = None,
    may_download: bool = True,
    recorded: Mapping[str, Any] | None = None,
) -> LoadedBackbone:
    """Load a frozen ViT by name or file.

    Args:
        name: see ``HOW_TO_NAME``.
        image_size: square input in pixels; the position table is resampled when it differs from
            the size the weights were made for.
        may_download: False for a name that the user did not type but a stored folder holds.
        recorded: `LoadedBackbone.describe` of the same weights, which saves asking timm.
    """
    if recorded is not None:
        with suppress(UserError, ValueError):  # of another file: timm decides, and names the fault
            told = Metadata(**recorded)
            return _load(name, _file(name, may_download), image_size, told)
    return _load(name, _file(name, may_download), image_size, None)


def _file(name: str, may_download: bool) -> Path:
    if name == NANO:
        return nano_file()
    brought = brought_file(name)
    if brought is not None:
        return brought[1]
    return (obtain if name in CATALOGUE else timm_file)(name, may_download)


def _load(name: str, path: Path, image_size: int | None, told: Metadata | None) -> LoadedBackbone:
    if not path.is_file():
        raise UserError(f"No weights file at {path}. {HOW_TO_NAME}")
    brought = brought_file(name)
    named = brought[0] if brought else None if name == NANO else name
    entry = CATALOGUE.get(named or "")
    checksum = Checksum(path)
    if named == name:  # downloaded under it
        checksum.check()
    weights = read_weights(path)
    if named is None:
        told = own_metadata(weights, path) or told
    vit, config = build(entry.architecture if entry else named, weights, path, told)
    if named == name:
        checksum.record()
    normalize = entry.normalize if entry else weights.normalize
    if normalize is not None:
        config["mean"], config["std"] = STATISTICS[normalize]
    native = vit.patch_embed.img_size[0]
    sha = weights_hash(vit)  # before resampling: the hash names the weights, not the input size
    preprocessing = Preprocessing(
        resize(vit, image_size),
        tuple(config["mean"]),
        tuple(config["std"]),
        config.get("interpolation", "bicubic"),
    )
    return LoadedBackbone(name, Backbone(vit), preprocessing, sha, native)
