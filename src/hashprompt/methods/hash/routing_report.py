"""Measures of the routing, for the report. Nothing here changes training."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hashprompt.methods.base import TaskView
from hashprompt.methods.hash.history import most_used
from hashprompt.methods.hash.router import Routing
from hashprompt.parts.precision import exact

if TYPE_CHECKING:
    from hashprompt.methods.hash.method import Hash


def spread(scores: Tensor) -> Tensor:
    """Standard deviation of each image's scores (…, N) over the experts; of one expert it is 0."""
    return scores.std(-1, correction=min(1, scores.shape[-1] - 1))


@torch.no_grad()
def route_images(method: "Hash", task: TaskView) -> Routing:
    """The decisions of the current router about all training images of its task."""

    def each(images: Tensor) -> Tensor:
        tokens, routed = method.backbone.embed(images), list[Routing]()
        injection = method.inject(tokens, None, routed)
        if method.config.router_scope == "layer":  # later decisions are made in the pass
            method.backbone.encode(tokens, injection)
        return torch.cat([torch.stack((r.scores, r.weights, r.is_chosen()), 2) for r in routed], 1)

    scores, weights, chosen = task.map(each).unbind(2)  # each (N, S, experts)
    return Routing(scores, chosen.topk(method.config.top_k, -1).indices, weights)


def describe_routing(method: "Hash", task: TaskView) -> dict[str, float]:
    """Measures of the routing of the images of the task that was just learned."""
    config, routing = method.config, route_images(method, task)
    counts = method.history.by_task[: task.index].sum(0)
    protected = most_used(counts, config.protected).expand(len(routing.chosen), -1, -1)
    return {
        "routing_entropy": float(entropies(routing).mean()),
        "entropy_by_difficulty": rank_correlation(entropies(routing), difficulties(task)),
        "score_std": float(spread(routing.scores).mean()),
        "share_protected": float(protected.gather(-1, routing.chosen).float().mean()),
        **routing_measures(routing, task.labels, config.delta if config.hdr else 0.0),
    }


def entropies(routing: Routing) -> Tensor:
    """H(α) of each image (N,), the mean over its decisions."""
    return torch.special.entr(routing.weights).sum(-1).mean(-1)


def difficulties(task: TaskView) -> Tensor:
    """Distance (N,) of the frozen features of an image from the mean of its class."""
    features = task.features()
    away = features.new_zeros(len(task.labels))
    for label in task.labels.unique():
        own = task.labels == label
        away[own] = (features[own] - features[own].mean(0)).norm(dim=-1)
    return away


def rank_correlation(first: Tensor, second: Tensor) -> float:
    """Spearman's rank correlation of two lists of numbers (N,); 0 where one is constant."""
    both = torch.stack((ranks(first.cpu()), ranks(second.cpu())))
    return float(torch.corrcoef(both)[0, 1].nan_to_num())


def ranks(values: Tensor) -> Tensor:
    """Ranks (N,); equal values share the mean of theirs."""
    _, place, counts = torch.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2)[place].double()


def routing_measures(routing: Routing, labels: Tensor, delta: float) -> dict[str, float]:
    """Measures of routing, averaged over the decisions.

    Args:
        routing: of N images.
        labels: (N,) their classes.
        delta: δ, the penalty; 0 where there is none.

    Returns:
        routing_varies: 1 − ‖mean α‖² ÷ mean ‖α‖² over images; 0: all get the same weights.
        routing_by_class: the share of that variance that lies between classes.
        favourite_share: of the images that choose the expert most chosen.
        favourites_share: of all choices that fall on the k experts most chosen; 1: all images
            choose the same ones.
        usage_entropy: of the experts' shares of all choices, 1 if balanced.
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
    # What rounding leaves where nothing varies belongs to no class.
    by_class = torch.where(variance > 1e-9 * size, 1 - within / variance, 0.0)
    chosen = exact(routing.is_chosen()).mean(0)  # (S, E)
    shares = chosen / chosen.sum(-1, keepdim=True)
    evenness = torch.special.entr(shares).sum(-1) / math.log(max(weights.shape[-1], 2))
    width = float(spread(routing.scores.float()).mean())
    return {
        "routing_varies": float((variance / size).mean()),
        "routing_by_class": float(by_class.clamp(0, 1).mean()),
        "favourite_share": float(chosen.amax(-1).mean()),
        "favourites_share": float(shares.topk(routing.chosen.shape[-1]).values.sum(-1).mean()),
        "usage_entropy": float(evenness.mean()),
        "delta_over_spread": delta / width if width else 0.0,
    }
