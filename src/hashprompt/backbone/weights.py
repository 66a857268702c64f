"""Where the frozen weights come from: the embedded nano, a local file or a timm hub name."""

import difflib
import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor

from hashprompt.backbone.vit import Backbone
from hashprompt.errors import UserError

NANO = "nano"
FILE_TYPES = (".safetensors", ".pth", ".pt", ".npz")
HOW_TO_NAME = (
    "Give `nano`, a timm name such as `vit_base_patch16_224.augreg_in21k`, a weights file "
    f"({', '.join(FILE_TYPES)}), or `ARCHITECTURE@FILE`, e.g. `vit_tiny_patch16_224@tiny.pth`."
)
# Tensors that a frozen feature extractor does without.
HEAD_PREFIXES = ("head.", "head_dist.", "fc_norm.", "pre_logits.", "mask_token")


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
    if name == NANO:
        vit, config = _from_file(_nano_file(), None)
    elif "@" in name or Path(name).suffix in FILE_TYPES:
        architecture, _, file = name.rpartition("@")
        vit, config = _from_file(Path(file), architecture or None)
    else:
        vit, config = _from_hub(name)
    sha = weights_hash(vit)  # before resampling: the hash names the weights, not the input size
    size = _resize(vit, image_size)
    preprocessing = Preprocessing(
        size, tuple(config["mean"]), tuple(config["std"]), config.get("interpolation", "bicubic")
    )
    return LoadedBackbone(name, Backbone(vit), preprocessing, sha)


def available_backbones() -> dict[str, str]:
    """Backbones by name, with a sentence each, for listings."""
    return {
        NANO: "embedded: 6 blocks, width 128, 32 px, pretrained on drawings; a toy, no download",
        "TIMM_NAME": "any timm ViT with a class token, downloaded from its hub on first use",
        "FILE": "a local .safetensors, .pth or .npz file; architecture from the file or ARCH@FILE",
    }


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


def _from_hub(name: str) -> tuple[VisionTransformer, dict[str, Any]]:
    base = name.removeprefix("hf-hub:")
    if base == name and not timm.is_model(name):
        names = [NANO, *timm.list_models(module="vision_transformer")]
        close = difflib.get_close_matches(name, names, n=4, cutoff=0.5)
        hint = f" Did you mean {', '.join(f'`{n}`' for n in close)}?" if close else ""
        raise UserError(f"Unknown backbone `{name}`. {HOW_TO_NAME}{hint}")
    try:
        vit = _create(name, pretrained=True)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise UserError(
            f"Could not get the weights of `{name}`: {reason}. With a connection they come from "
            "the hub; without one, put the file on this machine and pass "
            f"`{base.split('.')[0]}@FILE`."
        ) from error
    return vit, dict(vit.pretrained_cfg)


def _create(name: str, pretrained: bool = False) -> Any:
    """A timm model without classifier (whose attributes timm does not type)."""
    return timm.create_model(name, pretrained=pretrained, num_classes=0)


def _from_file(path: Path, architecture: str | None) -> tuple[VisionTransformer, dict[str, Any]]:
    if not path.is_file():
        raise UserError(f"No weights file at {path}. {HOW_TO_NAME}")
    if architecture is not None and not timm.is_model(architecture):
        raise UserError(f"`{architecture}` is not a timm architecture. {HOW_TO_NAME}")
    if path.suffix == ".npz":
        return _from_npz(path, architecture)
    state, metadata = _read_state(path)
    vit, config = _build(architecture, metadata, state, path)
    _load_strictly(vit, state, path)
    return vit, config


def _from_npz(path: Path, architecture: str | None) -> tuple[VisionTransformer, dict[str, Any]]:
    """Google's original format, which timm reads; it never holds the architecture's name."""
    if architecture is None:
        raise UserError(f"An .npz file does not name its architecture. Pass ARCHITECTURE@{path}.")
    vit = _create(architecture)
    try:
        with np.load(path, allow_pickle=False) as stored:
            if "cls" not in stored:
                raise KeyError("cls")
        vit.load_pretrained(str(path))
    except Exception as error:  # timm's reader fails in many ways on another architecture's file
        raise UserError(
            f"{path} does not hold weights of `{architecture}` in Google's ViT format "
            f"({type(error).__name__}: {error})."
        ) from error
    return vit, dict(vit.pretrained_cfg)


def _read_state(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as handle:
                metadata = handle.metadata() or {}
            return load_file(path), metadata
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise UserError(_damaged(path, error)) from error
    except Exception as error:  # the unpickler raises its own type for unsafe content
        raise UserError(_damaged(path, error)) from error
    for key in ("model", "state_dict"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(
        isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items()
    ):
        raise UserError(f"{path} is not a file of weights: expected a table of named tensors.")
    return state, {}


def _damaged(path: Path, error: Exception) -> str:
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return (
        f"{path} cannot be read as weights ({first}). It may be truncated, not a weights file, or "
        "hold pickled code, which is never loaded. Get it again or convert it to safetensors."
    )


def _build(
    architecture: str | None, metadata: dict[str, str], state: dict[str, Tensor], path: Path
) -> tuple[VisionTransformer, dict[str, Any]]:
    """An empty model for the file, from what the user said, the file says, or its shapes."""
    if architecture is None and "architecture" in metadata:
        with suppress(ValueError, TypeError, KeyError):  # another program's idea of that field
            vit = VisionTransformer(**json.loads(metadata["architecture"]), num_classes=0)
            return vit, {key: json.loads(metadata[key]) for key in ("mean", "std")}
    name = architecture or metadata.get("arch", "").removeprefix("timm ").strip()
    if not name or not timm.is_model(name):
        name = _architecture_of(state, path)
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
        f"Cannot tell the architecture of {path} from its tensors. Pass ARCHITECTURE@{path}, e.g. "
        f"vit_tiny_patch16_224@{path.name}."
    )


def _load_strictly(vit: VisionTransformer, state: dict[str, Tensor], path: Path) -> None:
    state = {k: v for k, v in state.items() if not k.startswith(HEAD_PREFIXES)}
    try:
        state = {k: v.float() for k, v in checkpoint_filter_fn(state, vit).items()}
        result = vit.load_state_dict(state, strict=False)
    except (RuntimeError, KeyError, AttributeError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        raise UserError(
            f"{path} holds the weights of another architecture: {'; '.join(lines[1:4] or lines)}. "
            "Name the right one as ARCHITECTURE@FILE."
        ) from error
    missing, unexpected = result.missing_keys, result.unexpected_keys
    if missing or unexpected:
        raise UserError(
            f"{path} does not fit: {len(missing)} tensors missing ({', '.join(missing[:3])}…), "
            f"{len(unexpected)} unexpected ({', '.join(unexpected[:3])}…). Name the right "
            "architecture as ARCHITECTURE@FILE."
        )


def _resize(vit: VisionTransformer, image_size: int | None) -> int:
    """Resample the position table for another input size."""
    patch = vit.patch_embed.patch_size[0]
    native = vit.patch_embed.img_size[0]
    if image_size is None or image_size == native:
        return native
    if image_size < patch or image_size % patch:
        near = max(patch, round(image_size / patch) * patch)
        raise UserError(
            f"Image size {image_size} is not a multiple of the patch size {patch}. Try {near}."
        )
    vit.set_input_size(img_size=(image_size, image_size))
    return image_size
