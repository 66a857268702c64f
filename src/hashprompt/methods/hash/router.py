"""Task routers: which experts of the pool an image uses, and with what weight."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from hashprompt.methods.hash.config import RouterInit
from hashprompt.parts.precision import capable
from hashprompt.parts.slots import TaskSlots, uniform


class Routing(NamedTuple):
    """The decision for a batch; S decisions per image (1, or one per prompted block)."""

    scores: Tensor  # (B, S, N) before the penalty
    chosen: Tensor  # (B, S, k) expert ids
    weights: Tensor  # (B, S, N) α, zero where not chosen

    def is_chosen(self) -> Tensor:
        """(B, S, N), 1 where an expert was chosen, else 0."""
        return torch.zeros_like(self.scores).scatter(-1, self.chosen, 1.0)


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


class Routers(TaskSlots):
    """One linear router per task.

    Args:
        dim: D, width of the tokens.
        experts: N.
        decisions: S, 1 for one decision per image, else one per prompted block.
        init: how a fresh router starts.
    """

    def __init__(self, dim: int, experts: int, decisions: int, init: RouterInit) -> None:
        fills: dict[RouterInit, Callable[[Tensor], object]] = {
            "uniform": uniform(1),
            "linear": uniform(1 / math.sqrt(dim)),
            "orthogonal": lambda weight: [w.copy_(nn.init.orthogonal_(capable(w))) for w in weight],
        }
        super().__init__((decisions, dim, experts), fills[init])

    def scores(self, tokens: Tensor, task: Tensor | None, decision: int = 0) -> Tensor:
        """Eq. 1: s = mean over tokens of X W_r / √d, (B, N).

        The mean is linear, so tokens are averaged first and then multiplied once.

        Args:
            tokens: (B, L, D).
            task: (B,) router of each image; None uses the current one for all.
            decision: which of the S routers of a task.
        """
        # In full precision always: rounded scores would tie, and ties make routing arbitrary.
        with torch.autocast(tokens.device.type, enabled=False):
            mean = tokens.float().mean(1) / math.sqrt(tokens.shape[-1])
            if task is None:
                return mean @ self.current[decision]
            every = torch.einsum("bd,tdn->btn", mean, self.stacked()[:, decision])
            return every[torch.arange(task.shape[0], device=task.device), task]
