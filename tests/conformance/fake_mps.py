"""A stand-in for Apple's GPU: tensors that say they are on `mps` and cannot hold float64.

The numbers live on the CPU. What a real one refuses is refused: float64 in any form, work that
mixes its tensors with those of the CPU, and reading memory without copying it first.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

aten = torch.ops.aten
MPS = torch.device("mps:0")  # with its index, or torch would ask its own MPS for one
# Not on MPS in the oldest torch that we support, unless the user sets PYTORCH_ENABLE_MPS_FALLBACK.
MISSING = (aten._linalg_eigh, aten.linalg_qr, aten.linalg_ldl_factor_ex, aten._linalg_eigvals)


class MpsTensor(Tensor):
    """A tensor of the stand-in, with its numbers in `held`."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "MpsTensor":
        if held.dtype == torch.float64:
            raise TypeError("MPS has no float64.")
        made = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device("meta"),  # what torch sees below Python: no kernel of MPS is there
        )
        made.held = held
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return MPS

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        return False

    @property
    def data(self) -> Tensor:  # type: ignore[override]
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        self.held = value.held  # type: ignore[attr-defined]  # torch would change the shell alone

    def __repr__(self) -> str:  # type: ignore[override]
        return f"MpsTensor({self.held})"

    def tolist(self) -> Any:
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, *_: Any) -> Any:
        raise AssertionError("use it inside fake_mps()")


@contextmanager
def fake_mps() -> Iterator[None]:
    """While this is on, the device `MPS` is there."""
    with Lists(), Operations():
        yield


class Lists(TorchFunctionMode):
    """Lists become tensors on the CPU first: what torch does with them has no operation."""

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = dict(kwargs or {})
        if function in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[1], list):
            args = (args[0], torch.tensor(args[1]), *args[2:])
        if function not in (torch.tensor, torch.as_tensor):
            return function(*args, **kwargs)
        device = kwargs.pop("device", None)
        made = function(*args, **kwargs)
        return made if device is None else made.to(device)


class Operations(TorchDispatchMode):
    """Computes on the CPU what would be computed on the stand-in."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = dict(kwargs or {})
        flat = tree_flatten((args, kwargs))[0]
        given = [x for x in flat if isinstance(x, Tensor)]
        ours = [x for x in given if isinstance(x, MpsTensor)]
        device = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        to_mps = (device.type in ("mps", "meta")) if device else bool(ours)
        if not ours and not to_mps:
            return function(*args, **kwargs)
        packet = function.overloadpacket
        if packet in MISSING:
            raise NotImplementedError(f"{function} is not on MPS.")
        copies = packet in (aten._to_copy, aten.copy_)
        if not copies and ours:
            _refuse_mixing(function, given)
        if copies and ours and not to_mps and kwargs.get("dtype") == torch.float64:
            raise TypeError("MPS has no float64: copy to the CPU first, then convert.")
        if device is not None:
            kwargs["device"] = torch.device("cpu")
        held_args, held_kwargs = tree_map(_held, (args, kwargs))
        out = function(*held_args, **held_kwargs)
        if packet is aten.copy_ and not isinstance(args[0], MpsTensor):
            return args[0]
        if not to_mps:
            return out
        known = {id(x.held): x for x in ours}  # what works in place returns what it was given
        return tree_map(lambda x: _wrapped(x, known), out)


def _held(x: Any) -> Any:
    return x.held if isinstance(x, MpsTensor) else x


def _wrapped(x: Any, known: dict[int, MpsTensor]) -> Any:
    if not isinstance(x, Tensor):
        return x
    return known[id(x)] if id(x) in known else MpsTensor(x)


def _refuse_mixing(function: Any, given: list[Tensor]) -> None:
    on_cpu = [x for x in given if not isinstance(x, MpsTensor) and x.ndim > 0]
    # An index may come from the CPU.
    indexes = function.overloadpacket in (
        aten.index,
        aten.index_put,
        aten.index_put_,
        aten.index_fill_,
    )
    if on_cpu and not (indexes and all(not x.is_floating_point() for x in on_cpu)):
        raise RuntimeError(f"{function}: expected all tensors on mps, found some on the CPU.")
