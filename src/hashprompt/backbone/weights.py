"""Loading of frozen weights: the embedded nano, a published name, or a local file."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hashprompt.backbone.architecture import Metadata, build, own_metadata
from hashprompt.backbone.catalogue import CATALOGUE, HOW_TO_NAME, check_unchanged
from hashprompt.backbone.convert import read_weights
from hashprompt.backbone.hub import weights_file
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
        image_size: square input in pixels; the position table is resampled if it differs from the
            size of the weights.
        may_download: False for a name that the user did not type but a stored folder holds.
        recorded: `Metadata` that a classifier stored for these weights; with it timm is not needed.
    """
    named, path = weights_file(name, may_download)
    if not path.is_file():
        raise UserError(f"No weights file at {path}. {HOW_TO_NAME}")
    entry = CATALOGUE.get(named or "")
    weights = read_weights(path)
    metadata = own_metadata(weights, path) if named is None else None
    architecture, built = entry.architecture if entry else named, None
    if recorded is not None and metadata is None:
        with suppress(UserError, ValueError):  # of another file: timm decides, and names the error
            built = build(architecture, weights, path, Metadata(**recorded))
    vit, config = built or build(architecture, weights, path, metadata)
    if named == name:  # downloaded under it
        check_unchanged(path)
    normalize = entry.normalize if entry else weights.normalize
    if normalize is not None:
        config["mean"], config["std"] = STATISTICS[normalize]
    sha = weights_hash(vit)  # before resampling: the hash names the weights, not the input size
    preprocessing = Preprocessing(
        resize(vit, image_size),
        tuple(config["mean"]),
        tuple(config["std"]),
        config.get("interpolation", "bicubic"),
    )
    return LoadedBackbone(name, Backbone(vit), preprocessing, sha)
