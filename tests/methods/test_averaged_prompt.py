"""Averaged prompt against its formulas written out in NumPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import Task, learn, small_backbone
from torch import Tensor

import hashprompt
from hashprompt.methods.averaged_prompt.config import AveragedPromptConfig
from hashprompt.methods.averaged_prompt.method import AveragedPrompt


def make(**options: Any) -> tuple[AveragedPrompt, list[Task]]:
    backbone = small_backbone()
    sizes: dict[str, Any] = {"prompt_length": 3, "batch_size": 4, "lr": 5.0, "first_lr_scale": 1}
    method = AveragedPrompt(AveragedPromptConfig(**{**sizes, **options}), backbone)
    return method, [Task(t, (2 * t, 2 * t + 1), backbone) for t in range(3)]


@torch.no_grad()
def one_by_one(method: AveragedPrompt, images: Tensor) -> np.ndarray:
    return torch.cat([method.features(image[None]) for image in images]).double().numpy()


def moved(mean: np.ndarray, before: np.ndarray, after: np.ndarray, ridge: float) -> np.ndarray:
    """Where a mean goes: the average shift, and a ridge regression of the rest on the features."""
    centred = before - before.mean(0)
    rest = (after - before) - (after - before).mean(0)
    gram = centred.T @ centred / len(before)
    damping = ridge * np.trace(gram) / len(gram)
    slope = np.linalg.inv(gram + damping * np.eye(len(gram))) @ (centred.T @ rest) / len(before)
    return mean + (after - before).mean(0) + (mean - before.mean(0)) @ slope


def test_the_prompt_in_use_averages_what_tasks_left_by_their_classes() -> None:
    method, tasks = make()
    tasks[1] = Task(1, (2, 3, 4, 5), method.backbone)
    left = []
    for task in tasks[:2]:
        learn(method, task)
        left.append(method.prompt.detach().clone())
    assert not torch.equal(left[0], left[1])
    expected = (2 * left[0] + 4 * left[1]) / 6
    torch.testing.assert_close(method.average[0], expected)
    features = one_by_one(method, tasks[1].images)
    with torch.no_grad():
        direct = method.prompted(tasks[1].images, expected).numpy()
    np.testing.assert_allclose(features, direct, rtol=1e-4, atol=1e-5)


def test_training_resumes_from_the_prompt_that_the_last_task_left() -> None:
    method, tasks = make()
    learn(method, tasks[0])
    learn(method, tasks[1])
    left = method.prompt.detach().clone()
    assert not torch.equal(left, method.average[0])
    method.begin_task(tasks[2])
    assert torch.equal(method.prompt, left)


def test_old_means_follow_an_affine_map_of_the_new_images() -> None:
    method, tasks = make(drift_ridge=0.2, batch_size=8)
    learn(method, tasks[0])
    means = method.gaussians.means.double().numpy()
    images = tasks[1].images
    before = one_by_one(method, images)
    learn(method, tasks[1])
    after = one_by_one(method, images)
    for cell in (0, 1):
        expected = moved(means[cell], before, after, 0.2)
        assert np.abs(expected - means[cell]).max() > 1e-2  # there is something to follow
        found = method.gaussians.means[cell].double().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert len(method.before) == 0  # no features of images are kept


def test_compensated_means_are_nearer_to_where_old_images_are() -> None:
    away = {}
    for drift in ("none", "shift", "affine"):
        method, tasks = make(drift=drift)
        for task in tasks[:2]:
            learn(method, task, epochs=6)
        now = one_by_one(method, tasks[0].images)
        truth = np.stack([now[tasks[0].labels == label].mean(0) for label in (0, 1)])
        away[drift] = np.linalg.norm(method.gaussians.means[:2].numpy() - truth)
    assert max(away["shift"], away["affine"]) < 0.8 * away["none"], away


def test_an_answer_is_one_pass_and_a_regularised_discriminant() -> None:
    method, tasks = make(ridge=0.3)
    for task in tasks[:2]:
        learn(method, task)
    assert not method.asks_plain
    images = torch.cat([task.images for task in tasks[:2]])
    method.backbone.passes.clear()
    with torch.no_grad():
        answer = method.predict(images)
    assert dict(method.backbone.passes) == {"prompted": len(images)}
    features = one_by_one(method, images)
    means = method.gaussians.means.double().numpy()
    spread = method.gaussians.covariances().double().numpy()
    shared = spread.mean(0)
    ridge = 0.3 * np.trace(shared) / len(shared) * np.eye(len(shared))
    assert answer.task is not None
    for row, feature in enumerate(features):
        scores = []
        for mean, own in zip(means, spread, strict=True):
            matrix = 0.05 * own + 0.95 * shared + ridge
            away = feature - mean
            inside = away @ np.linalg.inv(matrix) @ away + np.linalg.slogdet(matrix)[1]
            scores.append(-0.5 * inside)
        np.testing.assert_allclose(answer.logits[row].numpy(), scores, rtol=1e-3, atol=1e-3)
        assert int(answer.task[row]) == int(np.argmax(scores)) // 2


def test_without_epochs_frozen_features_answer_and_no_prompt_is_used() -> None:
    method, tasks = make(epochs=0)
    for task in tasks[:2]:
        learn(method, task)
    assert set(method.backbone.passes) == {"plain"}
    assert method.asks_plain
    with torch.no_grad():
        plain = method.backbone(tasks[0].images)
        torch.testing.assert_close(
            method.predict(tasks[0].images, plain).logits, method.predict(tasks[0].images).logits
        )
    expected = torch.stack([plain[tasks[0].labels == label].mean(0) for label in (0, 1)])
    torch.testing.assert_close(method.gaussians.means[:2], expected)


def test_frozen_classes_follow_into_the_features_of_the_first_prompt() -> None:
    method, tasks = make(drift_ridge=0.2)
    trained = method.config
    method.config = trained.model_copy(update={"epochs": 0})
    learn(method, tasks[0])
    means = method.gaussians.means.double().numpy()
    before = one_by_one(method, tasks[1].images)
    method.config = trained
    learn(method, tasks[1])
    after = one_by_one(method, tasks[1].images)
    expected = moved(means[0], before, after, 0.2)
    found = method.gaussians.means[0].double().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert not method.asks_plain
    method.config = trained.model_copy(update={"epochs": 0})
    prompt = method.average.clone()
    learn(method, tasks[2])  # is described by the prompt that is there
    assert torch.equal(method.average, prompt)
    own = one_by_one(method, tasks[2].images)[(tasks[2].labels == 4).numpy()].mean(0)
    np.testing.assert_allclose(method.gaussians.means[4].numpy(), own, rtol=1e-4, atol=1e-5)


def test_the_first_task_has_a_learning_rate_of_its_own() -> None:
    method, tasks = make(lr=0.512, first_lr_scale=3.0)
    rates = []
    for task in tasks[:2]:
        method.begin_task(task)
        train = next(phase for phase in method.phases(task) if phase.step)
        rates.append([group.lr for group in train.groups])
        learn(method, task)
    head_first = [[0.0024, 0.024], [0.0008, 0.008]]
    assert rates == [pytest.approx(each) for each in head_first]


def test_a_small_run_has_the_accuracy_matrix_that_it_always_had(tmp_path: Path) -> None:
    """Of 60 test images in each task, in counts: no digit may move unnoticed."""
    small = {"tasks": 3, "classes": 12, "train_per_class": 8, "test_per_class": 15}
    result = hashprompt.run(
        "averaged-prompt", out=tmp_path / "run", quiet=True, epochs=2, batch_size=16, **small
    )
    correct = [[x if x is None else round(0.6 * x, 6) for x in row] for row in result.accuracy]
    assert correct == [[39, 31, 27], [None, 32, 23], [None, None, 30]]
