"""Where the frozen weights come from: the embedded nano, a published name, or a local file."""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import timm
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor

from hashprompt.backbone.catalogue import (
    CATALOGUE,
    HOW_TO_NAME,
    NANO,
    Checksum,
    brought_file,
    obtain,
)
from hashprompt.backbone.convert import Weights, read_weights
from hashprompt.backbone.hub import timm_file
from hashprompt.backbone.vit import Backbone
from hashprompt.errors import UserError

LARGEST = 2048  # pixels a side: 16,000 patches of 16
# Tensors that a frozen feature extractor does without.
HEAD_PREFIXES = ("head.", "head_dist.", "fc_norm.", "pre_logits", "mask_token", "masked_embed")

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


@dataclass(frozen=True)
class LoadedBackbone:
    """A backbone with its preprocessing and the hash that identifies its weights."""

    name: str
    model: Backbone
    preprocessing: Preprocessing
    weights_sha256: str


def load_backbone(name: str, image_size: int | None = None) -> LoadedBackbone:
    """Load a frozen ViT by name or file.

    Args:
        name: see ``HOW_TO_NAME``.
        image_size: square input in pixels; the position table is resampled when it differs from
            the size the weights were made for.
    """
    vit, config = _find(name)
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


def _find(name: str) -> tuple[VisionTransformer, dict[str, Any]]:
    """The model, and its preprocessing under the names of timm's configurations."""
    if name == NANO:
        return _from_file(_nano_file())
    brought = brought_file(name)
    if brought is not None:
        architecture, file = brought
        return _from_file(file, architecture)
    path = obtain(name) if name in CATALOGUE else timm_file(name)
    checksum = Checksum(path)
    checksum.check()
    found = _from_file(path, name)
    checksum.record()
    return found


def _create(name: str) -> Any:
    """An empty timm model without classifier (whose attributes timm does not type)."""
    return timm.create_model(name, num_classes=0)


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
    vit, config = _build(architecture, weights, path)
    load_strictly(vit, weights, path)
    normalize = entry.normalize if entry else weights.normalize
    if normalize is not None:
        config["mean"], config["std"] = STATISTICS[normalize]
    return vit, config


def _build(
    architecture: str | None, weights: Weights, path: Path
) -> tuple[VisionTransformer, dict[str, Any]]:
    """An empty model for the file, from what the user said, the file says, or its shapes."""
    metadata = weights.metadata
    if architecture is None and "architecture" in metadata:
        with suppress(ValueError, TypeError, KeyError):  # another program's idea of that field
            vit = VisionTransformer(**json.loads(metadata["architecture"]), num_classes=0)
            return vit, {key: json.loads(metadata[key]) for key in ("mean", "std")}
    name = architecture or metadata.get("arch", "").removeprefix("timm ").strip()
    if not name or not timm.is_model(name):
        name = _architecture_of(weights.state, path)
    vit = _create(name)
    return vit, dict(vit.pretrained_cfg)


def _architecture_of(state: dict[str, Tensor], path: Path) -> str:
    """The plain ViT whose width, depth and patch fit the file."""
    widths = {192: "tiny", 384: "small", 768: "base", 1024: "large", 1280: "huge"}
    kernel = state.get("patch_embed.proj.weight")
    if kernel is not None and kernel.ndim == 4:
        kind = "_dinov2" if "blocks.0.ls1.gamma" in state and kernel.shape[-1] == 14 else "_224"
        name = f"vit_{widths.get(kernel.shape[0])}_patch{kernel.shape[-1]}{kind}"
        if timm.is_model(name):
            return name
    raise UserError(
        f"Cannot tell the architecture of {path}: it does not name its architecture, and its "
        f"tensors do not show it. Pass ARCHITECTURE@{path}, e.g. vit_tiny_patch16_224@{path.name}."
    )


def load_strictly(vit: VisionTransformer, weights: Weights, path: Path) -> None:
    """Fill a model; every tensor but the classifier's must be in the file, and nothing else."""
    try:
        state = {k: v.float() for k, v in checkpoint_filter_fn(dict(weights.state), vit).items()}
        state = {k: v for k, v in state.items() if not k.startswith(HEAD_PREFIXES)}
        result = vit.load_state_dict(state, strict=False)
    except (RuntimeError, KeyError, AttributeError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        raise UserError(
            f"{path} holds the weights of another architecture: {'; '.join(lines[1:4] or lines)}. "
            "Name the right one as ARCHITECTURE@FILE."
        ) from error
    missing = [k for k in result.missing_keys if not k.startswith(HEAD_PREFIXES)]
    unexpected = [*result.unexpected_keys, *weights.unexpected]
    if missing or unexpected:
        raise UserError(
            f"{path} does not hold weights of {_title(vit)}: {len(missing)} tensors missing"
            f"{_some(missing)}, {len(unexpected)} unexpected{_some(unexpected)}. Name the right "
            "architecture as ARCHITECTURE@FILE."
        )


def _title(vit: VisionTransformer) -> str:
    config = getattr(vit, "pretrained_cfg", None)
    return f"`{config['architecture']}`" if config else "the architecture it names"


def _some(names: list[str]) -> str:
    """The names in brackets, the first twenty of a long list."""
    more = [f"and {len(names) - 20} more"] if len(names) > 20 else []
    return f" ({', '.join([*names[:20], *more])})" if names else ""


def _resize(vit: VisionTransformer, image_size: int | None) -> int:
    """Resample the position table for another input size."""
    patch = vit.patch_embed.patch_size[0]
    native = vit.patch_embed.img_size[0]
    if image_size is None or image_size == native:
        return native
    if image_size > LARGEST:
        raise UserError(f"Image size {image_size} is too large; at most {LARGEST} pixels a side.")
    if image_size < patch or image_size % patch:
        near = max(patch, round(image_size / patch) * patch)
        raise UserError(
            f"Image size {image_size} is not a multiple of the patch size {patch}. Try {near}."
        )
    vit.set_input_size(img_size=(image_size, image_size))
    return image_size
