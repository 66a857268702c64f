"""Online EWC against per-sample gradients and sums written out."""

from typing import Any

import pytest
import torch
from fakes import Task, learn, small_backbone, step_losses
from torch import Tensor
from torch.func import functional_call, grad

from hashprompt.methods.ewc.method import EWC, EWCConfig

close = torch.testing.assert_close


def make(**options: Any) -> EWC:
    return EWC(EWCConfig(**{"batch_size": 64, "lr": 1.0, **options}), small_backbone())


def by_torch_func(method: EWC, task: Task, rows: list[int] | None = None) -> dict[str, Tensor]:
    """Mean squared gradient of log p(y|x) among the classes of the task, image by image."""
    network = {name: value.detach() for name, value in method.network().items()}
    classes = torch.tensor(task.classes)

    def log_likelihood(network: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        weights = {name: network[name] for name in method.vit.names}
        feature = functional_call(method.backbone.vit, weights, (image[None],))[0]
        logits = network["head.weight"] @ feature + network["head.bias"]
        return logits[label] - logits[classes].logsumexp(0)

    chosen = slice(None) if rows is None else rows
    found = [
        grad(log_likelihood)(network, image, label)
        for image, label in zip(task.images[chosen], task.labels[chosen], strict=True)
    ]
    return {name: torch.stack([g[name] for g in found]).square().mean(0) for name in network}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        close(found[name], value, rtol=1e-3, atol=1e-9)
    assert max(float(value.max()) for value in expected.values()) > 1e-4


# F. ------------------------------------------------------------------------------------------


def test_fisher_is_the_mean_of_squared_gradients_of_single_images() -> None:
    method, task = make(), Task(0, (0, 1, 2))
    learn(method, task)
    assert_same(method.fisher.tensors(), by_torch_func(method, task))


def test_fisher_adds_up_over_tasks_and_old_fisher_decays() -> None:
    method, task = make(decay=0.4), Task(1, (2, 3, 4))
    learn(method, Task(0, (0, 1)))
    old = {name: value.clone() for name, value in method.fisher.tensors().items()}
    learn(method, task)
    expected = by_torch_func(method, task)
    for name, value in old.items():
        expected[name][: len(value)] += 0.4 * value
    assert_same(method.fisher.tensors(), expected)
    assert method.fisher.tensors()["head.weight"].shape == (5, 16)


def test_classes_of_other_tasks_do_not_compete_in_fisher() -> None:
    method = make(decay=0.0)
    learn(method, Task(0, (0, 1)))
    learn(method, Task(1, (2, 3)))
    rows = method.fisher.tensors()["head.weight"]
    assert rows[:2].abs().max() == 0
    assert rows[2:].abs().max() > 0


def test_fisher_of_some_images_is_that_of_random_ones() -> None:
    method, task = make(fisher_images=4), Task(0, (0, 1, 2))
    method.begin_task(task)
    torch.manual_seed(7)
    method.consolidate(task)
    torch.manual_seed(7)
    rows = torch.randperm(len(task.labels))[:4].tolist()
    assert_same(method.fisher.tensors(), by_torch_func(method, task, rows))


# The penalty. --------------------------------------------------------------------------------


def test_the_first_task_has_no_penalty() -> None:
    method, task = make(), Task(0, (0, 1))
    method.begin_task(task)
    assert set(step_losses(method, task)) == {"ce"}


def test_the_penalty_by_hand() -> None:
    method = make(penalty=30.0)
    learn(method, Task(0, (0, 1)))
    at = {name: value.detach().clone() for name, value in method.network().items()}
    task = Task(1, (2, 3))
    method.begin_task(task)
    for parameter in method.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    expected = 0.0
    for name, value in method.network().items():
        fisher = method.fisher.tensors()[name].flatten().tolist()
        now, then = value[: len(at[name])].flatten().tolist(), at[name].flatten().tolist()
        for f, a, b in zip(fisher, now, then, strict=True):
            expected += 15.0 * f * (a - b) ** 2
    found = float(step_losses(method, task)["penalty"].detach())
    assert found == pytest.approx(expected, rel=1e-4)
    assert found > 1e-3


def test_the_penalty_has_no_gradient_at_the_anchor() -> None:
    method = make()
    learn(method, Task(0, (0, 1)))
    task = Task(1, (2, 3))
    method.begin_task(task)
    method.zero_grad()
    step_losses(method, task)["penalty"].backward()
    gradients = [p.grad for p in method.parameters() if p.grad is not None]
    assert len(gradients) == len(method.network())
    assert all(float(gradient.abs().max()) == 0 for gradient in gradients)


def test_the_anchor_is_the_network_after_the_last_task() -> None:
    method, task = make(), Task(1, (2, 3))
    learn(method, Task(0, (0, 1)))
    learn(method, task)
    for name, value in method.anchor.tensors().items():
        assert torch.equal(value, method.network()[name])
    assert float(method.distance().detach()) == 0


# Sizes. --------------------------------------------------------------------------------------
