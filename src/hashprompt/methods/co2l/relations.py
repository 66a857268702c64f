"""Losses on how alike the images of a batch are: to contrast them, and to keep their relations."""

import torch
from torch import Tensor


def asymmetric_contrast(
    projected: Tensor, groups: Tensor, anchors: Tensor, temperature: float
) -> Tensor:
    """Supervised contrastive loss whose anchors are new images alone (Co²L, eq. 2).

    For each anchor: −mean over the others of its group of log e^{z·z'/τ} / Σ e^{z·z''/τ}, where the
    sum runs over all but the anchor. An anchor that is alone in its group has no say.

    Args:
        projected: (N, d) of length one.
        groups: (N,).
        anchors: (N,) bool.
    """
    log_share = _relations(projected, temperature)
    alike = (groups[:, None] == groups) & ~_itself(projected)
    counted = anchors & alike.any(1)
    mean = log_share.masked_fill(~alike, 0).sum(1) / alike.sum(1).clamp(min=1)
    return -mean.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)


def relation_change(
    projected: Tensor, before: Tensor, temperature: float, teacher_temperature: float
) -> Tensor:
    """Cross-entropy between the relations of the teacher and of the learner (Co²L, eq. 6).

    Args:
        projected: (N, d) of length one, by the learner.
        before: (N, d) by the teacher.
        temperature: κ of the learner.
        teacher_temperature: τ* of the teacher.
    """
    target = _relations(before, teacher_temperature).exp()
    log_share = _relations(projected, temperature).masked_fill(_itself(projected), 0)
    return -(target * log_share).sum(1).mean()


def _relations(projected: Tensor, temperature: float) -> Tensor:
    """Log of each image's likeness to the others as shares, (N, N); −∞ to itself."""
    likeness = projected @ projected.T / temperature
    return likeness.masked_fill(_itself(projected), -torch.inf).log_softmax(1)


def _itself(projected: Tensor) -> Tensor:
    return torch.eye(len(projected), dtype=torch.bool, device=projected.device)
