"""A loaded backbone and its preprocessing."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

from hashprompt.backbone.architecture import HEAD_PREFIXES, MAX_PATCHES
from hashprompt.backbone.plain import MAX_SIDE
from hashprompt.backbone.vit import Backbone
from hashprompt.errors import UserError

# Mean and deviation of each colour, for pixels in [0, 1].
STATISTICS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "cifar": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}


@dataclass(frozen=True)
class Preprocessing:
    """The preprocessing of images for these weights."""

    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str = "bicubic"

    def statistics(self) -> dict[str, Any]:
        """The part that does not depend on the image size, as JSON."""
        return {"mean": list(self.mean), "std": list(self.std), "interpolation": self.interpolation}


@dataclass(frozen=True)
class LoadedBackbone:
    """A backbone with its preprocessing and the hash of its weights."""

    name: str
    model: Backbone
    preprocessing: Preprocessing
    weights_sha256: str


def weights_hash(vit: Any) -> str:
    """SHA-256 over the names and float32 bytes of all weights but the classifier's."""
    digest = hashlib.sha256()
    for key, tensor in sorted(vit.state_dict().items()):
        if not key.startswith(HEAD_PREFIXES):
            digest.update(key.encode())
            digest.update(tensor.float().contiguous().numpy().tobytes())
    return digest.hexdigest()


def resize(vit: Any, image_size: int | None) -> int:
    """Resample the position table for another input size."""
    patch = vit.patch_embed.patch_size[0]
    native = vit.patch_embed.img_size[0]
    if image_size is None or image_size == native:
        return native
    largest = min(MAX_SIDE, patch * math.isqrt(MAX_PATCHES))
    if image_size > largest:
        raise UserError(f"Image size {image_size} is too large; at most {largest} pixels a side.")
    if image_size < patch or image_size % patch:
        near = max(patch, round(image_size / patch) * patch)
        raise UserError(
            f"Image size {image_size} is not a multiple of the patch size {patch}. Try {near}."
        )
    vit.set_input_size(img_size=(image_size, image_size))
    return image_size
