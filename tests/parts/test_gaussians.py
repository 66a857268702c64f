"""Gaussians of classes that are hard: singular, indefinite, not finite; and how they are added."""

import pytest
import torch
from torch import Tensor

from hashprompt.errors import UserError
from hashprompt.parts.gaussians import ClassGaussians, Discriminant, GaussianSampler, Storage

DIM = 5


def gaussians(*covariances: Tensor) -> ClassGaussians:
    stats = ClassGaussians(DIM, "covariance")
    stats.means = torch.arange(len(covariances)).float()[:, None].expand(-1, DIM)
    stats.spread = torch.stack(covariances)
    return stats


def with_variances(*variances: float) -> Tensor:
    """A covariance with these variances, in directions that are not the axes."""
    directions = torch.linalg.qr(torch.randn(DIM, DIM, generator=torch.manual_seed(3)))[0]
    return directions @ torch.diag(torch.tensor(variances)) @ directions.T


GOOD = with_variances(4.0, 3.0, 2.0, 1.0, 0.5)
HARD = {
    "singular": with_variances(3.0, 2.0, 0.0, 0.0, 0.0),
    "of one direction": with_variances(1e4, 0.0, 0.0, 0.0, 0.0),
    "indefinite by rounding": with_variances(3.0, 2.0, 1.0, -1e-5, -1e-6),
    "of one point": torch.zeros(DIM, DIM),
}


@pytest.mark.parametrize("kind", HARD)
def test_draws_have_the_mean_and_covariance_of_a_hard_cell(kind: str) -> None:
    stats = gaussians(GOOD, HARD[kind], GOOD)
    torch.manual_seed(0)
    drawn, cells = GaussianSampler(stats).draw(40_000)
    for cell, covariance in enumerate(stats.spread):
        own = drawn[cells == cell]
        size = covariance.diagonal().max().clamp(min=1e-3)
        assert (own.mean(0) - stats.means[cell]).abs().max() < 0.03 * size.sqrt()
        assert (own.T.cov() - covariance).abs().max() < 0.05 * size


def test_cells_beside_a_hard_one_are_drawn_as_without_it() -> None:
    torch.manual_seed(0)
    expected = GaussianSampler(gaussians(GOOD, GOOD)).draw(10)[0]
    torch.manual_seed(0)
    found = GaussianSampler(gaussians(GOOD, HARD["singular"])).draw(10)[0]
    assert torch.equal(found[:10], expected[:10])


@pytest.mark.parametrize(
    ("covariance", "reason"),
    [
        (GOOD * torch.nan, "non-finite"),
        (GOOD.clone().fill_diagonal_(torch.inf), "non-finite"),
        (with_variances(3.0, 2.0, 1.0, 1.0, -0.5), "negative variance"),
    ],
)
def test_what_is_no_covariance_is_refused_and_its_class_named(
    covariance: Tensor, reason: str
) -> None:
    stats = gaussians(GOOD, GOOD, covariance)
    with pytest.raises(UserError, match=f"class 17 .*{reason}"):
        GaussianSampler(stats, torch.tensor([4, 9, 17]))


@pytest.mark.parametrize("storage", ["covariance", "variance", "multi-centroid", "low-rank"])
def test_features_that_are_not_finite_are_refused_before_anything_is_kept(storage: Storage) -> None:
    features, labels = torch.randn(12, DIM), torch.arange(12) % 3
    features[labels == 2] = torch.nan
    stats = ClassGaussians(DIM, storage, rank=2, centroids=2)
    with pytest.raises(UserError, match="class 2 are not finite"):
        stats.add(features, labels, (0, 1, 2))
    assert len(stats) == 0


def test_a_discriminant_of_a_covariance_without_inverse_is_refused_in_words() -> None:
    stats = gaussians(GOOD, with_variances(3.0, 2.0, 1.0, 1.0, -0.5))
    with pytest.raises(UserError, match=r"Gaussian 2 .*`ridge`"):
        Discriminant(stats.means, stats.covariances(), shrinkage=0.0)


@pytest.mark.parametrize("storage", ["covariance", "variance", "multi-centroid", "low-rank"])
def test_a_task_added_at_once_is_its_classes_added_one_by_one(storage: Storage) -> None:
    torch.manual_seed(0)
    features, labels = torch.randn(60, DIM), torch.randint(4, (60,))
    at_once, one_by_one = (ClassGaussians(DIM, storage, rank=2, centroids=2) for _ in range(2))
    at_once.add(features, labels, (3, 0, 1, 2))
    for label in (3, 0, 1, 2):
        own = features[labels == label]
        one_by_one.add(own, torch.full((len(own),), label), (label,))
    for name, buffer in at_once.named_buffers():
        assert torch.equal(buffer, one_by_one.get_buffer(name)), name


@pytest.mark.parametrize("shrinkage", [1.0, 0.95, 0.0])
def test_a_discriminant_does_not_depend_on_how_many_cells_are_made_at_a_time(
    shrinkage: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    stats = ClassGaussians(DIM, "covariance")
    stats.add(torch.randn(500, DIM), torch.arange(500) % 40, range(40))
    features = torch.randn(9, DIM)
    scores = []
    for chunk in (1, 16, 1000):
        monkeypatch.setattr("hashprompt.parts.gaussians.CHUNK", chunk)
        made = Discriminant(stats.means, stats.covariances(), shrinkage)
        scores.append(made.scores(features))
        assert made.whiten.numel() == (40 if shrinkage < 1 else 1) * DIM**2
    assert torch.equal(scores[0], scores[1])
    assert torch.equal(scores[0], scores[2])
