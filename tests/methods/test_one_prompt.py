"""One prompt for all tasks: an answer is one pass, and little has to be kept."""

from typing import Any

import numpy as np
import pytest
import torch
from by_hand import DIM, learn
from one_pool import make_hash, under_router

from hashprompt.methods.relabelling import relabel

SHARED: dict[str, Any] = {
    **{"router_next": "same", "experts": 1, "top_k": 1, "protected": 1},
    **{"hdr": False, "hgm": False, "ridge": 0.3},
}


def test_one_prompt_answers_in_one_pass() -> None:
    method, tasks = make_hash(**SHARED)
    for task in tasks[:2]:
        learn(method, task)
    assert not method.asks_plain
    images = torch.cat([task.images for task in tasks[:2]])
    method.backbone.passes.clear()
    with torch.no_grad():
        answer = method.predict(images)
    assert dict(method.backbone.passes) == {"prompted": len(images)}
    features = under_router(method, images, 0)
    np.testing.assert_allclose(answer.features.numpy(), features, rtol=1e-4, atol=1e-5)
    means = method.prompted_stats.means.double().numpy()
    spread = method.prompted_stats.covariances().double().numpy()
    shared = spread.mean(0)
    ridge = 0.3 * np.trace(shared) / len(shared) * np.eye(len(shared))
    for row, feature in enumerate(features):
        scores = []
        for mean, own in zip(means, spread, strict=True):
            matrix = 0.05 * own + 0.95 * shared + ridge
            away = feature - mean
            inside = away @ np.linalg.inv(matrix) @ away + np.linalg.slogdet(matrix)[1]
            scores.append(-0.5 * inside)
        np.testing.assert_allclose(answer.logits[row].numpy(), scores, rtol=1e-3, atol=1e-3)
        assert int(answer.task[row]) == int(np.argmax(scores)) // 2


@pytest.mark.parametrize(
    "options",
    [
        {"voters": ("plain",)},
        {"tii": "sgd", "tii_epochs": 0},
        {"align": "sgd"},
        {"base": "first"},
        {"router_input": "plain"},
        {"router_next": "copy"},
    ],
)
def test_two_passes_where_plain_features_have_a_say(options: dict[str, Any]) -> None:
    method, tasks = make_hash(**{**SHARED, **options})
    learn(method, tasks[0])
    assert method.asks_plain
    with torch.no_grad():
        assert method.predict(tasks[0].images).features is None


def test_prompts_that_are_there_serve_tasks_that_train_nothing() -> None:
    method, tasks = make_hash(**SHARED)
    learn(method, tasks[0])
    pool = method.pool.prompts.detach().clone()
    method.config = method.config.model_copy(update={"epochs": 0})
    learn(method, tasks[1])
    assert torch.equal(method.pool.prompts, pool)
    assert method.plain_tasks().tolist() == [False, False]
    assert not method.asks_plain
    features = under_router(method, tasks[1].images, 0)
    for label in (2, 3):
        own = features[(tasks[1].labels == label).numpy()]
        found = method.prompted_stats.means[label].numpy()
        np.testing.assert_allclose(found, own.mean(0), rtol=1e-4, atol=1e-5)


def test_a_first_task_that_trains_nothing_stays_plain_and_needs_both_passes() -> None:
    method, tasks = make_hash(**SHARED)
    trained = method.config
    method.config = trained.model_copy(update={"epochs": 0})
    learn(method, tasks[0])
    assert method.plain_tasks().tolist() == [True]
    method.config = trained
    learn(method, tasks[1])
    assert method.plain_tasks().tolist() == [True, False]
    assert method.asks_plain
    assert len(method.plain_stats) == 4  # task inference stands on them


# What need not be kept. ------------------------------------------------------------------------


def test_plain_gaussians_are_not_kept_where_nobody_asks_for_them() -> None:
    method, tasks = make_hash(**SHARED)
    method.backbone.passes.clear()
    for task in tasks:
        learn(method, task)
    assert len(method.plain_stats) == 0
    assert method.backbone.passes["plain"] == 0
    assert method.plain_tasks().tolist() == [False, False, False]


def test_forgetting_works_where_plain_gaussians_end_before_the_others() -> None:
    method, tasks = make_hash(**SHARED)
    trained = method.config
    method.config = trained.model_copy(update={"epochs": 0})
    learn(method, tasks[0])  # plain, so the next task has plain Gaussians, too
    method.config = trained
    learn(method, tasks[1])
    relabel(method, [None, None, 0, 1], [6] * 4)  # now nobody asks for them
    tasks[2].index, tasks[2].classes = 1, (2, 3)
    tasks[2].labels = tasks[2].labels - 2
    learn(method, tasks[2])
    assert (len(method.plain_stats), len(method.prompted_stats)) == (2, 4)
    kept = method.prompted_stats.means[[1, 2, 3]].clone()
    relabel(method, [None, 0, 1, 2], [6] * 4)
    assert len(method.plain_stats) == 1
    assert torch.equal(method.prompted_stats.means, kept)
    with torch.no_grad():
        assert method.predict(tasks[2].images).logits.shape == (12, 3)


def test_one_covariance_for_all_classes_gives_the_same_linear_discriminant() -> None:
    answers, numbers = {}, {}
    for statistics in ("covariance", "pooled"):
        method, tasks = make_hash(**SHARED, statistics=statistics, shrinkage=1.0)
        for task in tasks:
            learn(method, task)
        images = torch.cat([task.images for task in tasks])
        with torch.no_grad():
            answers[statistics] = method.predict(images).logits
        numbers[statistics] = sum(b.numel() for b in method.prompted_stats.buffers())
    assert answers["covariance"].std(1).min() > 0.01  # there is something to tell
    torch.testing.assert_close(answers["pooled"], answers["covariance"], rtol=1e-4, atol=1e-3)
    assert numbers == {"covariance": 6 * (DIM + DIM**2), "pooled": 6 * DIM + DIM**2 + 6}


def test_tasks_that_move_by_themselves_keep_covariances_of_their_own() -> None:
    found = {}
    for statistics in ("covariance", "pooled"):
        own: dict[str, Any] = {"router_next": "copy", "experts": 4, "top_k": 2}
        method, tasks = make_hash(**{**SHARED, **own}, statistics=statistics)
        for task in tasks:
            learn(method, task)
        found[statistics] = method.prompted_stats.covariances()
    of_tasks = found["covariance"].unflatten(0, (3, 2)).mean(1)
    torch.testing.assert_close(method.prompted_stats.spread, of_tasks, rtol=1e-4, atol=1e-4)
