"""Forgetting and merging classes of Averaged prompt."""

from typing import Any

import pytest
import torch
from fakes import Task, learn, small_backbone

from hashprompt.methods.averaged_prompt.config import AveragedPromptConfig
from hashprompt.methods.averaged_prompt.method import AveragedPrompt
from hashprompt.methods.averaged_prompt.relabelling import relabel

TASKS = ((0, 1, 2), (3,), (1, 4))  # class 3 is alone in its task, class 1 came twice


@pytest.fixture(params=["covariance", "low-rank", "multi-centroid"])
def method(request: pytest.FixtureRequest) -> AveragedPrompt:
    """After three tasks."""
    backbone = small_backbone()
    options: dict[str, Any] = {"statistics": request.param, "prompt_length": 3, "rank": 4}
    learned = AveragedPrompt(AveragedPromptConfig(batch_size=4, **options), backbone)
    for index, classes in enumerate(TASKS):
        learn(learned, Task(index, classes, backbone, per_class=12))
    return learned.eval()


@pytest.mark.parametrize("forgotten", [0, 1, 3, 4])
@torch.no_grad()
def test_forgetting_leaves_the_scores_of_all_other_gaussians(
    method: AveragedPrompt, forgotten: int
) -> None:
    kept = [cell for cell, label in enumerate(method.cells.label.tolist()) if label != forgotten]
    means, covariances = method.gaussians.means[kept], method.gaussians.covariances(kept)
    task = method.cells.task[kept].unique(return_inverse=True)[1]
    head = method.head.weight.clone()
    relabel(method, [c - (c > forgotten) if c != forgotten else None for c in range(5)], [12] * 5)
    assert torch.equal(method.gaussians.means, means)
    torch.testing.assert_close(method.gaussians.covariances(), covariances)
    assert torch.equal(method.cells.task, task)
    assert torch.equal(method.head.weight, head[[c for c in range(5) if c != forgotten]])
    assert method.predict(torch.randn(3, 3, 16, 16)).logits.shape == (3, 4)


@torch.no_grad()
def test_gaussians_of_merged_classes_stay_side_by_side(method: AveragedPrompt) -> None:
    means, weight = method.gaussians.means.clone(), method.head.weight.clone()
    images = torch.randn(4, 3, 16, 16)
    scores = method.discriminant().scores(method.features(images))
    relabel(method, [0, 1, 0, 2, 0], [1, 5, 7, 5, 2])  # classes 0, 2 and 4 become one
    assert torch.equal(method.gaussians.means, means)
    assert method.cells.label.tolist() == [0, 1, 0, 2, 1, 0]
    merged = (1 * weight[0] + 7 * weight[2] + 2 * weight[4]) / 10
    torch.testing.assert_close(method.head.weight, torch.stack((merged, weight[1], weight[3])))
    best = scores[:, [0, 2, 5]].max(1).values  # the nearest of the Gaussians of the class
    torch.testing.assert_close(method.predict(images).logits[:, 0], best)
