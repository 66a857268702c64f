"""Logistic regression onto classes, to its optimum."""

import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.parts.precision import exact

STEPS = 1000  # of L-BFGS at most
SMALL = 1e-7  # a gradient of the mean loss that counts as none


def fit_logistic(features: Tensor, labels: Tensor, l2: float) -> tuple[Tensor, Tensor]:
    """W (C, D) and b (C,) that minimise Σ −log softmax(W f + b)_y + l2/2 ‖W‖².

    From three classes on this is scikit-learn's objective with C = 1/l2 (for two it has a formula
    of its own); the optimum is unique but for a constant in b.

    Args:
        features: (N, D).
        labels: (N,) of the classes 0 … C − 1.
        l2: strength of the penalty.
    """
    rows = exact(features)
    labels = labels.to(rows.device)
    # Shifted and scaled as a whole: the same optimum (b is free), and a shorter way to it.
    centre = rows.mean(0)
    rows = rows - centre
    scale = rows.square().mean().sqrt().clamp_min(1e-12)
    rows = rows / scale
    penalty = l2 / (2 * len(rows) * scale.square())
    weight = rows.new_zeros(int(labels.max()) + 1, rows.shape[1], requires_grad=True)
    bias = rows.new_zeros(len(weight), requires_grad=True)
    optimizer = torch.optim.LBFGS(
        (weight, bias),
        max_iter=STEPS,
        tolerance_grad=SMALL,
        tolerance_change=1e-14,
        history_size=50,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        error = F.cross_entropy(F.linear(rows, weight, bias), labels)
        value = error + penalty * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    found = weight.detach() / scale
    return found.to(features), (bias.detach() - found @ centre).to(features)
