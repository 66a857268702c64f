"""What is costly to make and cheap to keep: one folder on disk, written atomically."""

import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from hashprompt.data.reading.image_stores import Photos


def cache_dir() -> Path:
    """`HASHPROMPT_CACHE`, or `~/.cache/hashprompt`."""
    chosen = os.environ.get("HASHPROMPT_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "hashprompt"


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


def cached(kind: str, key: str, make: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors from the cache, or made now and kept. A damaged file is made anew."""
    path = cache_dir() / kind / f"{key}.safetensors"
    try:
        # Read, not mapped: a file that another program cuts short must not take us down.
        return load(path.read_bytes())
    except (OSError, SafetensorError):
        tensors = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        save_file({k: v.contiguous() for k, v in tensors.items()}, temporary)
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        warnings.warn(f"Could not keep {path} ({error}); it will be made again.", stacklevel=2)
    return tensors
