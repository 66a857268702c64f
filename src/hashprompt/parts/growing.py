"""Parameters and buffers that grow as tasks arrive, and still save and load by name."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hashprompt.errors import UserError, shortened

MAX_INTEGER = 2**40  # counts of images, class ids and the like are far below


def grow_parameter(module: nn.Module, name: str, rows: Tensor) -> None:
    """Append rows to a parameter; the rows it had keep their values."""
    old = getattr(module, name)
    setattr(module, name, nn.Parameter(torch.cat((old.detach(), rows.to(old)))))


def grow_buffer(module: nn.Module, name: str, rows: Tensor) -> None:
    """Append rows to a buffer."""
    old = getattr(module, name)
    setattr(module, name, torch.cat((old, rows.to(old))))


class UnfitState(UserError):  # noqa: N818 (a finding about a state)
    """Tensors that are not the state of a module."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The stored model does not fit its options: {reason}. It was made with other options, "
            "by another version of hashprompt, or was changed."
        )


def _refuse_unfit(name: str, tensor: Tensor, held: Tensor) -> None:
    # float32 for float64 is fine: not every device has the latter.
    both_float = tensor.is_floating_point() and held.is_floating_point()
    same_kind = both_float or tensor.dtype == held.dtype
    # Rows come with tasks; a width of zero follows from the data.
    widths = zip(tensor.shape[1:], held.shape[1:], strict=False)
    fits = tensor.ndim == held.ndim and all(new == old or old == 0 for new, old in widths)
    if not same_kind or not fits:
        found, expected = (f"{t.dtype} {tuple(t.shape)}" for t in (tensor, held))
        raise UnfitState(f"{name} is {found} and should be like {expected}")
    if not is_finite(tensor):
        raise UnfitState(f"{name} holds numbers that are not finite")
    if not tensor.is_floating_point() and (tensor.long().abs() >= MAX_INTEGER).any():
        raise UnfitState(f"{name} holds integers that no run reaches")


def is_finite(tensor: Tensor) -> bool:
    """Whether it can be saved: what is not finite is not loaded either."""
    return not tensor.is_floating_point() or bool(tensor.isfinite().all())


@contextmanager
def unfit_if_it_fails() -> Iterator[None]:
    """Around the first use of a loaded state, whose tensors may not fit each other."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, IndexError, ValueError) as error:
        raise UnfitState(shortened(f"{type(error).__name__}: {error}", 200)) from error


def load_grown(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load a state whose tensors may have more rows than the module's have now.

    Raises:
        UnfitState: when names are missing or left over, when tensors have another kind of numbers
            or other rows, or numbers that are not finite.
    """
    wanted = module.state_dict()
    if wanted.keys() != tensors.keys():
        names = sorted(wanted.keys() ^ tensors.keys())
        raise UnfitState(f"{shortened(', '.join(names[:5]), 200)} is missing or left over")
    for name, tensor in tensors.items():
        _refuse_unfit(name, tensor, wanted[name])
    for name, tensor in tensors.items():
        path, _, leaf = name.rpartition(".")
        owner = module.get_submodule(path)
        held = getattr(owner, leaf)
        value = tensor.to(held.device, held.dtype, copy=True)
        if isinstance(held, nn.Parameter):
            setattr(owner, leaf, nn.Parameter(value, requires_grad=held.requires_grad))
        else:
            setattr(owner, leaf, value)
