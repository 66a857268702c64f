"""What is costly to make and cheap to keep: one folder on disk."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from hashprompt.errors import UserError
from hashprompt.storage.files import inside, read_file, write_atomically
from hashprompt.storage.tensor_files import checked_tensor_bytes, checked_tensors

if TYPE_CHECKING:
    from torch import Tensor


def cache_dir() -> Path:
    """`HASHPROMPT_CACHE`, or where this system keeps caches (`~/.cache/hashprompt` on Linux)."""
    chosen = os.environ.get("HASHPROMPT_CACHE")
    return Path(chosen) if chosen else user_cache_path("hashprompt", appauthor=False)


def cached(kind: str, key: str, make: "Callable[[], dict[str, Tensor]]") -> "dict[str, Tensor]":
    """Tensors from the cache, or made now and kept. A damaged file is made anew."""
    from safetensors import SafetensorError

    path = inside(cache_dir(), kind, f"{key}.safetensors")
    try:
        return checked_tensors(path, read_file(path))
    except (OSError, UserError, SafetensorError):
        tensors = make()
    try:
        write_atomically(path, checked_tensor_bytes(tensors))
    except (UserError, SafetensorError) as error:
        warnings.warn(f"{error} It will be made again.", stacklevel=2)
    return tensors
