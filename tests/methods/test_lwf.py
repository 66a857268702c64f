"""LwF against sums written out."""

import math
from typing import Any

import pytest
import torch
from fakes import Task, learn, small_backbone, step_losses
from torch import Tensor

from hashprompt.methods.lwf.method import LwF, LwFConfig
from hashprompt.parts.heads import distillation

close = torch.testing.assert_close
QKV = "blocks.0.attn.qkv.weight"


def make(**options: Any) -> LwF:
    return LwF(LwFConfig(**{"batch_size": 64, **options}), small_backbone())


def slow_distillation(student: Tensor, teacher: Tensor, temperature: float) -> float:
    total = 0.0
    for found, wanted in zip(student.tolist(), teacher.tolist(), strict=True):
        q = [math.exp(value / temperature) for value in wanted]
        p = [math.exp(value / temperature) for value in found]
        q, p = [value / sum(q) for value in q], [value / sum(p) for value in p]
        total += sum(a * (math.log(a) - math.log(b)) for a, b in zip(q, p, strict=True))
    return total / len(student)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_distillation_is_the_mean_divergence_of_softened_answers(temperature: float) -> None:
    student, teacher = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)).unbind()
    found = float(distillation(student, teacher, temperature))
    assert found == pytest.approx(slow_distillation(student, teacher, temperature), rel=1e-5)
    assert float(distillation(teacher, teacher, temperature)) == pytest.approx(0, abs=1e-6)


def test_the_first_task_has_no_teacher() -> None:
    method, task = make(), Task(0, (0, 1))
    method.begin_task(task)
    assert not method.teacher.taken
    assert set(step_losses(method, task)) == {"ce"}


def test_both_losses_by_hand_when_new_classes_come() -> None:
    method = make(distillation=0.7)
    learn(method, Task(0, (0, 1)))
    task = Task(1, (2, 3, 4))
    before = method.logits(task.images).detach()  # (B, 2): what the previous network says
    method.begin_task(task)
    for parameter in method.parameters():
        parameter.data.add_(0.02 * torch.randn_like(parameter))
    losses, logits = step_losses(method, task), method.logits(task.images)
    expected = -logits[:, 2:].log_softmax(1)[range(18), task.labels - 2].mean()
    close(losses["ce"], expected)
    kept = 0.7 * slow_distillation(logits[:, :2], before, 2.0)
    assert float(losses["distillation"].detach()) == pytest.approx(kept, rel=1e-4)
    assert kept > 1e-5


def test_all_classes_are_taught_when_they_come_again_in_another_domain() -> None:
    method = make(lr=6.0)
    learn(method, Task(0, (0, 1, 2)))
    task = Task(1, (0, 1, 2))
    before = method.logits(task.images).detach()
    learn(method, task)
    losses, logits = step_losses(method, task), method.logits(task.images)
    close(losses["ce"], torch.nn.functional.cross_entropy(logits, task.labels))
    kept = slow_distillation(logits, before, 2.0)
    assert float(losses["distillation"].detach()) == pytest.approx(kept, rel=1e-3)
    assert kept > 1e-4


def test_the_teacher_is_the_network_before_the_task_and_stays() -> None:
    method = make()
    learn(method, Task(0, (0, 1)))
    before = {name: value.detach().clone() for name, value in method.network().items()}
    task = Task(1, (2, 3))
    learn(method, task)
    for name, value in method.teacher.tensors().items():
        assert torch.equal(value, before[name])
    assert not torch.equal(method.network()[QKV], before[QKV])


def test_the_teacher_has_no_gradient_and_the_student_has() -> None:
    method = make()
    learn(method, Task(0, (0, 1)))
    task = Task(1, (2, 3))
    method.begin_task(task)
    method.head.weight.data.add_(torch.randn_like(method.head.weight))
    step_losses(method, task)["distillation"].backward()
    gradient = method.head.weight.grad
    assert gradient is not None
    assert gradient[:2].abs().max() > 0
    assert gradient[2:].abs().max() == 0  # new classes are not taught
