"""Hash whose Gaussians of old classes follow the pool, against the ridge map written out."""

from typing import Any

import numpy as np
import torch
from by_hand import DIM, Task, learn, small_backbone
from torch import Tensor

from hashprompt.methods.hash import Hash, HashConfig


def make_hash(**options: Any) -> tuple[Hash, list[Task]]:
    backbone = small_backbone()
    heads: dict[str, Any] = {"tii": "discriminant", "align": "discriminant"}
    sizes: dict[str, Any] = {"layers": (1, 2), "experts": 4, "prompt_length": 3, "batch_size": 4}
    method = Hash(
        HashConfig(**{**heads, **sizes, "lr": 5.0, "drift": "affine", **options}), backbone
    )
    return method, [Task(t, (2 * t, 2 * t + 1), backbone) for t in range(3)]


@torch.no_grad()
def under_router(method: Hash, images: Tensor, task: int) -> np.ndarray:
    """Features of one image after the other under the router of a task."""
    rows = [
        method.prompted(method.backbone.embed(image[None]), torch.tensor([task]))[0]
        for image in images
    ]
    return torch.stack(rows).double().numpy()


def moved(mean: np.ndarray, before: np.ndarray, after: np.ndarray, ridge: float) -> np.ndarray:
    """Where a mean goes: the average shift, and a ridge regression of the rest on the features."""
    centred = before - before.mean(0)
    rest = (after - before) - (after - before).mean(0)
    gram = centred.T @ centred / len(before)
    damping = ridge * np.trace(gram) / DIM
    slope = np.linalg.inv(gram + damping * np.eye(DIM)) @ (centred.T @ rest) / len(before)
    return mean + (after - before).mean(0) + (mean - before.mean(0)) @ slope


def test_old_means_follow_the_router_of_their_own_task() -> None:
    method, tasks = make_hash(drift_ridge=0.2)
    learn(method, tasks[0])
    learn(method, tasks[1])
    means = method.prompted_stats.means.double().numpy()
    images = tasks[2].images
    before = [under_router(method, images, old) for old in (0, 1)]
    learn(method, tasks[2])
    after = [under_router(method, images, old) for old in (0, 1)]
    for cell, old in ((0, 0), (1, 0), (2, 1), (3, 1)):
        expected = moved(means[cell], before[old], after[old], 0.2)
        found = method.prompted_stats.means[cell].double().numpy()
        assert np.abs(expected - means[cell]).max() > 1e-2  # there is something to follow
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert len(method.before) == 0  # no features of images are kept


def test_followed_means_are_nearer_to_where_the_old_images_are() -> None:
    away = {}
    for drift in ("ignore", "shift", "affine"):
        method, tasks = make_hash(drift=drift, hdr=False, hgm=False)
        for task in tasks[:2]:
            learn(method, task, steps=6)
        old = tasks[0]
        now = under_router(method, old.images, 0)
        truth = np.stack([now[old.labels == label].mean(0) for label in old.classes])
        away[drift] = np.linalg.norm(method.prompted_stats.means[:2].numpy() - truth)
    assert max(away["shift"], away["affine"]) < 0.8 * away["ignore"], away
