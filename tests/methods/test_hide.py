"""HiDe-Prompt and NoRGa: prompts of tasks, their ensemble, the gate."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakes import small_backbone, train_step

from hashprompt.engine.optimization import make_optimizer
from hashprompt.methods.base import Batch
from hashprompt.methods.hide.method import Hide, HideConfig
from hashprompt.methods.norga.method import Norga, NorgaConfig

close = torch.testing.assert_close


def task(index: int) -> Any:
    return SimpleNamespace(index=index, classes=(2 * index, 2 * index + 1))


def make(kind: type[Hide | Norga] = Hide, **options: Any) -> Any:
    config = NorgaConfig if kind is Norga else HideConfig
    settings = {"layers": (1, 2), "prompt_length": 3, "momentum": 0.25, **options}
    return kind(config(**settings), small_backbone(3, lively=False))  # type: ignore[arg-type]


def learn(method: Hide | Norga, index: int, steps: int = 2) -> None:
    """Training steps of a task as the engine does them."""
    method.begin_task(task(index))
    phase = method.prompt_phase(task(index))
    optimizer = make_optimizer(phase)
    for _ in range(steps):
        batch = Batch(torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 0, 1]) + 2 * index)
        train_step(phase, batch, optimizer)


def test_a_new_prompt_starts_as_the_last_and_keeps_a_share_of_the_earlier_ones() -> None:
    method = make()
    learn(method, 0)
    first = method.prompts.current.detach().clone()
    learn(method, 1, steps=0)
    close(method.prompts.current.detach(), first)
    learn_more = method.prompts.current.data.add_(1)  # as if it had been trained
    second = 0.75 * learn_more + 0.25 * first
    close(method.prompts.of(torch.tensor([0, 1]), 2).detach(), torch.stack((first, second)))
    learn(method, 2, steps=0)
    close(method.prompts.frozen, torch.stack((first, second)))
    third = 0.75 * second + 0.25 * (first + second) / 2
    close(method.prompts.of(None, 1)[0].detach(), third)


def test_the_mean_of_earlier_prompts_gets_no_gradient_and_the_share_is_right() -> None:
    method = make()
    learn(method, 0)
    learn(method, 1, steps=0)
    method.zero_grad()
    method.prompts.of(None, 1).sum().backward()
    assert method.prompts.current.grad is not None
    close(method.prompts.current.grad, torch.full_like(method.prompts.current, 0.75))


def test_each_image_of_a_mixed_batch_gets_the_prompt_of_its_own_task() -> None:
    method = make()
    for index in range(3):
        learn(method, index)
    tasks = torch.tensor([2, 0, 1, 0])
    tokens = method.backbone.embed(torch.randn(4, 3, 16, 16))
    together = method.prompted(tokens, tasks)
    for i in range(4):
        alone = method.prompted(tokens[i : i + 1], tasks[i : i + 1])
        close(together[i : i + 1], alone)
    assert not torch.allclose(together[0], method.prompted(tokens[:1], torch.tensor([1]))[0])


@pytest.mark.parametrize("gate", ["tanh", "sigmoid", "gelu", "relu"])
def test_the_gate_is_learned_on_the_first_task_and_then_fixed(gate: str) -> None:
    method = make(Norga, gate=gate)
    assert torch.equal(method.gates, torch.ones(2, 2))
    learn(method, 0)
    learned = method.gates.detach().clone()
    assert not torch.allclose(learned, torch.ones(2, 2))
    learn(method, 1)
    assert torch.equal(method.gates, learned)


def test_the_gate_adds_the_outer_times_the_activation_of_the_inner() -> None:
    method = make(Norga, gate="sigmoid")
    method.gates.data = torch.tensor([[1.0, 1.0], [2.0, 0.5]])  # [b, a] of each block
    scores = torch.randn(1, 2, 5, 3)
    close(method.gate(1, scores), 0.5 / (1 + torch.exp(-2.0 * scores)))
