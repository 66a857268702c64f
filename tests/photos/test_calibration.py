"""Temperature, calibration error and strangeness against values worked out apart."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.distributions import MultivariateNormal

from hashprompt.parts.gaussians import ClassGaussians
from hashprompt.photos.calibration import (
    MIN_PHOTOS,
    STRANGE_RIDGE,
    UNCALIBRATED,
    Strangeness,
    calibrate,
    calibration_error,
    fit_temperature,
    quantiles,
    share_below,
)


def test_temperature_is_the_one_that_labels_were_drawn_with() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 6 * torch.randn(4000, 5, generator=generator)
    labels = torch.multinomial((logits / 4).softmax(1), 1, generator=generator)[:, 0]
    found = fit_temperature(logits, labels)
    assert found == pytest.approx(4, rel=0.05)
    losses = [
        float(F.cross_entropy(logits / t, labels)) for t in (found, 0.95 * found, 1.05 * found)
    ]
    assert losses[0] == min(losses)


def test_calibration_error_by_hand() -> None:
    # Two answers of 0.95, one right; two of 0.75, both right: (|0.95 − 0.5| + |0.75 − 1|) / 2.
    sure, half = np.log(0.95 / 0.05), np.log(0.75 / 0.25)
    logits = torch.tensor([[sure, 0], [sure, 0], [half, 0], [half, 0]])
    labels = torch.tensor([0, 1, 0, 0])
    assert calibration_error(logits, labels, 1.0) == pytest.approx(100 * (0.45 + 0.25) / 2)


def test_few_photos_keep_the_temperature_there_was() -> None:
    logits, labels = torch.randn(MIN_PHOTOS - 1, 3), torch.zeros(MIN_PHOTOS - 1, dtype=torch.int64)
    assert calibrate(logits, labels, 2.5)[0] == 2.5
    assert calibrate(logits, labels, None) == (
        UNCALIBRATED,
        {"images": MIN_PHOTOS - 1, "fitted": False},
    )


def test_calibration_is_judged_on_photos_it_was_not_fitted_on() -> None:
    # One half is right, the other wrong. Each is judged by what the other suggests: the wrong ones
    # with near certainty, the right ones with little more than chance level.
    logits = torch.tensor([[3.0, 0.0]]).repeat(40, 1)
    labels = torch.arange(40) % 2
    _, told = calibrate(logits, labels, None)
    right, wrong = (fit_temperature(logits[:20], torch.full((20,), label)) for label in (0, 1))
    sure, unsure = (1 / (1 + np.exp(-3 / t)) for t in (right, wrong))
    assert (sure > 0.9, unsure < 0.6) == (True, True)
    assert told["error"] == pytest.approx(100 * (sure + (1 - unsure)) / 2, abs=0.01)
    assert calibration_error(logits, labels, fit_temperature(logits, labels)) < 10


def test_photos_that_are_all_right_leave_the_temperature_that_was_expected() -> None:
    labels = torch.zeros(40, dtype=torch.int64)
    sure = torch.tensor([[300.0, 0.0]]).repeat(40, 1)  # right at any temperature
    assert fit_temperature(sure, labels, 7.0) == pytest.approx(7.0, rel=1e-3)
    assert fit_temperature(100 * sure, labels) == pytest.approx(UNCALIBRATED, rel=1e-3)


def test_the_expected_temperature_weighs_as_much_as_one_photo() -> None:
    """Where the slopes of log(1 + exp(−3 / T)) and of (log T − log 7)² / 80 cancel out."""
    logits, labels = torch.tensor([[3.0, 0.0]]).repeat(40, 1), torch.zeros(40, dtype=torch.int64)
    fitted = fit_temperature(logits, labels, 7.0)
    slope = 3 / fitted / (1 + np.exp(3 / fitted))  # by log T
    assert slope == pytest.approx(-np.log(fitted / 7) / 40, rel=1e-3)


def test_one_class_has_no_temperature_of_its_own() -> None:
    logits, labels = torch.randn(40, 1), torch.zeros(40, dtype=torch.int64)
    assert calibrate(logits, labels, 2.5) == (2.5, {"images": 40, "fitted": False})
    assert calibrate(logits, labels, None)[0] == UNCALIBRATED


def test_strangeness_is_the_log_ratio_of_two_gaussians() -> None:
    dim = 16
    generator = torch.Generator().manual_seed(1)
    groups = [torch.randn(30, dim, generator=generator) + shift for shift in (0, 1, -2)]
    gaussians = ClassGaussians(dim, "covariance")
    for group in groups:
        gaussians.add(group, torch.zeros(len(group)), [0])
    within = torch.stack([torch.cov(g.T.double()) for g in groups]).mean(0)
    within += 1e-4 * torch.eye(dim)  # the jitter of every Gaussian
    means = torch.stack([g.double().mean(0) for g in groups])
    between = (means - means.mean(0)).T @ (means - means.mean(0)) / 3

    def density(mean: torch.Tensor, matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        ridge = STRANGE_RIDGE * matrix.diagonal().mean() * torch.eye(dim)
        return MultivariateNormal(mean, matrix + ridge).log_prob(x.double())

    x = torch.randn(4, dim, generator=generator)
    nearest = torch.stack([density(m, within, x) for m in means]).max(0).values
    expected = density(means.mean(0), within + between, x) - nearest
    found, distances = Strangeness(gaussians).of(x)
    assert found.double() == pytest.approx(expected, abs=1e-3)
    inverse = torch.linalg.inv(within + STRANGE_RIDGE * within.diagonal().mean() * torch.eye(dim))
    offset = x.double()[:, None] - means
    by_hand = torch.einsum("bmi,ij,bmj->bm", offset, inverse, offset).sqrt()
    assert distances.double().numpy() == pytest.approx(by_hand.numpy(), rel=1e-4)


def test_share_of_less_strange_photos() -> None:
    kept = quantiles(torch.arange(101.0))
    values = torch.tensor([-5.0, 25.0, 99.5, 300.0])
    assert share_below(values, kept).tolist() == pytest.approx([0, 0.25, 0.995, 1])
    assert share_below(values, []).tolist() == [0.5] * 4
    assert quantiles(torch.zeros(0)) == []
