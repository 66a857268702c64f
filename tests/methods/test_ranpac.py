"""RanPAC and its parts: ridge regression, adapters, SSF."""

from functools import partial
from itertools import permutations
from typing import Any

import fakes
import numpy as np
import pytest
import torch
from fakes import DEPTH, DIM, Task, small_backbone
from torch import Tensor, nn, tensor

from hashprompt.methods.base import Batch
from hashprompt.methods.ranpac.method import (
    RIDGES,
    RanPAC,
    RanPACConfig,
    Ridge,
    choose_ridge,
    ridge_errors,
)
from hashprompt.parts.adapters import Adapters, ScaleShift, bottleneck, branches

learned = partial(fakes.learned, "ranpac", projection=20, adapter_width=4, lr=0.5)

close = torch.testing.assert_close


def numpy_ridge(h: np.ndarray, labels: np.ndarray, ridge: float) -> np.ndarray:
    """(M, C), all images at once."""
    h, y = h.astype(np.float64), np.eye(labels.max() + 1)[labels]
    return np.linalg.inv(h.T @ h + ridge * np.eye(h.shape[1])) @ (h.T @ y)


# Ridge regression. -------------------------------------------------------------------------


def test_sums_of_tasks_in_any_order_give_the_joint_ridge_solution() -> None:
    h, labels = torch.randn(30, 8), torch.arange(6).repeat(5)
    expected = numpy_ridge(h.numpy(), labels.numpy(), 0.5)
    parts = [labels < 2, (labels >= 2) & (labels < 4), labels >= 4]
    for order in permutations(parts):
        ridge = Ridge(8)
        for rows in order:
            ridge.add(h[rows], labels[rows])
        assert ridge.solve(0.5) == 0.5
        close(ridge.weights.T, tensor(expected).float(), atol=1e-5, rtol=1e-5)


def test_a_class_of_several_domains_has_one_column() -> None:
    h, labels = torch.randn(12, 5), torch.arange(3).repeat(4)
    ridge = Ridge(5)
    for rows in torch.arange(12).split(6):
        ridge.add(h[rows], labels[rows])
    ridge.solve(1.0)
    expected = numpy_ridge(h.numpy(), labels.numpy(), 1.0)
    close(ridge.weights.T, tensor(expected).float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("images", "dim"), [(40, 10), (10, 40)])
def test_one_decomposition_gives_the_errors_of_direct_solves(images: int, dim: int) -> None:
    torch.manual_seed(0)
    h, y = torch.randn(images + 8, dim).double(), torch.randn(images + 8, 3).double()
    fit, score = h[:images].numpy(), h[images:].numpy()
    errors = ridge_errors(h[:images], y[:images], h[images:], y[images:])
    for ridge, error in zip(RIDGES, errors.tolist(), strict=True):
        # (HHᵀ + λI) is well conditioned when there are fewer images than dimensions.
        if images < dim:
            w = fit.T @ np.linalg.solve(fit @ fit.T + ridge * np.eye(images), y[:images].numpy())
        else:
            w = np.linalg.solve(fit.T @ fit + ridge * np.eye(dim), fit.T @ y[:images].numpy())
        assert error == pytest.approx(((score @ w - y[images:].numpy()) ** 2).mean(), rel=1e-6)


def test_the_ridge_is_the_one_that_predicts_the_last_fifth_best() -> None:
    torch.manual_seed(0)
    labels = torch.arange(2).repeat(25)
    clear = torch.eye(2).double()[labels] * 3
    assert choose_ridge(clear, labels) == 1e-8  # without noise the plain solution is exact
    noisy = torch.cat((clear, torch.zeros(50, 30)), dim=1) + 3 * torch.randn(50, 32).double()
    chosen = choose_ridge(noisy, labels)
    errors = []
    for ridge in RIDGES:
        w = numpy_ridge(noisy[:40].numpy(), labels[:40].numpy(), ridge)
        errors.append(((noisy[40:].numpy() @ w - np.eye(2)[labels[40:]]) ** 2).mean())
    assert chosen == RIDGES[int(np.argmin(errors))]
    assert chosen > 1


def test_a_ridge_that_drowns_in_rounding_is_raised_until_it_does_not() -> None:
    ridge = Ridge(2)
    ridge.add(tensor([[1.0, 0.0]]), tensor([0]))
    ridge.gram = tensor([[1.0, 0.0], [0.0, -0.0004]])  # as rounding can leave it
    assert ridge.solve(1e-8) == pytest.approx(0.001)
    close(ridge.weights, tensor([[1 / 1.001, 0.0]]))


# The whole. --------------------------------------------------------------------------------


@pytest.mark.parametrize("first_session", ["none", "adapter", "ssf"])
def test_answers_are_random_features_times_the_joint_solution(first_session: str) -> None:
    method, tasks = learned((0, 1), (2, 3), first_session=first_session)
    ridge = method.diagnostics(tasks[-1])["ridge"]
    assert any(ridge == pytest.approx(r) for r in RIDGES)
    with torch.no_grad():
        features = torch.cat([method.features(task.images) for task in tasks]).numpy()
    projected = features.astype(np.float64) @ method.projection.numpy().astype(np.float64)
    h = np.where(projected > 0, projected, 0)
    w = numpy_ridge(h, np.concatenate([task.labels.numpy() for task in tasks]), ridge)
    images = torch.cat([task.images for task in tasks])
    with torch.no_grad():
        logits = method.predict(images).logits.numpy()
    np.testing.assert_allclose(logits, h @ w, atol=1e-2)
    assert np.array_equal(logits.argmax(1), (h @ w).argmax(1))


def test_cached_features_are_used_only_when_nothing_was_adapted() -> None:
    for first_session, used in (("none", True), ("adapter", False)):
        method, (task,) = learned((0, 1), first_session=first_session)
        wrong = torch.randn(3, DIM)
        with torch.no_grad():
            same = torch.equal(
                method.predict(task.images[:3]).logits,
                method.predict(task.images[:3], wrong).logits,
            )
        assert same != used


def test_the_first_session_minimises_the_cross_entropy_of_scaled_cosines() -> None:
    method = RanPAC(RanPACConfig(projection=5, first_session="ssf"), small_backbone())
    task = Task(0, (0, 1), method.backbone)
    method.begin_task(task)
    phase = method.phases(task)[0]
    f = method.backbone(task.images, method.adapted.inject())
    w = method.session_head.weight
    cosines = (f @ w.T) / f.norm(dim=1)[:, None] / w.norm(dim=1)
    expected = -cosines.log_softmax(1)[torch.arange(12), task.labels].mean()
    assert phase.step is not None
    close(phase.step(Batch(task.images, task.labels))["ce"], expected)


# Adapters. ---------------------------------------------------------------------------------


def test_an_adapter_is_a_scaled_bottleneck() -> None:
    down = tensor([[1.0, 0.0], [0.0, -1.0], [1.0, 0.0]])  # the last row is the bias
    up = tensor([[2.0, 0.0], [0.0, 3.0], [5.0, 0.0]])
    edit = branches(["x"], [down], [up], scale=0.1)["x"]
    # down: (3+1, -4) -> ReLU (4, 0) -> up (8+5, 0) -> 0.1 of it, added
    close(edit(tensor([[[3.0, 4.0]]]), tensor([[[1.0, 1.0]]])), tensor([[[2.3, 1.0]]]))


def test_new_adapters_leave_features_unchanged() -> None:
    backbone = small_backbone()
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(backbone(images, Adapters(backbone).inject()), backbone(images))


def test_adapters_read_what_the_norm_before_the_mlp_reads() -> None:
    backbone, images = small_backbone(), torch.randn(2, 3, 16, 16)
    adapters = Adapters(backbone, width=3)
    for parameter in adapters.parameters():
        nn.init.normal_(parameter)
    x = backbone.embed(images)
    for block, down, up in zip(backbone.vit.blocks, adapters.down, adapters.up, strict=True):
        x = x + block.attn(block.norm1(x))
        branch = (x @ down[:-1] + down[-1]).relu() @ up[:-1] + up[-1]
        x = x + block.mlp(block.norm2(x)) + 0.1 * branch
    close(backbone(images, adapters.inject()), backbone.vit.norm(x)[:, 0])


def test_hidden_units_are_dropped_in_training_only() -> None:
    down, up = torch.ones(DIM + 1, 1000), torch.ones(1001, DIM)
    up[-1] = 0
    tokens = torch.zeros(1, 1, DIM)
    close(bottleneck(tokens, down, up), torch.full((1, 1, DIM), 1000.0))
    torch.manual_seed(0)
    left = bottleneck(tokens, down, up, dropout=0.1)[0, 0, 0] * 0.9  # what is kept is scaled up
    assert 870 < left.item() < 930
    method, (task,) = learned((0, 1))
    with torch.no_grad():
        evaluated = [method.features(task.images) for _ in range(2)]
        trained = [method.features(task.images, training=True) for _ in range(2)]
    assert torch.equal(*evaluated)
    assert not torch.equal(*trained)


# SSF. --------------------------------------------------------------------------------------


def test_ssf_is_an_affine_after_every_layer() -> None:
    backbone, images = small_backbone(), torch.randn(2, 3, 16, 16)
    ssf = ScaleShift(backbone)
    for parameter in (ssf.scale, ssf.shift):
        nn.init.normal_(parameter, mean=0.5)
    inside = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
    names = ["patch_embed.proj"]
    names += [f"blocks.{i}.{name}" for i in range(DEPTH) for name in inside] + ["norm"]
    scales, shifts = ssf.scale.split(ssf.widths), ssf.shift.split(ssf.widths)
    handles = []
    for name, scale, shift in zip(names, scales, shifts, strict=True):
        axes = (1, 1) if name == "patch_embed.proj" else ()  # channels of an image come first

        def affine(_: nn.Module, __: Any, out: Tensor, a: Any = (scale, shift, axes)) -> Tensor:
            return a[0].view(-1, *a[2]) * out + a[1].view(-1, *a[2])

        handles.append(backbone.vit.get_submodule(name).register_forward_hook(affine))
    expected = backbone.vit.forward_features(images)[:, 0]
    for handle in handles:
        handle.remove()
    close(backbone(images, ssf.inject()), expected)
