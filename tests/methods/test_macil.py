"""MACIL: every formula against loops, and what moves when."""

import math
from functools import partial

import fakes
import numpy as np
import pytest
import torch
from fakes import DEPTH, DIM, Task, carry_out, small_backbone
from torch import Tensor, tensor

from hashprompt.methods.base import Batch
from hashprompt.methods.frames.classifier_alignment import per_task_norm, with_smaller_means
from hashprompt.methods.macil.method import (
    covariance_loss,
    mean_shift,
    patch_distillation,
    whitening,
)
from hashprompt.parts.gaussians import ClassGaussians, GaussianSampler

learned = partial(fakes.learned, "macil", rank=3, lr=0.3, align_samples=8)

close = torch.testing.assert_close


# Mean shift. -------------------------------------------------------------------------------


def slow_shift(before: Tensor, after: Tensor, mean: Tensor, width: float) -> Tensor:
    weights = [
        math.exp(-sum((a - b) ** 2 for a, b in zip(f, mean.tolist(), strict=True)) / 2 / width**2)
        + 1e-5
        for f in before.tolist()
    ]
    moved = sum(w * (b - a) for w, a, b in zip(weights, before, after, strict=True))
    return moved / sum(weights)  # type: ignore[operator,return-value]


@pytest.mark.parametrize("width", [0.3, 1.0, 4.0])
def test_means_follow_the_new_images_near_them(width: float) -> None:
    torch.manual_seed(0)
    before, after, means = torch.randn(9, 4), torch.randn(9, 4), torch.randn(3, 4)
    expected = torch.stack([slow_shift(before, after, mean, width) for mean in means])
    close(mean_shift(before, after, means, width), expected, rtol=1e-4, atol=1e-5)


def test_images_far_away_or_a_wide_look_give_the_mean_shift_of_all_images() -> None:
    torch.manual_seed(0)
    before, after = torch.randn(9, 4), torch.randn(9, 4)
    plain = (after - before).mean(0).expand(2, -1)
    close(mean_shift(before, after, 100 + torch.randn(2, 4), 1.0), plain)
    close(mean_shift(before, after, torch.randn(2, 4), 1e5), plain)


def test_equal_drifts_are_taken_over_and_no_drift_leaves_means_alone() -> None:
    torch.manual_seed(0)
    before, means = torch.randn(9, 4), torch.randn(3, 4)
    drift = tensor([1.0, -2.0, 0.0, 3.0])
    close(mean_shift(before, before + drift, means, 1.0), drift.expand(3, -1))
    order = torch.randperm(9)
    after = torch.randn(9, 4)
    close(
        mean_shift(before[order], after[order], means, 1.0), mean_shift(before, after, means, 1.0)
    )
    moved = means
    for _ in range(10):
        moved = moved + mean_shift(before, before, moved, 1.0)
    assert torch.equal(moved, means)


# Losses. -----------------------------------------------------------------------------------


def slow_precision(features: Tensor) -> np.ndarray:
    """Σ'⁻¹ element by element."""
    covariance = np.cov(features.double().numpy().T)
    dim = len(covariance)
    on = sum(covariance[i, i] for i in range(dim)) / dim
    rest = [covariance[i, j] for i in range(dim) for j in range(dim) if i != j]
    off = sum(rest) / len(rest)
    shrunken = np.empty((dim, dim))
    for i in range(dim):
        for j in range(dim):
            shrunken[i, j] = covariance[i, j] + (10 * on + 1e-3 if i == j else 10 * off)
    return np.linalg.inv(shrunken)


@pytest.mark.parametrize("images", [3, 40])
def test_whitening_is_a_root_of_the_shrunken_precision(images: int) -> None:
    torch.manual_seed(0)
    features = torch.randn(images, 6).double() @ torch.randn(6, 6).double()
    root = whitening(features)
    close(root @ root.T, tensor(slow_precision(features)), rtol=1e-6, atol=1e-8)


def test_whitening_exists_however_negative_correlations_are_and_for_one_image() -> None:
    opposite = torch.randn(20, 1).double() * tensor([[1.0, -1.0]]).double()
    assert whitening(opposite).isfinite().all()
    close(whitening(torch.randn(1, 3).double()), torch.eye(3).double() * 1000**0.5)


def test_distances_within_a_class_are_held_as_in_loops() -> None:
    torch.manual_seed(0)
    old, new, labels = torch.randn(7, 5), torch.randn(7, 5), tensor([0, 1, 0, 0, 1, 2, 0])
    seen = [torch.randn(12, 5) for _ in range(3)]
    total = 0.0
    for i in range(7):
        for j in range(i + 1, 7):
            if labels[i] == labels[j]:
                precision = slow_precision(seen[int(labels[i])])
                d = []
                for x in (old.double().numpy(), new.double().numpy()):
                    gap = x[i] / np.linalg.norm(x[i]) - x[j] / np.linalg.norm(x[j])
                    d.append(math.sqrt(gap @ precision @ gap))
                total += abs(d[0] - d[1])
    white = torch.stack([whitening(x.double()) for x in seen]).float()
    assert float(covariance_loss(old, new, labels, white)) == pytest.approx(total / 7, rel=1e-4)


def test_features_that_did_not_move_cost_nothing_and_have_finite_gradients() -> None:
    white = torch.eye(4).expand(2, -1, -1)
    features = torch.randn(5, 4)
    features[1] = features[0]  # a pair without a distance
    new = features.clone().requires_grad_()
    loss = covariance_loss(features, new, tensor([0, 0, 0, 1, 1]), white)
    loss = loss + patch_distillation(features[None], new[None], new[:1])
    loss.backward()
    assert loss.item() == 0
    assert new.grad is not None
    assert not new.grad.any()


def test_patch_tokens_unlike_the_class_token_are_held_as_in_loops() -> None:
    torch.manual_seed(0)
    old, new, cls = torch.randn(3, 4, 5), torch.randn(3, 4, 5), torch.randn(3, 5)
    cls[0], new[0, 0] = tensor([1.0, 0, 0, 0, 0]), tensor([-2.0, 0, 0, 0, 0])  # opposite: weight 1
    total = 0.0
    for image in range(3):
        for token in range(4):
            was, now, c = old[image, token].numpy(), new[image, token].numpy(), cls[image].numpy()
            likeness = now @ c / np.linalg.norm(now) / np.linalg.norm(c)
            moved = np.linalg.norm(now / np.linalg.norm(now) - was / np.linalg.norm(was))
            total += math.acos(max(-1, likeness)) / math.pi * moved
    assert float(patch_distillation(old, new, cls)) == pytest.approx(total / 12, rel=1e-4)


def test_cosine_heads_are_trained_by_cosface_over_the_classes_of_the_task() -> None:
    method, (_, task) = learned((0, 1), (2, 3, 4))
    carry_out(method.phases(task)[0], task, epochs=2)
    loss = method._step(Batch(task.images, task.labels), task)["ce"]
    features = method.features(task.images)
    terms = []
    for feature, label in zip(features, task.labels.tolist(), strict=True):
        cosines = [feature @ w / feature.norm() / w.norm() for w in method.head[2:]]
        own = 20 * cosines[label - 2]
        terms.append(own - torch.stack([20 * c for c in cosines]).exp().sum().log())
    close(loss, -torch.stack(terms).mean(), rtol=1e-4, atol=1e-4)


def test_the_losses_of_a_later_task_compare_with_the_network_before_it() -> None:
    method, _ = learned((0, 1), covariance_weight=2.0, distillation_weight=0.5)
    task = Task(1, (2, 3), method.backbone)
    method.begin_task(task)
    covariances, train, *_ = method.phases(task)
    old = method.backbone.encode(
        method.backbone.embed(task.images), method.inject(), read="all"
    ).detach()
    carry_out(covariances, task, epochs=2)
    assert method.whitening.shape == (2, DIM, DIM)
    for row, label in enumerate(task.classes):
        root = method.whitening[row]
        expected = slow_precision(old[task.labels == label, 0])
        close(root @ root.T, tensor(expected).float(), rtol=1e-3, atol=1e-3)
    carry_out(train, task, epochs=2)
    new = method.backbone.encode(method.backbone.embed(task.images), method.inject(), read="all")
    losses = method._step(Batch(task.images, task.labels), task)
    held = covariance_loss(old[:, 0], new[:, 0], task.labels - 2, method.whitening)
    assert held > 1e-3
    close(losses["covariance"], 2 * held, rtol=1e-3, atol=1e-4)
    kept = patch_distillation(old[:, 1:], new[:, 1:], new[:, 0])
    assert kept > 1e-3
    close(losses["distillation"], kept / 2, rtol=1e-3, atol=1e-4)


# Alignment. --------------------------------------------------------------------------------


def test_pseudo_features_of_older_tasks_are_nearer_to_the_origin() -> None:
    stats = ClassGaussians(4, "covariance")
    features = 10 * torch.randn(12, 4)
    stats.add(features, torch.arange(3).repeat(4), (0, 1, 2))
    stats.spread *= 1e-12  # samples are the means
    drawn, cells = GaussianSampler(stats).draw(2)
    drawn = with_smaller_means(drawn, cells, stats.means, tensor([0, 1, 1]), 0.1)
    factors = [0.9 + 0.1 * 1 / 2, 1.0, 1.0]
    for row, cell in zip(drawn, cells.tolist(), strict=True):
        mean = features[cell::3].mean(0)
        close(row, factors[cell] * mean, rtol=1e-3, atol=1e-3)
    assert cells.tolist() == [0, 0, 1, 1, 2, 2]


def test_alignment_moves_all_heads_and_nothing_else() -> None:
    method, _ = learned((0, 1), (2, 3))
    task = Task(2, (4,), method.backbone)
    method.begin_task(task)
    *others, align = method.phases(task)
    assert [phase.name for phase in others] == ["covariances", "train", "statistics"]
    for phase in others:
        carry_out(phase, task, epochs=2)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    batches = align.draw() if align.draw else []
    assert [len(b.labels) for b in batches] == [8] * 5  # 8 pseudo-features of each of 5 classes
    assert sorted(torch.cat([b.labels for b in batches]).tolist()) == [
        c for c in range(5) for _ in range(8)
    ]
    assert align.step is not None
    cosines = torch.nn.functional.cosine_similarity(
        batches[0].inputs[:, None], method.head[None], dim=-1
    )
    logits = cosines / per_task_norm(cosines, tensor([0, 0, 1, 1, 2])) / 0.1
    expected = torch.nn.functional.cross_entropy(logits, batches[0].labels)
    close(align.step(batches[0])["align"], expected)  # type: ignore[call-overload]
    carry_out(align, task, epochs=2)
    for name, value in method.state_dict().items():
        assert torch.equal(value, before[name]) == (name != "head")
    assert (method.head != before["head"]).any(1).all()


# The whole. --------------------------------------------------------------------------------


def test_answers_are_those_of_timm_with_the_summed_changes() -> None:
    method, tasks = learned((0, 1), (2, 3), (4,))
    images = torch.cat([task.images for task in tasks])
    a, b = method.down.stacked(), method.up.stacked()
    for count in (3, 2):  # all tasks, and the network before the last
        vit = small_backbone().vit
        with torch.no_grad():
            for block in range(DEPTH):
                for half in (0, 1):
                    rows = slice((1 + half) * DIM, (2 + half) * DIM)
                    delta = sum(b[t, block, half] @ a[t, block, half] for t in range(count))
                    vit.get_parameter(f"blocks.{block}.attn.qkv.weight")[rows] += delta
            features = vit.forward_features(images)[:, 0]
            close(method.features(images, count), features, rtol=1e-3, atol=1e-3)
            if count == 3:
                logits = method.predict(images).logits
                cosines = torch.nn.functional.cosine_similarity(
                    features[:, None], method.head[None], dim=-1
                )
                close(logits, 20 * cosines, rtol=1e-3, atol=1e-2)
                assert not torch.allclose(features, method.backbone(images), atol=1e-2)


def test_old_means_follow_and_covariances_stay() -> None:
    method, _ = learned((0, 1))
    means, spread = method.stats.means.clone(), method.stats.spread.clone()
    task = Task(1, (2, 3), method.backbone)
    before = method.features(task.images).detach()
    method.begin_task(task)
    covariances, train, describe, _ = method.phases(task)
    carry_out(covariances, task, epochs=2)
    carry_out(train, task, epochs=4)
    carry_out(describe, task, epochs=2)
    after = method.features(task.images).detach()
    expected = means + mean_shift(before, after, means, 1.0)
    close(method.stats.means[:2], expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(expected, means, atol=1e-2)
    assert torch.equal(method.stats.spread[:2], spread)
    close(method.stats.means[2], after[task.labels == 2].mean(0), rtol=1e-4, atol=1e-4)
    assert len(method.whitening) == 0
    assert set(task.views) == {"clean"}  # rows of both passes are the same images
