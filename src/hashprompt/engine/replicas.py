"""What several devices must agree on."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hashprompt.data.dataset import tensor_hash as content_hash
from hashprompt.errors import UserError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Replicas:
    """The devices of a run, each with the same learner at every moment.

    Each device takes its share of every batch. Gradients and counts are joined in every step, and
    whatever decides how a run goes on is decided together: one device that stops alone would leave
    the others waiting for ever. With one device nothing is exchanged.
    """

    def __init__(self, fabric: "Fabric") -> None:
        self.fabric = fabric
        self.count, self.rank = fabric.world_size, fabric.global_rank

    @property
    def is_first(self) -> bool:
        """Whether this device speaks and writes for all."""
        return self.rank == 0

    def share(self, rows: Tensor) -> Tensor:
        """Which rows of a batch are this device's; all of them where they are too few to share."""
        return rows[self.rank :: self.count] if len(rows) >= self.count else rows

    def whole(self, share: Tensor, count: int) -> Tensor:
        """What all devices have of a batch of `count` images, (count, …), in its order.

        Args:
            share: (b, …) what this device has of its `share` of the rows.
        """
        if self.count == 1 or len(share) == count:
            return share
        most = -(-count // self.count)
        padded = share.new_zeros(most, *share.shape[1:])
        padded[: len(share)] = share
        gathered = self.fabric.all_gather(padded)  # (devices, most, …)
        assert isinstance(gathered, Tensor)
        return gathered.transpose(0, 1).flatten(0, 1)[:count]

    def any(self, flag: bool) -> bool:
        """Whether it is true on any device."""
        if self.count == 1:
            return flag
        return bool(self._sum(torch.tensor(int(flag), device=self.fabric.device)))

    def join_gradients(self, parameters: Sequence[Tensor], share: float) -> None:
        """Gradients of the whole batch. Prompts are small, so this is cheap.

        Args:
            share: of the batch that this device had; 1 on all of them where it was not shared.
        """
        if self.count == 1:
            return
        weight = 1 / self.count if share == 1 else share
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.copy_(self._sum(parameter.grad * weight))

    def sum_increments(self, tensors: Sequence[Tensor], before: Sequence[Tensor]) -> None:
        """Add what every device has added to its copy since `before`."""
        if self.count == 1:
            return
        for tensor, old in zip(tensors, before, strict=True):
            tensor.copy_(old + self._sum(tensor - old))

    def refuse_differences(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise on all devices if their learners are no longer the same to the bit."""
        if self.count == 1:
            return
        here = {name: content_hash(tensor) for name, tensor in tensors.items()}
        first = self.fabric.broadcast(here)
        differing = [name for name in here if here[name] != first.get(name)]
        if self.any(bool(differing)):
            what = ", ".join(differing) or "something on another device"
            raise UserError(
                f"The devices no longer hold the same learner: {what} differs. What a method does "
                "in a step must follow from its batch, its state and its accumulators alone."
            )

    def _sum(self, tensor: Tensor) -> Tensor:
        total = self.fabric.all_reduce(tensor, reduce_op="sum")
        assert isinstance(total, Tensor)
        return total
