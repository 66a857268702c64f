"""Hash whose Gaussians of old classes follow the pool, against the ridge map written out."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from by_hand import Task, learn
from one_pool import make_hash, under_router
from torch import Tensor

from hashprompt.methods.hash.method import HashConfig
from hashprompt.parts.cut_mix import cut_mix
from hashprompt.parts.drift import ridge_for_other_classes


def moved(mean: np.ndarray, before: np.ndarray, after: np.ndarray, ridge: float) -> np.ndarray:
    """Where a mean goes: the average shift, and a ridge regression of the rest on the features."""
    centred = before - before.mean(0)
    rest = (after - before) - (after - before).mean(0)
    gram = centred.T @ centred / len(before)
    damping = ridge * np.trace(gram) / len(gram)
    slope = np.linalg.inv(gram + damping * np.eye(len(gram))) @ (centred.T @ rest) / len(before)
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


def test_mixtures_of_new_images_tell_the_drift_too() -> None:
    method, tasks = make_hash(drift_ridge=0.2, drift_views=2, batch_size=8, hdr=False, hgm=False)
    learn(method, tasks[0])
    means = method.prompted_stats.means.double().numpy()
    with torch.random.fork_rng():
        torch.manual_seed(1)  # the number of the task
        seen = [tasks[1].images]
        for _ in range(2):
            seen += [cut_mix(b.inputs, 1.0)[0] for b in tasks[1].batches(8, "train")]
    images = torch.cat(seen)
    assert len(images) == 3 * len(tasks[1].images)
    chance = torch.get_rng_state()
    before = under_router(method, images, 0)
    learn(method, tasks[1])
    after = under_router(method, images, 0)
    own = slice(len(tasks[1].images))
    for cell in (0, 1):
        expected = moved(means[cell], before, after, 0.2)
        found = method.prompted_stats.means[cell].double().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
        without = moved(means[cell], before[own], after[own], 0.2)
        assert np.abs(expected - without).max() > 1e-3
    method._under_old_routers(tasks[1])
    torch.set_rng_state(chance)
    method._under_old_routers(tasks[1])
    assert torch.equal(torch.get_rng_state(), chance)  # the chance of training is its own


# The damping of the map, the pool in use, and features that are held. --------------------------


def test_damping_is_the_one_that_tells_most_of_classes_left_out() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 8)
    before = rng.normal(size=(32, 5)) + 3 * rng.normal(size=(4, 5))[labels]
    after = before @ (np.eye(5) + 0.3 * rng.normal(size=(5, 5))) + rng.normal(size=(32, 5))
    ridges = (1.0, 0.01, 30.0, torch.inf)
    errors = []
    for ridge in ridges:
        total = 0.0
        for label in range(4):
            rest, out = labels != label, labels == label
            for x, y in zip(before[out], after[out], strict=True):
                shift = (after[rest] - before[rest]).mean(0)
                told = x + shift
                if ridge < torch.inf:
                    told = moved(x, before[rest], after[rest], ridge)
                total += ((told - y) ** 2).sum()
        errors.append(total)
    found = ridge_for_other_classes(
        torch.tensor(before), torch.tensor(after), torch.tensor(labels), ridges
    )
    assert found == ridges[int(np.argmin(errors))]
    assert found != ridges[0]  # it is a choice
    one = torch.zeros(32, dtype=torch.long)
    assert ridge_for_other_classes(torch.tensor(before), torch.tensor(after), one, ridges) == 1.0


@pytest.mark.parametrize("classes", [(2, 3), (2,)])
def test_damping_is_chosen_anew_for_every_task(classes: tuple[int, ...]) -> None:
    method, tasks = make_hash(drift_ridge_by="classes", drift_ridge=0.2)
    new = Task(1, classes, method.backbone)
    learn(method, tasks[0])
    means = method.prompted_stats.means.double().numpy()
    before = under_router(method, new.images, 0)
    learn(method, new)
    after = under_router(method, new.images, 0)
    pair = torch.from_numpy(before), torch.from_numpy(after)
    ridges = (0.2, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, torch.inf)
    chosen = ridge_for_other_classes(*pair, new.labels, ridges)
    assert (chosen == 0.2) == (len(classes) == 1)  # of one class none can be left out
    for cell in (0, 1):
        expected = moved(means[cell], before, after, min(chosen, 1e12))
        found = method.prompted_stats.means[cell].double().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_the_pool_in_use_goes_a_part_of_the_way_and_training_goes_on_from_the_trained_one() -> None:
    whole, tasks = make_hash(lr=0.5, contrastive=0.0)  # it would see other means
    damped, _ = make_hash(lr=0.5, contrastive=0.0, deploy=0.25)
    for learner in (whole, damped):
        torch.manual_seed(0)
        learn(learner, tasks[0])
    first = whole.pool.prompts.detach().clone()
    assert torch.equal(damped.pool.prompts, first)  # there is nothing old to be careful of
    for learner in (whole, damped):
        torch.manual_seed(1)
        learn(learner, tasks[1])
    assert torch.equal(damped.trained, whole.pool.prompts)
    expected = first + 0.25 * (whole.pool.prompts - first)
    torch.testing.assert_close(damped.pool.prompts.detach(), expected.detach())
    assert not len(damped.old_pool)  # kept only while a task is learned
    used = damped.pool.prompts.detach().clone()
    for learner in (whole, damped):
        torch.manual_seed(2)
        learn(learner, tasks[2])
    assert torch.equal(damped.trained, whole.pool.prompts)  # not from the pool in use
    expected = used + 0.25 * (damped.trained - used)
    torch.testing.assert_close(damped.pool.prompts.detach(), expected)


def test_an_averaged_pool_is_the_mean_of_what_tasks_left_by_their_classes() -> None:
    method, tasks = make_hash(lr=0.5, deploy="average")
    backbone = method.backbone
    tasks[1] = Task(1, (2, 3, 4, 5), backbone)
    tasks[2] = Task(2, (6, 7), backbone)
    left = []
    for task in tasks:
        learn(method, task)
        left.append(method.trained.double().numpy())
    assert not np.allclose(left[0], left[1])
    assert not np.allclose(left[1], left[2])
    expected = (2 * left[0] + 4 * left[1] + 2 * left[2]) / 8
    found = method.pool.prompts.detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_tasks_that_trained_no_prompts_have_no_part_in_the_average() -> None:
    method, tasks = make_hash(**ONE, experts=1, top_k=1, protected=1, deploy="average")
    trained = method.config
    method.config = trained.model_copy(update={"epochs": 0})
    learn(method, tasks[0])
    method.config = trained
    left = []
    for task in tasks[1:]:
        learn(method, task)
        left.append(method.trained.clone())
    torch.testing.assert_close(method.pool.prompts.detach(), (left[0] + left[1]) / 2)


@pytest.mark.parametrize("how", [{"epochs": 0}, {"fewest_classes": 3}])
def test_tasks_that_use_the_prompt_that_is_there_have_no_part_in_it_either(
    how: dict[str, int],
) -> None:
    one: dict[str, Any] = {"experts": 1, "top_k": 1, "protected": 1, "lr": 0.5, "lr_decay": 1.0}
    method, tasks = make_hash(**ONE, **one, deploy="average")
    trained, left = method.config, []
    for task, config in zip(tasks, (trained, trained.model_copy(update=how), trained), strict=True):
        method.config = config
        if config is trained and left:
            (phase,) = (p for p in method.prompt_phases(task) if p.name == "wtp")
            assert phase.groups[0].lr == pytest.approx(0.5 * 4 / 256 / 2)  # the second to train
        learn(method, task)
        left.append(method.trained.clone())
    assert torch.equal(left[0], left[1])
    assert not torch.equal(left[1], left[2])
    torch.testing.assert_close(method.pool.prompts.detach(), (left[0] + left[2]) / 2)


@pytest.mark.parametrize("deploy", [0, 1.5, "mean"])
def test_other_ways_to_deploy_are_refused(deploy: Any) -> None:
    with pytest.raises(ValueError, match="deploy"):
        HashConfig(deploy=deploy)


def test_gaussians_are_those_of_the_pool_in_use() -> None:
    method, tasks = make_hash(deploy=0.25, drift="ignore")
    for task in tasks[:2]:
        learn(method, task)
    seen = under_router(method, tasks[1].images, 1)
    for label in (2, 3):
        own = seen[(tasks[1].labels == label).numpy()]
        np.testing.assert_allclose(
            method.prompted_stats.means[label].numpy(), own.mean(0), rtol=1e-4, atol=1e-5
        )


def test_distillation_is_the_squared_way_of_features_over_their_old_variance() -> None:
    method, tasks = make_hash(distil=2.0, lr=0.5)
    learn(method, tasks[0])
    variance = method.prompted_stats.covariances().diagonal(dim1=1, dim2=2).mean().item()
    before = under_router(method, tasks[1].images, 0)
    method.begin_task(tasks[1])
    method._take_up(tasks[1])
    method.pool.prompts.data += 0.3 * torch.randn_like(method.pool.prompts)
    after = under_router(method, tasks[1].images, 0)
    expected = np.mean((after - before) ** 2) / variance
    tokens = method.backbone.embed(tasks[1].images)
    found = method.distillation(tokens, None, 1)
    assert found.item() > 1e-3
    assert found.item() == pytest.approx(expected, rel=1e-3)
    found.backward()
    assert method.pool.prompts.grad is not None
    assert method.pool.prompts.grad.abs().max() > 0


def test_held_features_move_less() -> None:
    ways = []
    for distil in (0.0, 100.0):
        method, tasks = make_hash(distil=distil, lr=1.0)
        learn(method, tasks[0])
        before = under_router(method, tasks[1].images, 0)
        learn(method, tasks[1], steps=10)
        ways.append(((under_router(method, tasks[1].images, 0) - before) ** 2).mean())
    assert ways[1] < 0.5 * ways[0]


# One router for all tasks. ------------------------------------------------------------------

ONE = {"router_next": "same", "hdr": False, "hgm": False}


def test_with_one_router_features_do_not_depend_on_the_task_and_means_follow() -> None:
    method, tasks = make_hash(**ONE, drift_ridge=0.2)
    for task in tasks[:2]:
        learn(method, task)
    assert method.routers.tasks == 1
    means = method.prompted_stats.means.double().numpy()
    router = method.routers.current.detach().clone()
    before = under_router(method, tasks[2].images, 0)
    learn(method, tasks[2])
    after = under_router(method, tasks[2].images, 0)
    assert np.array_equal(after, under_router(method, tasks[2].images, 2))
    assert not torch.equal(router, method.routers.current)  # it goes on learning
    for cell in range(4):
        expected = moved(means[cell], before, after, 0.2)
        found = method.prompted_stats.means[cell].double().numpy()
        assert np.abs(expected - means[cell]).max() > 1e-2
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_distillation_holds_the_features_that_the_one_router_gave_before() -> None:
    method, tasks = make_hash(**ONE, distil=2.0, lr=0.5)
    learn(method, tasks[0])
    variance = method.prompted_stats.covariances().diagonal(dim1=1, dim2=2).mean().item()
    before = under_router(method, tasks[1].images, 0)
    method.begin_task(tasks[1])
    method._take_up(tasks[1])
    method.routers.current.data += torch.randn_like(method.routers.current)  # the pool stays
    after = under_router(method, tasks[1].images, 0)
    found = method.distillation(method.backbone.embed(tasks[1].images), None, 1)
    assert found.item() > 1e-3
    assert found.item() == pytest.approx(np.mean((after - before) ** 2) / variance, rel=1e-3)
    method.end_task(tasks[1])
    assert len(method.old_router) == len(method.old_pool) == 0


@pytest.mark.parametrize("options", [{"hdr": True}, {"hdr": False, "deploy": 0.5}])
def test_one_router_is_refused_with_what_needs_one_of_each_task(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="router_next=same goes without"):
        HashConfig(router_next="same", **options)


def test_one_prompt_may_be_deployed_part_of_the_way() -> None:
    """Its router has nothing to decide, so it need not stay where it was trained."""
    method, tasks = make_hash(**ONE, experts=1, top_k=1, protected=1, deploy=0.25)
    learn(method, tasks[0])
    old = method.pool.prompts.detach().clone()
    learn(method, tasks[1])
    assert not torch.equal(method.trained, old)
    torch.testing.assert_close(method.pool.prompts.detach(), old + 0.25 * (method.trained - old))


def test_the_first_task_has_a_rate_of_its_own() -> None:
    method, tasks = make_hash(lr=0.5, first_lr_scale=4.0)
    for task in tasks[:2]:
        learn(method, task)
    phases = [phase for task in tasks[:2] for phase in method.prompt_phases(task)]
    rates = [[group.lr for group in phase.groups] for phase in phases if phase.name == "wtp"]
    batch = 4 / 256
    assert rates == [
        [pytest.approx(2.0 * batch), pytest.approx(0.2 * batch)],
        [pytest.approx(0.5 * batch), pytest.approx(0.05 * batch)],
    ]


def test_rates_fall_with_the_number_of_trained_tasks() -> None:
    method, tasks = make_hash(lr=0.6, lr_decay=0.5)
    rates = []
    for task, following in pairwise(tasks):
        learn(method, task)
        (phase,) = (phase for phase in method.prompt_phases(following) if phase.name == "wtp")
        rates.append(phase.groups[0].lr * 256 / 4)
    assert rates == [pytest.approx(0.6 / 2**0.5), pytest.approx(0.6 / 3**0.5)]


# Two tasks that answer together. ------------------------------------------------------------


@torch.no_grad()
def test_unsure_images_are_answered_by_their_two_likeliest_tasks() -> None:
    method, tasks = make_hash(ridge=30.0)  # so flat that few are sure
    with torch.enable_grad():
        for task in tasks:
            learn(method, task)
    images = torch.cat([task.images for task in tasks])
    tokens = method.backbone.embed(images)
    plain = method.backbone.encode(tokens)
    cells = method.discriminant("base").scores(plain)
    chances = cells.double().view(len(images), 3, 2).amax(2).softmax(1)  # two classes a task

    def under(task: int) -> Tensor:
        features = method.prompted(tokens, torch.full((len(images),), task))
        return method.discriminant("prompted").scores(features).double().softmax(1)

    answers = torch.stack([under(task) for task in range(3)], 1)  # (B, T, C)
    expected = []
    for own, chance in zip(answers, chances, strict=True):
        first, second = chance.argsort(descending=True)[:2]
        if chance[first] < 0.6:
            both = chance[first] * own[first] + chance[second] * own[second]
            expected.append(both / (chance[first] + chance[second]))
        else:
            expected.append(own[first])
    alone = method.predict(images).logits.softmax(1)
    method.config = method.config.model_copy(update={"second_task": 0.6})
    found = method.predict(images).logits.softmax(1)
    unsure = int((chances.max(1).values < 0.6).sum())
    assert 0 < unsure < len(images), unsure
    assert (alone - found).abs().max() > 1e-3
    torch.testing.assert_close(found.double(), torch.stack(expected), rtol=1e-3, atol=1e-5)
    one = torch.cat([method.predict(image[None]).logits.softmax(1) for image in images])
    torch.testing.assert_close(one, found, rtol=1e-4, atol=1e-6)


# Features under the prompts of the first task. ------------------------------------------------

ONE_PROMPT = {**ONE, "experts": 1, "top_k": 1, "protected": 1}


@pytest.mark.parametrize("options", [{"hdr": False, "hgm": False}, ONE, ONE_PROMPT])
def test_base_features_are_those_of_the_first_task_for_ever(options: dict[str, Any]) -> None:
    method, tasks = make_hash(**options, base="first")
    learn(method, tasks[0])
    images = torch.cat([task.images for task in tasks])
    then = under_router(method, images, 0)
    for task in tasks[1:]:
        learn(method, task)
    assert np.abs(under_router(method, images, 0) - then).max() > 1e-2  # the pool went on
    labels = torch.cat([task.labels for task in tasks]).numpy()
    for label in range(6):
        own = then[labels == label]
        found = method.first_stats.means[label].numpy(), method.first_stats.covariances()[label]
        np.testing.assert_allclose(found[0], own.mean(0), rtol=1e-4, atol=1e-5)
        wanted = np.cov(own.T) + 1e-4 * np.eye(own.shape[1])
        np.testing.assert_allclose(found[1].numpy(), wanted, rtol=1e-3, atol=1e-5)
    # They tell the task of an image, whatever its plain features say.
    nearest = method.discriminant("base").scores(torch.from_numpy(then).float()).argmax(1)
    told = method.predict(images, torch.zeros(len(images), method.backbone.dim))
    assert told.task is not None
    assert torch.equal(told.task, nearest // 2)
    assert torch.equal(told.first_guess, nearest)


def test_without_prompts_in_the_first_task_base_features_are_plain() -> None:
    method, tasks = make_hash(hdr=False, hgm=False, base="first")
    method.config = method.config.model_copy(update={"epochs": 0})
    learn(method, tasks[0])
    method.config = method.config.model_copy(update={"epochs": 2})
    learn(method, tasks[1])
    assert torch.equal(method.first_stats.means, method.plain_stats.means)
    tokens = method.backbone.embed(tasks[1].images)
    plain = method.backbone.encode(tokens)
    assert torch.equal(method.base_features(tokens, plain), plain)


@pytest.mark.parametrize("options", [{"hdr": False, "tii": "sgd"}, {"tii": "discriminant"}])
def test_base_features_are_refused_where_they_would_not_stay(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="base=first needs tii=discriminant"):
        HashConfig(base="first", **options)


# A pool that stays where tasks are small. ------------------------------------------------------


def test_small_tasks_are_learned_with_the_prompts_that_are_there() -> None:
    method, tasks = make_hash(hdr=False, hgm=False, fewest_classes=3)
    learn(method, tasks[0])
    pool, router = method.pool.prompts.detach().clone(), method.routers.current.detach().clone()
    for task in tasks[1:]:
        learn(method, task)
    assert torch.equal(method.pool.prompts, pool)
    assert all(torch.equal(other, router) for other in method.routers.stacked())
    images = torch.cat([task.images for task in tasks])
    labels = torch.cat([task.labels for task in tasks]).numpy()
    features = under_router(method, images, 0)
    for label in range(6):
        found = method.prompted_stats.means[label].numpy()
        np.testing.assert_allclose(found, features[labels == label].mean(0), rtol=1e-4, atol=1e-5)
    assert method.predict(images).logits.shape == (len(images), 6)


def test_tasks_that_bring_enough_move_the_pool() -> None:
    method, tasks = make_hash(hdr=False, hgm=False, fewest_classes=2)
    learn(method, tasks[0])
    pool = method.pool.prompts.detach().clone()
    learn(method, tasks[1])
    assert not torch.equal(method.pool.prompts, pool)


def test_small_tasks_need_a_router_that_was_trained() -> None:
    with pytest.raises(ValueError, match="must not start anew"):
        HashConfig(fewest_classes=2, router_next="fresh")
