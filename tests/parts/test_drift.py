"""Gaussians that follow the features."""

import numpy as np
import pytest
import torch
from fakes import add_cell

from hashprompt.parts.drift import Drift
from hashprompt.parts.gaussians import ClassGaussians, Storage

close = torch.testing.assert_close


def affine() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.eye(5) + 0.3 * torch.randn(5, 5), torch.randn(5)


def test_an_affine_drift_is_found_and_carried_over_to_points_elsewhere() -> None:
    matrix, offset = affine()
    seen, elsewhere = torch.randn(200, 5), torch.randn(7, 5) + 4
    drift = Drift(seen, seen @ matrix + offset, ridge=1e-9)
    close(drift.points(elsewhere), elsewhere @ matrix + offset, rtol=1e-4, atol=1e-4)
    close(drift.directions(elsewhere), elsewhere @ matrix, rtol=1e-4, atol=1e-4)


def test_the_slope_is_that_of_ridge_regression() -> None:
    torch.manual_seed(0)
    before, after = torch.randn(50, 5).numpy().astype(float), torch.randn(50, 5).numpy()
    centred = before - before.mean(0)
    moved = (after - before) - (after - before).mean(0)
    damping = 0.1 * (centred**2).mean()
    rows = np.vstack((centred / np.sqrt(50), np.sqrt(damping) * np.eye(5)))
    targets = np.vstack((moved / np.sqrt(50), np.zeros((5, 5))))
    expected = np.linalg.lstsq(rows, targets, rcond=None)[0]
    found = Drift(torch.from_numpy(before), torch.from_numpy(after), ridge=0.1)
    close(found.slope, torch.from_numpy(expected))


def test_without_a_slope_everything_shifts_alike() -> None:
    before, after = torch.randn(20, 5), torch.randn(20, 5)
    drift = Drift(before, after, ridge=torch.inf)
    close(drift.points(torch.zeros(5)), (after - before).mean(0))
    close(drift.directions(before), before)


@pytest.mark.parametrize("storage", ["covariance", "low-rank"])
def test_a_cell_moves_as_its_images_would_have(storage: Storage) -> None:
    matrix, offset = affine()
    seen, own = torch.randn(100, 5), torch.randn(40, 5) @ torch.randn(5, 5) + 2
    drift = Drift(seen, seen @ matrix + offset, ridge=1e-9)
    moved, expected = (ClassGaussians(5, storage, rank=5) for _ in range(2))
    for stats, rows in ((moved, own), (expected, own @ matrix + offset)):
        add_cell(stats, rows)
    moved.move(drift)
    close(moved.means, expected.means, rtol=1e-3, atol=1e-3)
    close(moved.covariances(), expected.covariances(), rtol=1e-3, atol=1e-2)


def test_centres_move_too() -> None:
    matrix, offset = affine()
    seen = torch.randn(100, 5)
    stats = ClassGaussians(5, "multi-centroid", centroids=3)
    add_cell(stats, torch.randn(30, 5))
    centres = stats.rest[0].clone()
    stats.move(Drift(seen, seen @ matrix + offset, ridge=1e-9))
    close(stats.rest[0], centres @ matrix + offset, rtol=1e-3, atol=1e-3)
