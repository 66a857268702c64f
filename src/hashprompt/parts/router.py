"""Task routers: which experts of the pool an image uses, and with what weight."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from hashprompt.parts.growing import grow_buffer

RouterInit = Literal["uniform", "linear", "orthogonal"]


class Routing(NamedTuple):
    """The decision for a batch; S decisions per image (1, or one per prompted block)."""

    scores: Tensor  # (B, S, N) before the penalty
    chosen: Tensor  # (B, S, k) expert ids
    weights: Tensor  # (B, S, N) α, zero where not chosen

    def entropy(self) -> Tensor:
        """H(α) = −Σ α log α, (B, S)."""
        return torch.special.entr(self.weights).sum(-1)


def choose(
    scores: Tensor,
    penalty: Tensor,
    top_k: int,
    penalty_on: Literal["score", "select"] = "score",
    mixing: Literal["softmax", "uniform"] = "softmax",
) -> Routing:
    """Pick the top-k experts of the penalised scores and weight them (Eq. 2 and 7).

    Args:
        scores: (B, S, N) s.
        penalty: (S, N) or (B, S, N) ψ(H), taken off the scores.
        top_k: how many experts to mix.
        penalty_on: `score` lets the penalty enter the softmax too, `select` the choice alone.
        mixing: `softmax` over the chosen scores, or `uniform` 1/k.
    """
    penalised = scores - penalty
    chosen = penalised.topk(top_k, dim=-1).indices
    basis = penalised if penalty_on == "score" else scores
    kept = basis.gather(-1, chosen)
    alpha = kept.softmax(-1) if mixing == "softmax" else torch.full_like(kept, 1 / top_k)
    return Routing(scores, chosen, torch.zeros_like(scores).scatter(-1, chosen, alpha))


class Routers(nn.Module):
    """One linear router per task: the newest trains, the older ones are frozen.

    Args:
        dim: D, width of the tokens.
        experts: N.
        decisions: S, 1 for one decision per image, else one per prompted block.
        init: how a fresh router starts.
    """

    def __init__(self, dim: int, experts: int, decisions: int, init: RouterInit) -> None:
        super().__init__()
        self.init: RouterInit = init
        self.current = nn.Parameter(torch.empty(decisions, dim, experts))
        self.register_buffer("frozen", torch.empty(0, decisions, dim, experts))
        self.register_buffer("started", torch.tensor(False))
        self.frozen: Tensor
        self.started: Tensor

    @property
    def tasks(self) -> int:
        return len(self.frozen) + int(self.started)

    def add(self, copy_last: bool) -> None:
        """Freeze the current router and start that of the next task, as a copy or fresh."""
        if self.started:
            grow_buffer(self, "frozen", self.current.detach()[None].clone())
        if not self.started or not copy_last:
            self.current.data.copy_(self._fresh())
        self.started = torch.ones_like(self.started)

    def _fresh(self) -> Tensor:
        weight = torch.empty_like(self.current)
        if self.init == "uniform":
            return weight.uniform_(-1, 1)
        if self.init == "linear":
            bound = 1 / math.sqrt(weight.shape[1])
            return weight.uniform_(-bound, bound)
        for decision in weight:
            nn.init.orthogonal_(decision)
        return weight

    def scores(self, tokens: Tensor, task: Tensor | None, decision: int = 0) -> Tensor:
        """Eq. 1: s = mean over tokens of X W_r / √d.

        The mean is linear, so tokens are averaged first and then multiplied once.

        Args:
            tokens: (B, L, D).
            task: (B,) router of each image; None uses the current one for all.
            decision: which of the S routers of a task.

        Returns:
            (B, N).
        """
        # In full precision always: rounded scores would tie, and ties make routing arbitrary.
        with torch.autocast(tokens.device.type, enabled=False):
            mean = tokens.float().mean(1) / math.sqrt(tokens.shape[-1])
            if task is None:
                return mean @ self.current[decision]
            stacked = torch.cat((self.frozen[:, decision], self.current[None, decision]))
            every = torch.einsum("bd,tdn->btn", mean, stacked)
            return every[torch.arange(len(task), device=task.device), task]
