"""Task routers: which experts of the pool an image uses, and with what weight."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from hashprompt.parts.precision import capable
from hashprompt.parts.slots import TaskSlots, uniform
from hashprompt.parts.variants import RouterInit


class Routing(NamedTuple):
    """The decision for a batch; S decisions per image (1, or one per prompted block)."""

    scores: Tensor  # (B, S, N) before the penalty
    chosen: Tensor  # (B, S, k) expert ids
    weights: Tensor  # (B, S, N) α, zero where not chosen

    def entropy(self) -> Tensor:
        """H(α) = −Σ α log α, (B, S)."""
        return torch.special.entr(self.weights).sum(-1)

    def is_chosen(self) -> Tensor:
        """(B, S, N), 1 where an expert was chosen, else 0."""
        return torch.zeros_like(self.scores).scatter(-1, self.chosen, 1.0)


def choose(
    scores: Tensor,
    penalty: Tensor,
    top_k: int,
    penalty_on: Literal["score", "select"] = "score",
    mixing: Literal["softmax", "uniform"] = "softmax",
    temperature: float = 1.0,
) -> Routing:
    """Pick the top-k experts of the penalised scores and weight them (Eq. 2 and 7).

    Args:
        scores: (B, S, N) s.
        penalty: (S, N) or (B, S, N) ψ(H), taken off the scores.
        top_k: how many experts to mix.
        penalty_on: `score` lets the penalty enter the softmax too, `select` the choice alone.
        mixing: `softmax` over the chosen scores, or `uniform` 1/k.
        temperature: of that softmax.
    """
    penalised = scores - penalty
    chosen = penalised.topk(top_k, dim=-1).indices
    basis = penalised if penalty_on == "score" else scores
    kept = basis.gather(-1, chosen)
    alpha = (
        (kept / temperature).softmax(-1)
        if mixing == "softmax"
        else torch.full_like(kept, 1 / top_k)
    )
    return Routing(scores, chosen, torch.zeros_like(scores).scatter(-1, chosen, alpha))


def spread(scores: Tensor) -> Tensor:
    """Standard deviation of each image's scores over the experts; of one expert it is 0.

    Args:
        scores: (…, N).
    """
    return scores.std(-1, correction=min(1, scores.shape[-1] - 1))


def unevenness(scores: Tensor) -> Tensor:
    """How far the experts' importance is from even: the squared coefficient of variation.

    Importance is the mean over images of the softmax of all scores (Shazeer et al. 2017), so that
    experts nobody chose get a gradient too.

    Args:
        scores: (B, S, N).
    """
    importance = scores.softmax(-1).mean(0)  # (S, N)
    return scores.shape[-1] * (importance**2).sum(-1).mean() - 1


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
        """Eq. 1: s = mean over tokens of X W_r / √d.

        The mean is linear, so tokens are averaged first and then multiplied once.

        Args:
            tokens: (B, L, D).
            task: (B,) router of each image; None uses the current one for all.
            decision: which of the S routers of a task.

        Returns:
            (B, N).
        """
        if task is None:
            return router_scores(tokens, self.current[decision])
        with torch.autocast(tokens.device.type, enabled=False):
            every = torch.einsum("bd,tdn->btn", scaled_mean(tokens), self.stacked()[:, decision])
            return every[torch.arange(task.shape[0], device=task.device), task]


def router_scores(tokens: Tensor, weight: Tensor) -> Tensor:
    """Scores (B, N) of tokens (B, L, D) by one router (D, N)."""
    # In full precision always: rounded scores would tie, and ties make routing arbitrary.
    with torch.autocast(tokens.device.type, enabled=False):
        return scaled_mean(tokens) @ weight


def scaled_mean(tokens: Tensor) -> Tensor:
    """The mean token / √d, (B, D)."""
    return tokens.float().mean(1) / math.sqrt(tokens.shape[-1])
