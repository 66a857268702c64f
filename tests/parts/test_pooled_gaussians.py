"""Gaussians that share covariances, against those that have one each."""

import pytest
import torch
from torch import Tensor

from hashprompt.parts.drift import Drift
from hashprompt.parts.gaussians import JITTER, ClassGaussians
from hashprompt.parts.pooled_gaussians import PooledGaussians

DIM = 4
close = torch.testing.assert_close


def task(seed: int, classes: range) -> tuple[Tensor, Tensor, range]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(classes).repeat(8)
    scale = 1.0 + labels[:, None]  # classes differ in their spread
    return scale * torch.randn(len(labels), DIM, generator=generator), labels, classes


def pooled() -> PooledGaussians:
    """Two tasks, of three classes and of one."""
    stats = PooledGaussians(DIM)
    stats.add(*task(0, range(3)))
    stats.add(*task(1, range(3, 4)))
    return stats


def covariance(features: Tensor, labels: Tensor, label: int) -> Tensor:
    return features[labels == label].T.cov() + JITTER * torch.eye(DIM)


def test_classes_of_a_task_share_the_mean_of_their_covariances() -> None:
    stats, (features, labels, _) = pooled(), task(0, range(3))
    expected = torch.stack([covariance(features, labels, c) for c in range(3)]).mean(0)
    for cell in range(3):
        close(stats.means[cell], features[labels == cell].mean(0))
        close(stats.covariances()[cell], expected)
    close(stats.covariances([3])[0], covariance(*task(1, range(3, 4))[:2], 3))
    assert (len(stats), len(stats.spread)) == (4, 2)


def test_merged_covariances_are_the_mean_over_classes() -> None:
    stats = pooled()
    expected = stats.covariances().mean(0)
    stats.merge()
    assert stats.spread.shape == (1, DIM, DIM)
    close(stats.covariances(), expected.expand(4, -1, -1))


def test_cells_move_as_those_with_covariances_of_their_own() -> None:
    torch.manual_seed(2)
    seen = torch.randn(50, DIM)
    drift = Drift(seen, seen @ torch.randn(DIM, DIM) + 1, 0.1)
    stats, alone = pooled(), ClassGaussians(DIM, "covariance")
    alone.add(*task(0, range(3)))
    untouched = stats.means[3].clone(), stats.spread[1].clone()
    stats.move([0, 1, 2], drift)
    alone.move(range(3), drift)
    close(stats.means[:3], alone.means)
    close(stats.covariances([0])[0], alone.covariances().mean(0), rtol=1e-4, atol=1e-4)
    close((stats.means[3], stats.spread[1]), untouched, rtol=0, atol=0)


def test_cells_that_share_a_covariance_cannot_move_apart() -> None:
    stats, seen = pooled(), torch.randn(9, DIM)
    with pytest.raises(ValueError, match="move together"):
        stats.move([0, 1], Drift(seen, seen + 1, 0.1))


def test_cells_taken_out_leave_the_others_as_they_were() -> None:
    stats, whole = pooled(), pooled()
    stats.select(torch.tensor([1, 3]))
    close(stats.means, whole.means[[1, 3]], rtol=0, atol=0)
    close(stats.covariances(), whole.covariances()[[1, 3]], rtol=0, atol=0)
    stats.select(torch.tensor([1]))
    assert stats.spread.shape == (1, DIM, DIM)
    close(stats.covariances()[0], whole.covariances()[3], rtol=0, atol=0)


def test_draws_have_the_mean_and_the_shared_covariance() -> None:
    torch.manual_seed(0)
    stats = pooled()
    drawn, cells = stats.sampler().draw(20_000)
    for cell in range(4):
        own = drawn[cells == cell]
        close(own.mean(0), stats.means[cell], rtol=0, atol=0.1)
        expected = stats.covariances()[cell]
        assert (own.T.cov() - expected).norm() / expected.norm() < 0.05
