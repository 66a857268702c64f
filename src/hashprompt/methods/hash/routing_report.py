"""How much of the image a router sees."""

import math
from typing import Literal

import torch
from torch import Tensor

from hashprompt.methods.hash.router import Routing, spread
from hashprompt.parts.precision import exact

CONSTANT = 0.01  # a router whose weights vary less gives all images the same prompt
ALL = 0.99  # so many of the choices are as good as all


def describe_routing(
    routing: Routing, labels: Tensor, delta: float, unit: Literal["score", "spread"] = "score"
) -> dict[str, float]:
    """What varies in the routing of the images of a task, averaged over the decisions.

    Args:
        routing: of N images.
        labels: (N,) their classes.
        delta: δ, the penalty; 0 where there is none.
        unit: what it is told in: scores, or their spread over the experts.

    Returns:
        routing_varies: 1 − ‖mean α‖² ÷ mean ‖α‖² over images; 0: all get the same weights.
        routing_by_class: the share of that variance that lies between classes.
        favourite_share: of the images that choose the expert most chosen.
        favourites_share: of all choices that fall on the k experts most chosen; 1: all images
            take the same ones.
        usage_entropy: of the experts' shares of all choices, 1 is even use.
        delta_over_spread: δ ÷ standard deviation of an image's scores over the experts; 0 if
            they are all equal.
    """
    weights = exact(routing.weights)  # (N, S, E)
    labels = labels.to(weights.device)
    mean = weights.mean(0)
    size = (weights**2).sum(-1).mean(0)  # (S,)
    within = torch.zeros_like(size)
    for label in labels.unique():
        own = weights[labels == label]
        within += ((own - own.mean(0)) ** 2).sum((0, -1)) / len(weights)
    variance = size - (mean**2).sum(-1)
    # What is left by rounding where nothing varies is of no class.
    by_class = torch.where(variance > 1e-9 * size, 1 - within / variance, 0.0)
    chosen = exact(routing.is_chosen()).mean(0)  # (S, E)
    shares = chosen / chosen.sum(-1, keepdim=True)
    evenness = torch.special.entr(shares).sum(-1) / math.log(max(weights.shape[-1], 2))
    width = float(spread(routing.scores.float()).mean()) if unit == "score" else 1.0
    return {
        "routing_varies": float((variance / size).mean()),
        "routing_by_class": float(by_class.clamp(0, 1).mean()),
        "favourite_share": float(chosen.amax(-1).mean()),
        "favourites_share": float(shares.topk(routing.chosen.shape[-1]).values.sum(-1).mean()),
        "usage_entropy": float(evenness.mean()),
        "delta_over_spread": delta / width if width else 0.0,
    }


def routing_remark(diagnostics: dict[str, float]) -> str | None:
    """What a person should be told about it; None where the router sees the image."""
    if diagnostics.get("routing_varies", 1.0) < CONSTANT:
        what = "the same experts with the same weights, so the pool acts as one prompt"
    elif diagnostics.get("favourites_share", 0.0) > ALL:
        what = "the same experts, in shares that differ"
    else:
        return None
    return (
        f"the router gives nearly all images {what}. Compare with --preset best, which has one "
        "prompt and no router. With router_input=centred or plain the router sees more, which on "
        "photos made answers worse (docs/results/best.md)."
    )
