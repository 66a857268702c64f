"""SLDC's operators against direct formulas, and what they must leave as it is."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from hashprompt.methods.sldc.method import (
    LinearDrift,
    WeaklyNonlinearDrift,
    move_by_samples,
    white_noise,
)
from hashprompt.parts.gaussians import ClassGaussians, GaussianSampler, Storage

close = torch.testing.assert_close
DIM = 6


def some(rows: int, dim: int = DIM) -> Tensor:
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(rows))


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def gaussians(storage: Storage = "covariance") -> ClassGaussians:
    stats = ClassGaussians(DIM, storage, rank=DIM)
    features = some(40) @ some(DIM) + torch.arange(2).repeat_interleave(20)[:, None]
    stats.add(features, torch.arange(2).repeat_interleave(20), (0, 1))
    return stats


def orthogonal() -> Tensor:
    return torch.linalg.qr(some(DIM)).Q


# α₁. ---------------------------------------------------------------------------------------


def test_the_linear_operator_is_the_formula_of_the_paper() -> None:
    before, after = some(9), 0.5 * some(9) + some(10)[:9]
    x, y = unit(before.double().numpy()), unit(after.double().numpy())
    fitted = np.linalg.inv(x.T @ x + 0.03 * np.eye(DIM)) @ x.T @ y
    w = math.exp(-9 / (2.0 * DIM))
    matrix = (1 - w) * fitted + w * np.eye(DIM)
    drift = LinearDrift(before, after, ridge=0.03, temperature=2.0)
    points = some(4)
    close(drift.points(points), torch.from_numpy(points.numpy() @ matrix).float())
    stats, same = gaussians(), gaussians()
    stats.move(drift)
    mean, covariance = (each[1].double().numpy() for each in (same.means, same.spread))
    close(stats.means[1], torch.from_numpy(mean @ matrix).float())
    expected = torch.from_numpy(matrix.T @ covariance @ matrix).float()
    close(stats.spread[1], expected, rtol=1e-4, atol=1e-5)


def test_a_direction_that_no_image_has_keeps_the_share_w() -> None:
    before, after = some(4), some(5)[:4]  # four images, six dimensions
    drift = LinearDrift(before, after, ridge=1e-9, temperature=1.0)
    unseen = torch.linalg.svd(before).Vh[-1]  # orthogonal to all of them
    close(drift.directions(unseen), math.exp(-4 / DIM) * unseen, rtol=1e-4, atol=1e-5)


def test_it_finds_turns_and_no_other_map() -> None:
    before, points = some(300), some(3)
    turned = LinearDrift(before, 2 * before @ orthogonal(), ridge=1e-9, temperature=0)
    close(turned.points(points), points @ orthogonal(), rtol=1e-4, atol=1e-4)  # norms are not seen
    skew = torch.diag(torch.linspace(0.2, 2, DIM))
    other = LinearDrift(before, before @ skew, ridge=1e-9, temperature=0)
    assert (other.points(points) - points @ skew).abs().max() > 0.05
    shifted = LinearDrift(before, before + 1, ridge=1e-9, temperature=0)
    close(shifted.points(torch.zeros(DIM)), torch.zeros(DIM))  # no offset


def test_features_that_stay_leave_gaussians_as_they_are() -> None:
    stats, same = gaussians(), gaussians()
    drift = LinearDrift(some(200), some(200), ridge=1e-9, temperature=1.0)
    for _ in range(10):
        stats.move(drift)
    close(stats.means, same.means, rtol=1e-6, atol=1e-6)
    close(stats.spread, same.spread, rtol=1e-6, atol=1e-6)


def test_moving_factors_is_moving_covariances() -> None:
    drift = LinearDrift(some(30), some(31)[:30], ridge=1e-3, temperature=1.0)
    factors = gaussians("low-rank")
    factors.rest.zero_()  # the diagonal stays by design
    covariances = gaussians()
    covariances.spread = factors.covariances()
    for stats in (factors, covariances):
        stats.move(drift)
    close(factors.covariances(), covariances.covariances(), rtol=1e-4, atol=1e-5)


# α₂. ---------------------------------------------------------------------------------------


def test_the_weakly_nonlinear_operator_written_out() -> None:
    torch.manual_seed(0)
    operator = WeaklyNonlinearDrift(DIM)
    operator.linear.data = some(DIM)
    operator.gates.data = torch.tensor([0.3, -0.2, 0.5])
    features = 3 * some(4)
    first, last = operator.mlp[0], operator.mlp[2]
    w1, b1, w2, b2 = (
        each.detach().double().numpy()
        for each in (first.weight, first.bias, last.weight, last.bias)
    )
    c = np.exp([0.3, -0.2, 0.5]) / np.exp([0.3, -0.2, 0.5]).sum()
    for row, found in zip(features.double().numpy(), operator.points(features), strict=True):
        length = np.sqrt((row**2).sum())
        f = row / length
        hidden = np.maximum(w1 @ f + b1, 0)
        moved = c[0] * f + c[1] * f @ some(DIM).double().numpy() + c[2] * (w2 @ hidden + b2)
        close(found.detach(), torch.from_numpy(length * moved).float(), rtol=1e-4, atol=1e-5)
    assert operator.penalty().item() == pytest.approx((c[0] + c[1] - 1) ** 2)


def test_it_starts_near_the_identity_and_starts_again() -> None:
    operator = WeaklyNonlinearDrift(DIM)
    for again in (False, True):
        if again:
            for parameter in operator.parameters():
                parameter.data.fill_(9.0)
            operator.restart()
        assert torch.equal(operator.linear, torch.eye(DIM))
        assert operator.gates.tolist() == [1, 0, 0]
        for layer in (operator.mlp[0], operator.mlp[2]):
            assert layer.weight.abs().max() <= DIM**-0.5
            assert layer.bias.abs().max() <= DIM**-0.5
            assert layer.weight.std() > 0.1


def test_noise_has_exactly_the_moments_of_noise() -> None:
    noise = white_noise(60, torch.zeros(1, DIM))
    close(noise.mean(0), torch.zeros(DIM), rtol=0, atol=1e-6)
    close(noise.T.cov(), torch.eye(DIM), rtol=0, atol=1e-5)


@pytest.mark.parametrize("turned", [False, True])
def test_gaussians_follow_a_linear_map_exactly_though_by_samples(turned: bool) -> None:
    """The identity, ten times over, changes nothing; a turn moves means and covariances."""
    operator = WeaklyNonlinearDrift(DIM)
    operator.gates.data = torch.tensor([-90.0, 90.0, -90.0])  # A alone
    operator.linear.data = orthogonal() if turned else torch.eye(DIM)
    stats, same = gaussians(), gaussians()
    for _ in range(1 if turned else 10):
        move_by_samples(stats, operator)
    turn = operator.linear.detach()
    close(stats.means, same.means @ turn, rtol=1e-4, atol=1e-5)
    close(stats.spread, turn.T @ same.spread @ turn, rtol=1e-4, atol=1e-4)


# Jitter. -----------------------------------------------------------------------------------


def test_jitter_is_a_share_of_the_mean_variance_and_is_not_stored() -> None:
    stats, same = gaussians(), gaussians()
    factor = GaussianSampler(stats, jitter=0.1).factor
    for cell, covariance in enumerate(same.spread):
        share = 0.1 * sum(covariance[i, i] for i in range(DIM)) / DIM
        close(factor[cell] @ factor[cell].T, covariance + share * torch.eye(DIM))
    close(stats.spread, same.spread, rtol=0, atol=0)
    assert torch.equal(GaussianSampler(stats).factor, torch.linalg.cholesky_ex(same.spread).L)
