"""C-ADA: adapters that grow in width, their overlap, and what is frozen when."""

from functools import partial
from typing import Any

import fakes
import pytest
import torch
from fakes import DIM, Task, learn
from torch import Tensor

from hashprompt.methods.base import Batch
from hashprompt.methods.c_ada.method import CAda, WideningAdapters

learned = partial(fakes.learned, "c-ada", attention_width=3, mlp_width=2, lr=0.1)

close = torch.testing.assert_close
TASKS = ((0, 1), (2, 3, 4), (5,))


def filled(tasks: int, places: int = 2, dim: int = 5, width: int = 3) -> WideningAdapters:
    """With random numbers for every task."""
    torch.manual_seed(0)
    adapters = WideningAdapters(places, dim, width)
    for _ in range(tasks):
        adapters.add()
        for parameter in adapters.current():
            parameter.data.normal_()
    return adapters


# The adapters. -----------------------------------------------------------------------------


def test_joined_widths_are_the_sum_of_the_branches_of_all_tasks() -> None:
    adapters = filled(3)
    z = torch.randn(7, 5)
    down, up = adapters.joined()
    assert down.shape == (2, 5, 9)
    assert up.shape == (2, 9, 5)
    for place in range(2):
        expected = torch.zeros(7, 5)
        for task in range(3):
            own_down = adapters.down.stacked()[task, place]
            own_up = adapters.up.stacked()[task, place]
            expected += (z @ own_down).clamp(min=0) @ own_up
        close((z @ down[place]).relu() @ up[place], expected)


def test_the_overlap_is_the_sum_of_squared_products_of_new_and_old_units() -> None:
    adapters = filled(3)
    total = 0.0
    for place in range(2):
        for old in range(2):
            for new_unit in range(3):
                for old_unit in range(3):
                    down = adapters.down.stacked()[:, place]
                    up = adapters.up.stacked()[:, place]
                    reading = sum(down[2, d, new_unit] * down[old, d, old_unit] for d in range(5))
                    writing = sum(up[2, new_unit, d] * up[old, old_unit, d] for d in range(5))
                    total += float((reading**2 + writing**2).detach())
    assert adapters.overlap().item() == pytest.approx(total, rel=1e-5)


def test_one_task_overlaps_with_nothing_and_orthogonal_units_do_not() -> None:
    assert filled(1).overlap().item() == 0
    adapters = filled(2, dim=8)
    adapters.down.frozen[..., 4:, :] = 0
    adapters.up.frozen[..., 4:] = 0
    adapters.down.current.data[:, :4] = 0
    adapters.up.current.data[..., :4] = 0
    assert adapters.overlap().item() == 0


def test_new_units_start_silent_and_old_ones_keep_their_bytes() -> None:
    adapters = filled(1)
    before = [parameter.detach().clone() for parameter in adapters.current()]
    adapters.add()
    assert not adapters.up.current.any()
    assert 0.8 * 5**-0.5 < adapters.down.current.abs().max() <= 5**-0.5
    assert torch.equal(adapters.down.frozen[0], before[0])
    assert torch.equal(adapters.up.frozen[0], before[1])


# The whole. --------------------------------------------------------------------------------


@torch.no_grad()
def slow_features(method: CAda, images: Tensor) -> Tensor:
    """timm's blocks written out, with the branches of each task one by one."""
    vit: Any = method.backbone.vit
    scale, shift = method.scale, method.shift

    def branch(z: Tensor, block: int, adapters: WideningAdapters) -> Tensor:
        out = torch.zeros_like(z)
        pairs = zip(adapters.down.stacked(), adapters.up.stacked(), strict=True)
        for down, up in pairs:
            out += ((scale[block] * z + shift[block]) @ down[block]).clamp(min=0) @ up[block]
        return 0.1 * out

    x = vit._pos_embed(vit.patch_embed(images))
    for index, block in enumerate(vit.blocks):
        z = block.norm1(x)
        x = x + block.attn(z) + branch(z, index, method.attn)
        x = x + block.mlp(block.norm2(x)) + branch(x, index, method.mlp)
    return vit.norm(x)[:, 0]


def test_answers_are_those_of_the_branches_written_out() -> None:
    method, tasks = learned(*TASKS)
    for tensor in (*method.parameters(), *method.buffers()):
        if tensor.is_floating_point():
            tensor.data.normal_()  # training would leave smaller numbers, which hide mistakes
    images = torch.cat([task.images for task in tasks])[::4]
    with torch.no_grad():
        expected = slow_features(method, images) @ method.head.weight.T + method.head.bias
        close(method.predict(images).logits, expected, atol=1e-4, rtol=1e-4)
        plain = method.backbone(images) @ method.head.weight.T + method.head.bias
    assert not torch.allclose(expected, plain, atol=0.1)


def test_a_later_task_minimises_cross_entropy_of_its_classes_and_the_overlap() -> None:
    method, _ = learned((0, 1))
    task = Task(1, (2, 3, 4))
    method.begin_task(task)
    for adapters in (method.attn, method.mlp):
        adapters.up.current.data.normal_()
    phase = method.phases(task)[0]
    assert phase.step is not None
    losses: Any = phase.step(Batch(task.images, task.labels))
    with torch.no_grad():
        logits = slow_features(method, task.images) @ method.head.weight.T + method.head.bias
    own = logits[:, 2:].log_softmax(1)
    expected = -own[torch.arange(len(own)), task.labels - 2].mean()
    close(losses["ce"], expected, atol=1e-4, rtol=1e-4)
    close(losses["orthogonality"], method.attn.overlap() + method.mlp.overlap())
    method.config = method.config.model_copy(update={"orthogonality": 0.5})
    half: Any = phase.step(Batch(task.images, task.labels))
    close(half["orthogonality"], 0.5 * losses["orthogonality"])


def test_scale_and_shift_are_learned_on_the_first_task_alone() -> None:
    method, (task,) = learned((0, 1))
    both = {method.scale, method.shift}
    assert both <= {p for group in method.phases(task)[0].groups for p in group.params}
    assert not torch.equal(method.scale, torch.ones_like(method.scale))
    later = Task(1, (2, 3))
    before = [value.detach().clone() for value in (method.scale, method.shift)]
    learn(method, later)
    assert not both & {p for group in method.phases(later)[0].groups for p in group.params}
    assert torch.equal(method.scale, before[0])
    assert torch.equal(method.shift, before[1])


def test_the_head_goes_on_learning_classes_that_come_back() -> None:
    method, _ = learned((0, 1))
    before = method.head.weight.detach().clone()
    learn(method, Task(1, (0, 1)))
    assert method.head.weight.shape == (2, DIM)
    assert not torch.equal(method.head.weight, before)
