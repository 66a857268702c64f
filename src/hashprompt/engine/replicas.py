"""Agreement between several devices."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hashprompt.data.dataset import tensor_hash as content_hash
from hashprompt.errors import UserError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Replicas:
    """The devices of a run, which hold the same model at every moment.

    Each device trains on its share of every batch. Gradients and counts are joined in every step.
    Devices decide together whether to stop: a device that stops without the others would leave
    them waiting forever. With one device nothing is exchanged.
    """

    def __init__(self, fabric: "Fabric") -> None:
        self.fabric = fabric
        self.count, self.rank = fabric.world_size, fabric.global_rank

    @property
    def is_first(self) -> bool:
        """Whether this device prints and writes for all."""
        return self.rank == 0

    def share(self, rows: Tensor) -> Tensor:
        """Rows of a batch for this device; all rows if there are fewer than devices."""
        return rows[self.rank :: self.count] if len(rows) >= self.count else rows

    def whole(self, share: Tensor, count: int) -> Tensor:
        """Values of a whole batch, (count, …), in its order.

        Args:
            share: (b, …) values of this device's share of the rows.
        """
        if self.count == 1 or len(share) == count:
            return share
        size = -(-count // self.count)
        padded = share.new_zeros(size, *share.shape[1:])
        padded[: len(share)] = share
        gathered = self.fabric.all_gather(padded)  # (devices, size, …)
        assert isinstance(gathered, Tensor)
        return gathered.transpose(0, 1).flatten(0, 1)[:count]

    def any(self, flag: bool) -> bool:
        """Whether a flag is true on any device."""
        if self.count == 1:
            return flag
        return bool(self._sum(torch.tensor(int(flag), device=self.fabric.device)))

    def join_gradients(self, parameters: Sequence[Tensor], share: float) -> None:
        """Make gradients those of the whole batch.

        Args:
            share: this device's share of the batch; 1 on all devices if it was not shared.
        """
        if self.count == 1:
            return
        weight = 1 / self.count if share == 1 else share
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.copy_(self._sum(parameter.grad * weight))

    def sum_increments(self, tensors: Sequence[Tensor], before: Sequence[Tensor]) -> None:
        """Add what all devices have added to their copies since `before`."""
        if self.count == 1:
            return
        for tensor, old in zip(tensors, before, strict=True):
            tensor.copy_(old + self._sum(tensor - old))

    def refuse_differences(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise on all devices unless their models are identical to the bit."""
        if self.count == 1:
            return
        here = {name: content_hash(tensor) for name, tensor in tensors.items()}
        first = self.fabric.broadcast(here)
        differing = [name for name in here if here[name] != first.get(name)]
        if self.any(bool(differing)):
            what = ", ".join(differing) or "something on another device"
            raise UserError(
                f"The devices no longer hold the same model: {what} differs. A method's step must "
                "depend only on its batch, its state and its accumulators."
            )

    def _sum(self, tensor: Tensor) -> Tensor:
        total = self.fabric.all_reduce(tensor, reduce_op="sum")
        assert isinstance(total, Tensor)
        return total
