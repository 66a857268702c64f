"""Parameters and buffers that grow as tasks arrive, and still save and load by name."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def grow_parameter(module: nn.Module, name: str, rows: Tensor) -> None:
    """Append rows to a parameter; the rows it had keep their values."""
    old = getattr(module, name)
    setattr(module, name, nn.Parameter(torch.cat((old.detach(), rows.to(old)))))


def grow_buffer(module: nn.Module, name: str, rows: Tensor) -> None:
    """Append rows to a buffer."""
    old = getattr(module, name)
    setattr(module, name, torch.cat((old, rows.to(old))))


def load_grown(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load a state whose tensors may have other shapes than the module's have now.

    Raises:
        KeyError: when names are missing or left over.
    """
    wanted = set(module.state_dict())
    if wanted != set(tensors):
        raise KeyError(f"state does not fit: {sorted(wanted ^ set(tensors))[:5]}")
    for name, tensor in tensors.items():
        path, _, leaf = name.rpartition(".")
        owner = module.get_submodule(path)
        held = getattr(owner, leaf)
        value = tensor.to(held.device, held.dtype, copy=True)
        if isinstance(held, nn.Parameter):
            setattr(owner, leaf, nn.Parameter(value, requires_grad=held.requires_grad))
        else:
            setattr(owner, leaf, value)
