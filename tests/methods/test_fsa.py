"""FSA and the linear discriminant from running sums."""

from functools import partial
from itertools import permutations
from typing import Any

import fakes
import numpy as np
import pytest
import torch
from fakes import DIM, Task, small_backbone
from torch import tensor

from hashprompt.methods.base import Batch
from hashprompt.methods.fsa.method import Fsa, FsaConfig, LinearDiscriminant

learned = partial(fakes.learned, "fsa", lr=0.01)

close = torch.testing.assert_close


def by_hand(f: np.ndarray, y: np.ndarray, ridge: float, query: np.ndarray) -> np.ndarray:
    """Logits (B, C) of the discriminant of all images at once."""
    f = f.astype(np.float64)
    matrix = np.cov(f, rowvar=False) + ridge * np.eye(f.shape[1])
    logits = np.zeros((len(query), y.max() + 1))
    for c in range(y.max() + 1):
        mean = f[y == c].mean(0)
        w = np.linalg.inv(matrix) @ mean
        logits[:, c] = query.astype(np.float64) @ w - 0.5 * mean @ w
    return logits


# The discriminant. -------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1.0, 0.2])
def test_sums_in_any_order_give_the_discriminant_of_all_images(ridge: float) -> None:
    torch.manual_seed(0)
    f, y = 2 + torch.randn(60, 8), torch.arange(60) % 6
    query = torch.randn(5, 8)
    expected = tensor(by_hand(f.numpy(), y.numpy(), ridge, query.numpy())).float()
    for order in permutations([y < 2, (y >= 2) & (y < 4), y >= 4]):
        found = LinearDiscriminant(8, ridge)
        for rows in order:
            found.add(f[rows], y[rows])
        close(found(query), expected, atol=1e-4, rtol=1e-4)


def test_a_class_of_several_domains_is_one_class() -> None:
    torch.manual_seed(0)
    f, y = torch.randn(40, 5), torch.arange(40) % 4
    found = LinearDiscriminant(5)
    for rows in torch.arange(40).split(8):  # classes of unequal numbers in each
        found.add(f[rows], y[rows])
    expected = tensor(by_hand(f.numpy(), y.numpy(), 1.0, f.numpy())).float()
    close(found(f), expected, atol=1e-4, rtol=1e-4)


def test_one_image_has_no_covariance_but_the_ridge() -> None:
    found = LinearDiscriminant(2)
    found.add(tensor([[3.0, 4.0]]), tensor([0]))
    close(found(tensor([[1.0, 1.0]])), tensor([[7 - 0.5 * 25.0]]))


# The whole. --------------------------------------------------------------------------------


@pytest.mark.parametrize("adaptation", ["full", "film"])
@pytest.mark.parametrize("second", [(2, 3), (0, 1)])  # new classes, or a new domain
def test_answers_are_those_of_the_discriminant_on_the_trained_vit(
    adaptation: str, second: tuple[int, ...]
) -> None:
    method, tasks = learned((0, 1), second, adaptation=adaptation, ridge=0.5)
    vit = small_backbone().vit  # the same values, to be changed for good
    vit.load_state_dict(method.vit.tensors(), strict=False)
    images = torch.cat([task.images for task in tasks])
    labels = np.concatenate([task.labels.numpy() for task in tasks])
    with torch.no_grad():
        assert not torch.allclose(vit(images), method.backbone(images), atol=1e-3)
        features = vit.forward_features(images)[:, 0].numpy()
        logits = method.predict(images, torch.zeros(len(images), DIM)).logits.numpy()
    expected = by_hand(features, labels, 0.5, features)
    np.testing.assert_allclose(logits, expected, atol=1e-3 * abs(expected).max())


def first_session(dropout: float) -> tuple[Fsa, Task, Any]:
    method = Fsa(FsaConfig(dropout=dropout), small_backbone())
    task = Task(0, (0, 1), method.backbone)
    method.begin_task(task)
    return method, task, method.phases(task)[0].step


def test_the_first_session_minimises_the_cross_entropy_of_a_linear_head() -> None:
    method, task, step = first_session(dropout=0.0)
    head = method.session_head
    logits = method.backbone(task.images) @ head.weight.T + head.bias
    expected = -logits.log_softmax(1)[torch.arange(12), task.labels].mean()
    close(step(Batch(task.images, task.labels))["ce"], expected)


@torch.no_grad()
def test_a_share_of_each_feature_is_dropped_in_training_only() -> None:
    method, task, step = first_session(dropout=0.25)
    batch = Batch(task.images, task.labels)
    assert step(batch)["ce"] != step(batch)["ce"]
    plain = method.backbone(task.images)
    assert torch.equal(method.features(task.images), plain)
    ratio = method.features(task.images, training=True) / plain
    assert (((ratio - 4 / 3).abs() < 1e-4) | (ratio == 0)).all()
    assert 0.1 < (ratio == 0).float().mean() < 0.4
