"""The linear probe, against scikit-learn."""

from functools import partial

import fakes
import numpy as np
import pytest
import torch
from fakes import DIM
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from hashprompt.methods.linear_probe.method import fit_logistic

learned = partial(fakes.learned, "linear-probe")


def reference(features: Tensor, labels: Tensor, l2: float) -> LogisticRegression:
    model = LogisticRegression(C=1 / l2, tol=1e-10, max_iter=10_000)
    return model.fit(features.double().numpy(), labels.numpy())


@pytest.mark.parametrize("l2", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("images", [200, 9])  # more than dimensions, and fewer
def test_the_fit_is_that_of_scikit_learn(l2: float, images: int) -> None:
    torch.manual_seed(0)
    labels = torch.arange(images) % 3
    features = 5 + torch.randn(images, 12) * torch.linspace(0.2, 4, 12)  # off centre, uneven
    features[:, 3] += labels
    weight, bias = fit_logistic(features, labels, l2)
    expected = reference(features, labels, l2)
    np.testing.assert_allclose(weight, expected.coef_, atol=2e-4 * abs(expected.coef_).max())
    queries = 5 + torch.randn(50, 12)
    found = (queries @ weight.T + bias).softmax(1)
    np.testing.assert_allclose(found, expected.predict_proba(queries.numpy()), atol=1e-3)


@pytest.mark.parametrize("second", [(3, 4), (0, 1, 2)])  # new classes, or a new domain
def test_after_every_task_it_is_fitted_to_all_features_so_far(second: tuple[int, ...]) -> None:
    method, tasks = learned((0, 1, 2), second, l2=0.5)
    features = torch.cat([task.features() for task in tasks])
    labels = torch.cat([task.labels for task in tasks])
    images = torch.cat([task.images for task in tasks])
    expected = reference(features, labels, 0.5).predict_proba(features.double().numpy())
    for plain in (None, features):
        found = method.predict(images, plain).logits.softmax(1)
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_tasks_in_another_order_give_the_same_classifier() -> None:
    torch.manual_seed(0)
    features, labels = torch.randn(40, DIM), torch.arange(40) % 4
    order = torch.randperm(40)
    one, other = (
        fit_logistic(features, labels, 1.0),
        fit_logistic(features[order], labels[order], 1.0),
    )
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_one_class_and_one_image_can_be_learned() -> None:
    weight, bias = fit_logistic(torch.ones(1, 3), torch.zeros(1, dtype=torch.long), 1.0)
    assert weight.shape == (1, 3)
    assert torch.cat((weight.flatten(), bias)).isfinite().all()
