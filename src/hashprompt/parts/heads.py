"""Classifiers that grow, linear ones and ones that compare directions, and what they minimise."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.parts.growing import grow_buffer, grow_parameter
from hashprompt.parts.precision import exact


class GrowingLinear(nn.Module):
    """A linear layer whose outputs are added as classes arrive.

    Args:
        dim: D, input width.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(0, dim))
        self.bias = nn.Parameter(torch.zeros(0))

    def grow(self, outputs: int) -> None:
        """Grow to `outputs` rows; rows that exist are kept (never fewer)."""
        new = max(0, outputs - len(self.bias))
        rows = nn.init.trunc_normal_(torch.empty(new, self.weight.shape[1]), std=0.02)
        grow_parameter(self, "weight", rows)
        grow_parameter(self, "bias", torch.zeros(new))

    def restarted(self, outputs: int) -> "GrowingLinear":
        """A fresh head with `outputs` rows (never fewer than there are)."""
        fresh = GrowingLinear(self.weight.shape[1])
        fresh.grow(max(len(self.bias), outputs))
        return fresh

    def mask(self, outputs: Sequence[int] | None) -> Tensor:
        """(C,) bool, true for these outputs; None: for all."""
        chosen = range(len(self.bias)) if outputs is None else outputs
        return output_mask(chosen, len(self.bias)).to(self.bias.device)

    def regroup(self, groups: Sequence[Sequence[int]], weights: Tensor) -> None:
        """One output for each group of outputs: their mean with weights (C,)."""
        for name in ("weight", "bias"):
            old = getattr(self, name).detach()
            rows = [weighted_mean(old[list(group)], weights[list(group)]) for group in groups]
            setattr(self, name, nn.Parameter(torch.stack(rows)))

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, C)."""
        return F.linear(features, self.weight, self.bias)


def weighted_mean(rows: Tensor, weights: Tensor) -> Tensor:
    """Mean of rows (n, …) with weights (n,); a single row stays as it is."""
    if len(rows) == 1:
        return rows[0]
    shares = exact(weights)
    return torch.tensordot(shares / shares.sum(), exact(rows), 1).to(rows)


class TaskIdentityHead(nn.Module):
    """ω: residual MLP (D → 2D → D, GELU) with a norm, then a linear layer over cells or tasks."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.norm = nn.LayerNorm(dim)
        self.head = GrowingLinear(dim)

    def forward(self, features: Tensor) -> Tensor:
        """Plain features (B, D) -> logits (B, cells)."""
        return self.head(self.norm(features + self.mlp(features)))


def masked_cross_entropy(logits: Tensor, labels: Tensor, allowed: Tensor | Sequence[int]) -> Tensor:
    """Cross-entropy in which only some outputs take part, so that the others get no gradient.

    Args:
        logits: (B, C).
        labels: (B,), all of them allowed.
        allowed: outputs by number, or (C,) bool.
    """
    if not isinstance(allowed, Tensor):
        allowed = output_mask(allowed, logits.shape[1]).to(logits.device)
    return F.cross_entropy(logits.masked_fill(~allowed, -torch.inf), labels)


def output_mask(outputs: Sequence[int], count: int) -> Tensor:
    """(C,) bool, true for these of `count` outputs."""
    mask = torch.zeros(count, dtype=torch.bool)
    mask[list(outputs)] = True
    return mask


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL(softmax(teacher/T) ‖ softmax(student/T)), the mean over images.

    Args:
        student: logits (B, C).
        teacher: logits (B, C).
        temperature: T; a higher one lets unlikely classes weigh more.
    """
    found, wanted = (F.log_softmax(logits / temperature, dim=1) for logits in (student, teacher))
    return F.kl_div(found, wanted, reduction="batchmean", log_target=True)


def cosine(query: Tensor, keys: Tensor) -> Tensor:
    """Cosine of every query (B, D) with every key (N, D), (B, N)."""
    # In full precision always: rounded cosines would tie, and ties make the choice arbitrary.
    with torch.autocast(query.device.type, enabled=False):
        return F.normalize(query.float(), dim=-1) @ F.normalize(keys.float(), dim=-1).T


class Prototypes(nn.Module):
    """The mean feature of every class, over all its images that ever came.

    Args:
        dim: D, width of the features.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.sums: Tensor = nn.Buffer(torch.zeros(0, dim))  # (C, D)
        self.counts: Tensor = nn.Buffer(torch.zeros(0))  # (C,)

    def add(self, features: Tensor, labels: Tensor) -> None:
        """Let images count: features (N, D) and labels (N,), of old classes or new ones."""
        new = max(0, int(labels.max()) + 1 - len(self.counts))
        grow_buffer(self, "sums", self.sums.new_zeros(new, self.sums.shape[1]))
        grow_buffer(self, "counts", self.counts.new_zeros(new))
        # A product and not `index_add_`, whose order of adding is left to chance on a GPU.
        member = F.one_hot(labels, len(self.counts)).to(features)
        self.sums = self.sums + member.T @ features
        self.counts = self.counts + member.sum(0)

    def means(self) -> Tensor:
        """(C, D)."""
        return self.sums / self.counts[:, None]


class CosineHead(nn.Module):
    """σ · cos(x, w) with a learned σ.

    Args:
        dim: D, width of the features.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(0, dim))
        self.scale = nn.Parameter(torch.ones(1))  # σ

    def grow(self, outputs: int) -> None:
        """Grow to `outputs` rows; rows that exist are kept (never fewer)."""
        new, dim = max(0, outputs - len(self.weight)), self.weight.shape[1]
        bound = 1 / math.sqrt(dim)
        grow_parameter(self, "weight", torch.empty(new, dim).uniform_(-bound, bound))

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, C)."""
        return self.scale * cosine(features, self.weight)
