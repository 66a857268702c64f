"""Where the frozen weights come from: the embedded nano, a published name, or a local file."""

import hashlib
import math
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import timm
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models.vision_transformer import VisionTransformer

from hashprompt.backbone.architecture import (
    HEAD_PREFIXES,
    LARGEST,
    MOST_PATCHES,
    empty_vit,
    load_strictly,
)
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
from hashprompt.backbone.vit import Backbone
from hashprompt.errors import UserError

# Mean and deviation of each colour, for pixels in [0, 1].
STATISTICS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "imagenet": (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "cifar": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}


@dataclass(frozen=True)
class Preprocessing:
    """How images must look for these weights."""

    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str = "bicubic"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def statistics(self) -> dict[str, Any]:
        """What belongs to the weights, whatever the image size; as JSON has it."""
        return {
            "mean": list(self.mean),
            "std": list(self.std),
            "interpolation": self.interpolation,
        }


@dataclass(frozen=True)
class LoadedBackbone:
    """A backbone with its preprocessing and the hash that identifies its weights."""

    name: str
    model: Backbone
    preprocessing: Preprocessing
    weights_sha256: str


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
    sha = weights_hash(vit)  # before resampling: the hash names the weights, not the input size
    size = _resize(vit, image_size)
    mean, std = tuple(config["mean"]), tuple(config["std"])
    preprocessing = Preprocessing(size, mean, std, config.get("interpolation", "bicubic"))
    return LoadedBackbone(name, Backbone(vit), preprocessing, sha)


def weights_hash(vit: VisionTransformer) -> str:
    """SHA-256 over the names and float32 bytes of all weights but the classifier's."""
    digest = hashlib.sha256()
    for key, tensor in sorted(vit.state_dict().items()):
        if not key.startswith(HEAD_PREFIXES):
            digest.update(key.encode())
            digest.update(tensor.float().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _nano_file() -> Path:
    return Path(str(files("hashprompt") / "assets" / "nano.safetensors"))


def _find(name: str, may_download: bool) -> tuple[VisionTransformer, dict[str, Any]]:
    """The model, and its preprocessing under the names of timm's configurations."""
    if name == NANO:
        return _from_file(_nano_file())
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


def _resize(vit: VisionTransformer, image_size: int | None) -> int:
    """Resample the position table for another input size."""
    patch = vit.patch_embed.patch_size[0]
    native = vit.patch_embed.img_size[0]
    if image_size is None or image_size == native:
        return native
    largest = min(LARGEST, patch * math.isqrt(MOST_PATCHES))
    if image_size > largest:
        raise UserError(f"Image size {image_size} is too large; at most {largest} pixels a side.")
    if image_size < patch or image_size % patch:
        near = max(patch, round(image_size / patch) * patch)
        raise UserError(
            f"Image size {image_size} is not a multiple of the patch size {patch}. Try {near}."
        )
    vit.set_input_size(img_size=(image_size, image_size))
    return image_size
