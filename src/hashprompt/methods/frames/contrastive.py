"""The contrastive term that keeps new features apart from the means of old classes."""

import torch
import torch.nn.functional as F
from torch import Tensor


def contrastive_identity(
    features: Tensor, old_means: Tensor, same: Tensor, temperature: float = 0.8
) -> Tensor:
    """Bounded form: every feature and every old mean is its own only positive.

    Args:
        features: (B, D) of the batch.
        old_means: (M, D) of earlier cells, possibly none.
        same: (B, M) bool, pairs of one class (seen in another domain): they do not repel.
    """
    count = len(old_means)
    rows = torch.cat((old_means.to(features), features))
    alike = torch.zeros(len(rows), len(rows), dtype=torch.bool, device=rows.device)
    alike[count:, :count], alike[:count, count:] = same, same.T
    similarity = (rows @ rows.T / temperature).masked_fill(alike, -torch.inf)
    return F.cross_entropy(similarity, torch.arange(len(rows), device=rows.device))


def contrastive_paper(
    features: Tensor, old_means: Tensor, same: Tensor, temperature: float = 0.8
) -> Tensor:
    """The formula as printed, averaged over features and old classes: mean log(e^{h·μ/τ} / Z(h)).

    Z(h) runs over the batch and the old means. Minimising it pushes features away from old means
    without bound.
    """
    if same.all():  # no old class, or only old domains of the same class
        return features.new_zeros(())
    rows = torch.cat((features, old_means.to(features)))
    alike = F.pad(same, (len(features), 0))
    log_share = (features @ rows.T / temperature).masked_fill(alike, -torch.inf).log_softmax(1)
    return log_share[:, len(features) :][~same].mean()
