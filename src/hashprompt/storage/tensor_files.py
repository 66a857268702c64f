"""Tensors as the content of safetensors files.

Nothing here imports torch before tensors are read or written.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hashprompt.errors import UserError, shortened
from hashprompt.storage.files import memory_budget, open_file
from hashprompt.storage.json_files import DamagedError

if TYPE_CHECKING:
    from torch import Tensor


# Each tensor takes a kilobyte of memory, also if it is empty. Models of ours have up to 10,000.
MAX_HEADER = 4_000_000  # bytes


def tensor_bytes(tensors: Mapping[str, "Tensor"]) -> bytes:
    """Tensors of any device as the content of a safetensors file."""
    from safetensors.torch import save

    return save({k: v.detach().cpu().contiguous() for k, v in tensors.items()})


def bytes_to_tensors(path: Path, content: bytes) -> "dict[str, Tensor]":
    """The tensors of a safetensors file that was read, not mapped.

    A mapped file that another program truncates would end the process.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        _check_header(content[:8])
        return load(content)
    except (SafetensorError, KeyError, ValueError) as error:  # KeyError: a kind torch lacks
        raise DamagedError(path, f"it holds no tensors: {shortened(error, 100)}") from error


def map_tensor_file(path: Path) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Tensors and metadata of a mapped safetensors file, for weights, which are copied at once.

    Raises:
        OSError, ValueError, SafetensorError: for any other file.
    """
    from safetensors import safe_open

    with open_file(path, memory_budget()) as file:  # a regular file, and not too large
        _check_header(file.read(8))
    with safe_open(path, "pt") as handle:
        names = handle.keys()
        return {name: handle.get_tensor(name) for name in names}, handle.metadata() or {}


def _check_header(start: bytes) -> None:
    size = int.from_bytes(start, "little")
    if size > MAX_HEADER:
        raise ValueError(f"its header would have {size / 1e6:,.1f} MB")


def read_checkpoint(path: Path, harmless: list[Any]) -> Any:
    """The content of a file of `torch.save`, without running code.

    Args:
        harmless: classes and functions that it may contain in addition to tensors.

    Raises:
        UserError: if it is compressed.
        Exception: of many kinds, for any other file.
    """
    import torch
    from torch.serialization import safe_globals

    with open_file(path, memory_budget()) as file:
        members = []
        if zipfile.is_zipfile(file):  # else torch's older format
            with zipfile.ZipFile(file) as packed:
                members = packed.infolist()
    size, total = path.stat().st_size, sum(member.file_size for member in members)
    # `torch.save` does not compress.
    if total > size or any(m.compress_type != zipfile.ZIP_STORED for m in members):
        raise UserError(f"{path}: {size / 1e6:,.1f} MB would take {total / 1e6:,.0f} MB unpacked.")
    with safe_globals(harmless):
        return torch.load(path, map_location="cpu", weights_only=True)
