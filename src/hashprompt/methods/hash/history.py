"""Usage counts of the experts, and the penalties and update factors that depend on them."""

import torch
from torch import Tensor, nn

from hashprompt.methods.hash.config import HashConfig
from hashprompt.parts.growing import grow_buffer


class UsageHistory(nn.Module):
    """Activation counts H, by task and in total.

    Args:
        decisions: S, routing decisions per image.
        experts: N.
    """

    def __init__(self, decisions: int, experts: int) -> None:
        super().__init__()
        # (S, N) counts of the task being trained
        self.pending: Tensor = nn.Buffer(torch.zeros(decisions, experts, dtype=torch.int64))
        # (T, S, N) counts of finished tasks
        self.by_task: Tensor = nn.Buffer(torch.zeros(0, decisions, experts, dtype=torch.int64))

    def record(self, chosen: Tensor) -> None:
        """Count the chosen experts (B, S, k) of a training batch."""
        for decision, ids in enumerate(chosen.unbind(1)):
            self.pending[decision] += torch.bincount(ids.flatten(), minlength=self.pending.shape[1])

    def commit(self) -> None:
        """The task is over: its counts join the history."""
        grow_buffer(self, "by_task", self.pending[None])
        self.pending = torch.zeros_like(self.pending)

    def counts(self, live: bool = False) -> Tensor:
        """H (S, N); `live` adds the counts of the running task."""
        total = self.by_task.sum(0)
        return total + self.pending if live else total


def most_used(counts: Tensor, size: int) -> Tensor:
    """A_t: mask (S, N) of the `size` most-used experts; empty while there is no history."""
    top = counts.topk(size, dim=-1).indices
    mask = torch.zeros_like(counts, dtype=torch.bool).scatter(-1, top, True)
    return mask & (counts > 0)


def scaled(counts: Tensor, config: HashConfig) -> Tensor:
    """h: counts with mean 1 over the experts, or as they are, which saturates every ψ and γ."""
    h = counts.float()
    if config.history_scale == "printed":
        return h
    return h * h.shape[-1] / h.sum(-1, keepdim=True).clamp(min=1)


def penalty(counts: Tensor, config: HashConfig) -> Tensor:
    """ψ(H), (S, N): subtracted from the routing scores of used experts (Eq. 7 and 8)."""
    if not config.hdr:
        return torch.zeros_like(counts, dtype=torch.float32)
    if config.penalty == "stepwise":
        return config.delta * most_used(counts, config.protected)
    h = scaled(counts, config)
    psi = h.log1p() if config.penalty == "logarithmic" else h**config.penalty_exponent
    return psi if config.history_scale == "printed" else config.delta * psi


def update_factor(counts: Tensor, config: HashConfig) -> Tensor:
    """γ(H), (S, N) in (0, 1]: scale of the updates of used experts (Eq. 9 and 10, β = 1)."""
    if not config.hgm:
        return torch.ones_like(counts, dtype=torch.float32)
    if config.modulation == "piecewise":
        return torch.where(most_used(counts, config.protected), config.alpha, 1.0)
    h = scaled(counts, config)
    return 1 / (1 + h) if config.modulation == "inverse" else torch.exp(-h)
