"""What tensors and photos hold, as SHA-256."""

import hashlib

from torch import Tensor

from hashprompt.data.reading.image_stores import Photos


def tensor_hash(*parts: Tensor | Photos | str) -> str:
    """SHA-256 over the bytes of tensors, photos and texts."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Photos):
            digest.update(part.content_hash().encode())
        elif isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
            digest.update(part.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
