"""SLCA++: its factors, ages of classes, and rates."""

from typing import Any

import pytest
import torch
from fakes import Task, small_backbone, train
from torch import tensor

from hashprompt.errors import UserError
from hashprompt.methods.slca_plus.config import SLCAPlusConfig
from hashprompt.methods.slca_plus.method import SLCAPlus
from hashprompt.parts.lora import TrainedLoRA

close = torch.testing.assert_close
TASKS = ((0, 1), (2, 3, 4), (5,))


def learned(tasks: tuple[tuple[int, ...], ...] = TASKS, **options: Any) -> SLCAPlus:
    method = SLCAPlus(SLCAPlusConfig(align_samples=8, **options), small_backbone(4, lively=False))
    for index, classes in enumerate(tasks):
        task = Task(index, classes)
        method.begin_task(task)
        train(method, task)
        method.describe(task)
    return method


def test_factors_start_in_the_leading_directions_and_change_nothing() -> None:
    backbone = small_backbone(4, lively=False)
    lora = TrainedLoRA(backbone, ("attn.qkv", "mlp.fc2"), 3, scale=0.8)
    assert len(lora.layers) == 8
    for layer in lora.layers:
        weight = backbone.vit.get_parameter(f"{layer}.weight").double()
        found = lora.tensors()[f"{layer}.a"].double()
        values, vectors = torch.linalg.eigh(weight.T @ weight)
        close(found.T @ found, vectors[:, -3:] @ vectors[:, -3:].T, rtol=1e-4, atol=1e-4)
        close((found @ weight.T).norm(dim=1), values.flip(0)[:3].sqrt(), rtol=1e-4, atol=1e-5)
    method = SLCAPlus(SLCAPlusConfig(), small_backbone(4, lively=False))
    images = Task(0, (0,)).images
    with torch.no_grad():
        assert torch.equal(method.features(images), method.backbone(images))


def test_factors_act_as_a_change_of_the_weights() -> None:
    method = learned(trainable="head")
    changed = {}
    for layer in method.lora.layers:
        a, b = (method.lora.tensors()[f"{layer}.{factor}"].detach() for factor in "ab")
        assert b.abs().sum() > 0
        weight = method.backbone.vit.get_parameter(f"{layer}.weight")
        changed[layer] = weight.detach().clone()
        weight.data += 0.8 * b @ a
    images = Task(0, (0,)).images
    with torch.no_grad():
        expected = method.backbone(images)
        for layer, weight in changed.items():
            method.backbone.vit.get_parameter(f"{layer}.weight").data = weight
        close(method.features(images), expected, rtol=1e-4, atol=1e-5)


def test_a_layer_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match=r"blocks\.0\.mlp\.w12"):
        TrainedLoRA(small_backbone(4, lively=False), ("mlp.w12",), 2)


def test_what_is_trained_and_how_fast() -> None:
    method = learned(TASKS[:2])
    names = set(method.vit.names)
    assert {"cls_token", "norm.weight", "blocks.0.norm1.weight", "blocks.1.mlp.fc1.bias"} <= names
    assert not names & {"pos_embed", "blocks.0.attn.qkv.weight", "patch_embed.proj.weight"}
    for index, rate in ((0, 5e-3), (1, 1e-3)):
        groups = method.phases(Task(index, TASKS[index]))[0].groups
        assert [group.lr for group in groups] == pytest.approx([rate, 1e-3, 1e-2])
        assert len(groups[0].params) == 2 * 3 * 4  # two factors of three layers in four blocks


def test_old_pseudo_features_shrink_by_chance_and_new_ones_do_not() -> None:
    method = learned()
    torch.manual_seed(0)
    features, cells = torch.randn(600, 16), torch.arange(6).repeat(100)
    ratio = features / method.shaped(features, cells)  # 1 + m · tasks since
    close(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-4, atol=1e-4)  # one m per sample
    for cell, since in enumerate((2, 2, 1, 1, 1, 0)):
        own = ratio[cells == cell, 0] - 1
        assert own.min() >= 0.01 * since - 1e-5
        assert own.max() <= 0.03 * since + 1e-5
        if since:
            assert own.max() - own.min() > 0.015 * since


def test_heads_of_old_tasks_read_larger_features() -> None:
    method = learned()
    method.aligned.bias.data.uniform_()
    images = Task(0, TASKS[0]).images
    with torch.no_grad():
        features, found = method.features(images), method.predict(images).logits
    for label, since in enumerate((2, 2, 1, 1, 1, 0)):
        weight, bias = method.aligned.weight[label], method.aligned.bias[label]
        close(found[:, label], (1 + 0.02 * since) * features @ weight + bias)


def test_the_loss_is_of_new_classes_and_their_reverse() -> None:
    method = learned(TASKS[:2], forward_loss=0.5, reverse_loss=0.25)
    logits, labels = torch.randn(3, 5), tensor([2, 4, 3])
    p = logits[:, 2:].softmax(1)[torch.arange(3), labels - 2]
    expected = (-0.5 * p.log() + 0.25 * 9.2103404 * (1 - p)).mean()
    close(method.cross_entropy(logits, labels, Task(1, TASKS[1])), expected)
