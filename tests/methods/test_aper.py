"""APER and VPT-Deep."""

from typing import Any

import numpy as np
import pytest
import torch
from fakes import DEPTH, DIM, Task, learn, small_backbone, vit_b
from torch import Tensor, nn

from hashprompt.methods.aper.deep_tokens import DeepTokens
from hashprompt.methods.aper.method import Aper, AperConfig
from hashprompt.methods.base import Batch

close = torch.testing.assert_close
KINDS = ("adapter", "ssf", "vpt")


def fresh(**options: Any) -> Aper:
    defaults = {"adapter_width": 4, "prompt_length": 3, "lr": 0.5}
    return Aper(AperConfig(**{**defaults, **options}), small_backbone())


def learned(*parts: tuple[int, ...], **options: Any) -> tuple[Aper, list[Task]]:
    """After tasks of these classes."""
    method = fresh(**options)
    tasks = [Task(i, classes, method.backbone) for i, classes in enumerate(parts)]
    for task in tasks:
        learn(method, task)
    return method, tasks


# VPT-Deep. ---------------------------------------------------------------------------------


@torch.no_grad()
def test_tokens_join_before_every_block_and_leave_after_it() -> None:
    backbone, images = small_backbone(), torch.randn(2, 3, 16, 16)
    deep = DeepTokens(backbone, 3)
    nn.init.normal_(deep.tokens)
    x = backbone.embed(images)
    for block, own in zip(backbone.vit.blocks, deep.tokens, strict=True):
        extended = torch.cat((x, torch.stack([own, own])), dim=1)
        x = block(extended)[:, : x.shape[1]]
    close(backbone(images, deep.inject()), backbone.vit.norm(x)[:, 0])


@pytest.mark.parametrize(("start", "stay_equal"), [("zero", True), ("xavier_uniform", False)])
def test_tokens_that_start_at_zero_stay_equal_to_each_other(start: str, stay_equal: bool) -> None:
    method, _ = learned((0, 1), adaptation="vpt", prompt_start=start)
    tokens = method.adapted.tokens.detach()
    assert tokens.any()
    torch.manual_seed(0)
    assert not torch.equal(tokens, fresh(adaptation="vpt", prompt_start=start).adapted.tokens)
    assert torch.allclose(tokens, tokens[:, :1].expand_as(tokens), rtol=1e-3) == stay_equal


def test_uniform_tokens_have_the_bound_of_vpt() -> None:
    tokens = DeepTokens(small_backbone(), 1000, "xavier_uniform").tokens
    bound = (6 / (3 * 8 * 8 + DIM)) ** 0.5
    assert 0.99 * bound < tokens.max().item() <= bound
    assert -bound <= tokens.min().item() < -0.99 * bound


def test_tokens_of_a_vit_b_are_counted() -> None:
    assert DeepTokens(vit_b(), 5).tokens.shape == (12, 5, 768)


# The whole. --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("second", [(2, 3), (0, 1)])  # new classes, or a new domain
def test_answers_are_cosines_of_plain_and_adapted_features_as_one_vector(
    kind: str, second: tuple[int, ...]
) -> None:
    method, tasks = learned((0, 1), second, adaptation=kind)
    assert not torch.equal(*(method.backbone(tasks[0].images, i) for i in (None, injected(method))))
    images = torch.cat([task.images for task in tasks])
    labels = np.concatenate([task.labels.numpy() for task in tasks])
    with torch.no_grad():
        plain = method.backbone(images)
        adapted = method.backbone(images, injected(method)).numpy()
    both = [[*f, *g] for f, g in zip(plain.numpy().tolist(), adapted.tolist(), strict=True)]
    both = np.array(both)
    expected = np.zeros((len(both), labels.max() + 1))
    for i, f in enumerate(both):
        for c in range(labels.max() + 1):
            mean = both[labels == c].mean(0)
            expected[i, c] = f @ mean / np.sqrt((f @ f) * (mean @ mean))
    with torch.no_grad():
        for known in (None, plain):
            found = method.predict(images, known).logits.numpy()
            np.testing.assert_allclose(found, expected, atol=1e-5)


def injected(method: Aper) -> Any:
    return method.adapted.inject()


@pytest.mark.parametrize("kind", KINDS)
def test_the_backbone_adapts_to_the_first_task_alone(kind: str) -> None:
    method, _ = learned((0, 1), adaptation=kind)
    torch.manual_seed(0)
    before = {name: p.clone() for name, p in method.named_parameters()}
    second = Task(1, (2, 3), method.backbone)
    assert [p.name for p in method.phases(Task(0, (0, 1)))] == ["adapt", "prototypes"]
    assert [p.name for p in method.phases(second)] == ["prototypes"]
    learn(method, second)
    assert all(torch.equal(p, before[name]) for name, p in method.named_parameters())


def test_the_first_session_minimises_the_cross_entropy_of_scaled_cosines() -> None:
    method = fresh(adaptation="vpt", prompt_start="xavier_uniform")
    task = Task(0, (0, 1), method.backbone)
    method.begin_task(task)
    method.session_head.scale.data.fill_(3.0)
    phase = method.phases(task)[0]
    f = method.backbone(task.images, injected(method))
    w = method.session_head.weight
    cosines = (f @ w.T) / f.norm(dim=1)[:, None] / w.norm(dim=1)
    expected = -(3 * cosines).log_softmax(1)[torch.arange(12), task.labels].mean()
    assert phase.step is not None
    losses = phase.step(Batch(task.images, task.labels))
    assert isinstance(losses, dict)
    close(losses["ce"], expected)
    assert phase.optimizer == "sgd"
    assert [round(phase.rate_factor(e, 0, 1), 4) for e in (0, 10)] == [1.0, 0.5]


def test_hidden_units_are_dropped_in_training_only() -> None:
    method, (task,) = learned((0, 1))
    nn.init.normal_(method.adapted.up)  # so that a dropped unit shows

    def twice(training: bool) -> list[Tensor]:
        with torch.no_grad():
            return [method.features(task.images, training) for _ in range(2)]

    assert torch.equal(*twice(False))
    assert not torch.equal(*twice(True))
    second = Task(1, (2,), method.backbone)
    learn(method, second)
    means = method.prototypes.means()[2]
    close(means[DIM:], second.map(method.features).mean(0), rtol=1e-4, atol=1e-5)


def test_sizes_count_what_adapts_and_prototypes() -> None:
    numbers = {"adapter": DEPTH * (2 * DIM * 4 + DIM + 4), "vpt": DEPTH * 3 * DIM}
    for kind, expected in numbers.items():
        method, _ = learned((0, 1), (2, 3), adaptation=kind)
        sizes = method.sizes()
        assert (sizes["prompts"], sizes["head"], sizes["statistics"]) == (expected, 8 * DIM, 4)
