"""Calibrated probabilities and the unknown score, fitted on held-out photos."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hashprompt.parts.gaussians import ClassGaussians, Discriminant
from hashprompt.parts.precision import capable, exact

MIN_PHOTOS = 20  # held-out ones for a temperature of their own
UNCALIBRATED = 5.0  # temperature until then: class densities in many dimensions are far too sure
BINS = 10
QUANTILES = 101
# Ridge of the Gaussians for strangeness, as a share of the mean variance: few photos give a poor
# covariance, and a photo of something else differs in directions that they do not show.
STRANGE_RIDGE = 3.0


def fit_temperature(logits: Tensor, labels: Tensor, expected: float = UNCALIBRATED) -> float:
    """T that makes softmax(logits / T) most likely, for logits (N, C) and labels (N,).

    Args:
        expected: prior of T, for photos that are all correct at any T. It weighs as much as one
            photo (a normal distribution of log T).
    """
    from scipy.optimize import minimize_scalar  # only a session fits one

    logits, labels = exact(logits), capable(labels)

    def loss(log_t: float) -> float:
        surprise = (log_t - np.log(expected)) ** 2 / 2
        return float(F.cross_entropy(logits / np.exp(log_t), labels)) + surprise / len(labels)

    return float(np.exp(minimize_scalar(loss, bounds=(-3.0, 6.0), method="bounded").x))


def calibration_error(logits: Tensor, labels: Tensor, temperature: Tensor | float) -> float:
    """Mean gap, in percent, between confidence and accuracy, over bins of confidence."""
    confidence, predicted = (exact(logits) / temperature).softmax(1).max(1)
    right = (predicted == capable(labels)).double()
    place = (confidence * BINS).long().clamp(max=BINS - 1)
    gaps = [
        float((place == b).double().mean() * (confidence - right)[place == b].mean().abs())
        for b in place.unique()
    ]
    return 100 * sum(gaps)


def calibrate(logits: Tensor, labels: Tensor, before: float | None) -> tuple[float, dict[str, Any]]:
    """The temperature of a version and how good it is.

    Args:
        logits: (N, C) of held-out photos.
        labels: (N,).
        before: temperature of the version before, kept where photos are too few.
    """
    if len(labels) < MIN_PHOTOS or logits.shape[1] == 1:  # one class is always certain
        return before or UNCALIBRATED, {"images": len(labels), "fitted": False}
    logits, labels = exact(logits), capable(labels)
    # Each half is tested with the temperature that was fitted on the other.
    odd = torch.arange(len(labels), device=labels.device) % 2 == 1
    expected, crossed = before or UNCALIBRATED, logits.new_empty(len(labels), 1)
    for half in (odd, ~odd):
        crossed[half] = fit_temperature(logits[~half], labels[~half], expected)
    return fit_temperature(logits, labels, expected), {
        "images": len(labels),
        "fitted": True,
        "error_uncalibrated": round(calibration_error(logits, labels, 1.0), 2),
        "error": round(calibration_error(logits, labels, crossed), 2),
    }


class Strangeness:
    """Relative Mahalanobis distance of features to the classes (docs/results/photos.md).

    Log density under one Gaussian for everything, minus that under the nearest class. The Gaussian
    for everything is that of the mixture of classes, so nothing more has to be stored.

    Args:
        gaussians: of the classes.
    """

    def __init__(self, gaussians: ClassGaussians) -> None:
        means, within = gaussians.means, gaussians.covariances().mean(0)
        centred = means - means.mean(0)
        between = centred.T @ centred / len(centred)
        self.classes = Discriminant(means, within[None], 1.0, STRANGE_RIDGE)
        whole = Discriminant(means.mean(0)[None], (within + between)[None], 1.0, STRANGE_RIDGE)
        # A single class is its own mixture: then the distance to it is all there is.
        self.everything = whole if len(means) > 1 else None

    def of(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) strangeness of features (B, D), and (B, M) distances to the class Gaussians."""
        scores = self.classes.scores(features)
        log_det = self.classes.log_det.float().to(scores.device)
        distances = (-2 * scores - log_det).clamp(min=0).sqrt()
        general = self.everything.scores(features)[:, 0] if self.everything else 0.0
        return general - scores.max(1).values, distances


def quantiles(values: Tensor) -> list[float]:
    """Quantiles of strangeness over held-out photos."""
    if not len(values):
        return []
    return np.quantile(exact(values).cpu().numpy(), np.linspace(0, 1, QUANTILES)).tolist()


def share_below(values: Tensor, kept: Sequence[float]) -> Tensor:
    """Share of held-out photos that were less strange, (B,) in 0 … 1."""
    if not kept:
        return torch.full((len(values),), 0.5, dtype=torch.float64)
    place = np.interp(exact(values).cpu().numpy(), kept, np.linspace(0, 1, len(kept)))
    return torch.from_numpy(place)
