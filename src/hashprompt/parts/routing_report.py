"""How much of the image a router sees."""

import math

import torch
from torch import Tensor

from hashprompt.parts.precision import exact
from hashprompt.parts.router import Routing, spread

CONSTANT = 0.01  # a router whose weights vary less gives all images the same prompt


def describe_routing(routing: Routing, labels: Tensor, delta: float) -> dict[str, float]:
    """What varies in the routing of the images of a task, averaged over the decisions.

    Args:
        routing: of N images.
        labels: (N,) their classes.
        delta: δ, in units of the scores.

    Returns:
        routing_varies: 1 − ‖mean α‖² ÷ mean ‖α‖² over images; 0: all get the same weights.
        routing_by_class: the share of that variance that lies between classes.
        favourite_share: of the images that choose the expert most chosen.
        usage_entropy: of the experts' shares of all choices, 1 is even use.
        delta_over_spread: δ ÷ standard deviation of an image's scores over the experts; 0 if
            they are all equal.
    """
    weights = exact(routing.weights)  # (N, S, E)
    labels, chosen_ids = labels.to(weights.device), routing.chosen.to(weights.device)
    mean = weights.mean(0)
    size = (weights**2).sum(-1).mean(0)  # (S,)
    within = torch.zeros_like(size)
    for label in labels.unique():
        own = weights[labels == label]
        within += ((own - own.mean(0)) ** 2).sum((0, -1)) / len(weights)
    variance = size - (mean**2).sum(-1)
    by_class = 1 - within / variance.clamp(min=1e-12)
    chosen = torch.zeros_like(weights).scatter(-1, chosen_ids, 1.0).mean(0)  # (S, E)
    shares = chosen / chosen.sum(-1, keepdim=True)
    evenness = torch.special.entr(shares).sum(-1) / math.log(max(weights.shape[-1], 2))
    width = float(spread(routing.scores.float()).mean())
    return {
        "routing_varies": float((variance / size).mean()),
        "routing_by_class": float(by_class.clamp(0, 1).mean()),
        "favourite_share": float(chosen.amax(-1).mean()),
        "usage_entropy": float(evenness.mean()),
        "delta_over_spread": delta / width if width else 0.0,
    }


def routing_remark(diagnostics: dict[str, float]) -> str | None:
    """What a person should be told about it; None where the router sees the image."""
    if diagnostics.get("routing_varies", 1.0) >= CONSTANT:
        return None
    return (
        "the router gives nearly all images the same experts with the same weights, so the pool "
        "acts as one prompt. The router may see more with router_input=centred or "
        "router_input=plain, and with even_use=0.01."
    )
