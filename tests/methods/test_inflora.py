"""InfLoRA and DualGPM, against plain decompositions in NumPy and timm's own blocks."""

from functools import partial

import fakes
import numpy as np
import pytest
import torch
from fakes import DEPTH, DIM, Task, learn, small_backbone
from torch import Tensor

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.inflora.method import DualGPM, InfLoRA, InfLoRAConfig
from hashprompt.parts.lora import merged

learned = partial(fakes.learned, "inflora", rank=2, lr=0.3, energy=0.5)

close = torch.testing.assert_close


# DualGPM. ----------------------------------------------------------------------------------


def moments(seed: int, dim: int = 12, decay: float = 0.6) -> np.ndarray:
    """A second-moment matrix whose energy falls from direction to direction."""
    chance = np.random.default_rng(seed)
    directions = np.linalg.qr(chance.normal(size=(dim, dim)))[0]
    return directions @ np.diag(decay ** np.arange(dim)) @ directions.T


def slow_update(
    basis: np.ndarray, kind: str, r: np.ndarray, share: float
) -> tuple[np.ndarray, str]:
    """One layer of DualGPM as its paper has it; the basis in columns (D, k)."""
    dim = len(r)
    total = (np.linalg.svd(r)[1] ** 2).sum()
    if kind == "remove":
        left, values, _ = np.linalg.svd(r - basis @ basis.T @ r)
        held = (total - (values**2).sum()) / total
        for i in range(dim):
            if held >= share:
                break
            basis = np.hstack((basis, left[:, i : i + 1]))
            held += values[i] ** 2 / total
        if basis.shape[1] > dim / 2:
            left, _, _ = np.linalg.svd(basis)
            return left[:, basis.shape[1] :], "retain"
        return basis, "remove"
    left, values, _ = np.linalg.svd(basis @ basis.T @ r)
    caught = (values**2).sum() / total
    count = 0
    while count < basis.shape[1] and caught >= 1 - share:
        caught -= values[count] ** 2 / total
        count += 1
    taken = left[:, :count]
    left, _, _ = np.linalg.svd(basis - taken @ taken.T @ basis)
    return left[:, : basis.shape[1] - count], "retain"


def test_bases_follow_a_plain_svd_through_remove_the_switch_and_retain() -> None:
    # The energy of each layer falls at its own pace, so that they switch at different times.
    decays = (0.9, 0.6, 0.2)
    memory, slow = DualGPM(3, 12), [(np.zeros((12, 0)), "remove")] * 3
    seen = []
    for task, share in enumerate((0.9, 0.95, 0.99, 0.995)):
        given = [moments(10 * task + i, decay=decay) for i, decay in enumerate(decays)]
        memory.update(7 * torch.tensor(np.stack(given)).float(), share)  # no scale matters
        slow = [slow_update(*old, r, share) for old, r in zip(slow, given, strict=True)]
        seen.append([kind for _, kind in slow])
        assert memory.ranks.tolist() == [basis.shape[1] for basis, _ in slow]
        assert memory.retains.tolist() == [kind == "retain" for _, kind in slow]
        for rows, projector, (basis, kind) in zip(
            memory.bases(), memory.projectors(), slow, strict=True
        ):
            close(rows @ rows.T, torch.eye(len(rows)), atol=1e-5, rtol=0)
            span = basis @ basis.T
            close((rows.T @ rows).double(), torch.tensor(span), atol=1e-5, rtol=0)
            free = span if kind == "retain" else np.eye(12) - span
            close(projector, torch.tensor(free), atol=1e-5, rtol=0)
    assert seen[0] == ["retain", "remove", "remove"]  # at once: the public code's slip
    assert ["retain", "retain", "remove"] in seen
    assert memory.ranks[0] < 12 - 7  # and what is free became less afterwards


def test_a_large_first_basis_is_stored_as_its_complement() -> None:
    memory = DualGPM(1, 12)
    r = torch.tensor(moments(0, decay=0.99)).float()
    memory.update(r[None], 0.9)
    used = torch.linalg.eigh(r)[1].flip(1)[:, : 12 - int(memory.ranks[0])]
    assert memory.retains.tolist() == [True]
    assert len(memory.basis) < 6
    close(memory.basis @ used, torch.zeros(len(memory.basis), used.shape[1]), atol=1e-4, rtol=0)


def test_directions_are_in_use_from_the_first_that_reaches_the_share() -> None:
    memory = DualGPM(1, 4)
    energies = torch.tensor([[0.5, 0.3, 0.15, 0.05]])
    memory.update(torch.diag_embed(energies.sqrt()), 0.79)
    close(memory.basis.abs(), torch.eye(4)[:2], atol=1e-6, rtol=0)  # 0.5 < 0.79 <= 0.8


@pytest.mark.parametrize(("share", "left"), [(0.5, 4), (0.79, 3), (0.9999, 0), (1.1, 0)])
def test_free_directions_that_new_inputs_use_are_given_up(share: float, left: int) -> None:
    memory = DualGPM(1, 12)
    memory.retains[0], memory.ranks[0] = True, 5
    free = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0][:, :5]
    memory.basis = torch.tensor(free.T).float()
    # Energy along free directions that are no rows of the basis.
    used = free @ np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    r = used @ np.diag(np.sqrt([0.6, 0.2, 0.1, 0.05, 0.05])) @ used.T
    memory.update(torch.tensor(r)[None].float(), share)
    expected, _ = slow_update(free, "retain", r, share)
    assert memory.ranks.tolist() == [expected.shape[1]] == [left]
    close(memory.projectors()[0], torch.tensor(expected @ expected.T), atol=1e-5, rtol=0)
    close(
        memory.basis.double() @ torch.tensor(used[:, : 5 - left]),
        torch.zeros(left, 5 - left).double(),
        atol=1e-5,
        rtol=0,
    )


def test_leading_directions_are_those_of_the_projected_moments() -> None:
    memory = DualGPM(2, 12)
    old = np.stack((moments(0, decay=0.6), moments(1, decay=0.9)))
    memory.update(torch.tensor(old).float(), 0.9)
    assert memory.retains.tolist() == [False, True]
    new = np.stack((moments(2), moments(3)))
    found = memory.leading_free(torch.tensor(new).float(), 2)
    for rows, free, r in zip(found, memory.projectors().numpy(), new, strict=True):
        expected = np.linalg.svd(free @ r)[0][:, :2]
        close(
            rows.double().T @ rows.double(), torch.tensor(expected @ expected.T), atol=1e-4, rtol=0
        )


def test_when_few_directions_are_free_the_others_stay_untouched() -> None:
    memory = DualGPM(1, 12)
    memory.update(torch.tensor(moments(0, decay=0.9))[None].float(), 0.9)
    free = int(memory.ranks[0])
    assert memory.retains[0]
    assert 0 < free < 5
    wanted = memory.leading_free(torch.tensor(moments(1))[None].float(), 5)[0]
    used = torch.eye(12) - memory.basis.T @ memory.basis
    assert (wanted @ used).abs().max() < 1e-5
    assert torch.linalg.matrix_rank(wanted, atol=1e-4) == free


def slow_moments(backbone: Backbone, images: Tensor) -> Tensor:
    """Sums over all tokens that attention reads, one by one."""
    sums = torch.zeros(DEPTH, DIM, DIM)
    for image in images:
        x = backbone.embed(image[None])
        for i, block in enumerate(backbone.vit.blocks):
            for token in block.norm1(x)[0]:  # type: ignore[operator,union-attr]
                sums[i] += torch.outer(token, token)
            x = block(x)
    return sums


# The method. -------------------------------------------------------------------------------


def test_the_share_rises_with_the_tasks_and_stays_after_the_last_expected_one() -> None:
    config = InfLoRAConfig(energy=0.9, expected_tasks=4)
    shares = [config.share(task) for task in range(6)]
    assert shares == pytest.approx([0.9, 0.925, 0.95, 0.975, 0.975, 0.975])


def test_a_task_cannot_touch_the_directions_of_older_ones() -> None:
    method, _ = learned((0, 1))
    free, old = method.memory.projectors(), [rows.clone() for rows in method.memory.bases()]
    task = Task(1, (2, 3), method.backbone)
    moment = method.moments(task)
    learn(method, task)
    for block in range(DEPTH):
        a = method.reduce[1, block]
        close(a @ old[block].T, torch.zeros(2, len(old[block])), atol=1e-5, rtol=0)
        left = torch.linalg.svd(free[block] @ moment[block].double())[0][:, :2]
        close(3 * (a.T @ a).double(), left @ left.T, atol=1e-4, rtol=0)  # A is over √3


def test_moments_are_those_of_the_network_with_all_changes() -> None:
    method, (task, _) = learned((0, 1), (2, 3))
    changed = small_backbone()
    with torch.no_grad():
        for name, weight in merged(method.backbone, method.factors()).items():
            changed.vit.get_parameter(name).copy_(weight)
        expected, before = (slow_moments(b, task.images) for b in (changed, method.backbone))
    close(method.moments(task), expected, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(expected[1], before[1], atol=1)


def test_merged_and_unmerged_predictions_are_equal_and_as_in_timm() -> None:
    method, tasks = learned((0, 1), (2, 3), (4,))
    images = torch.cat([task.images for task in tasks])
    with torch.no_grad():
        logits = method.predict(images).logits
        weights = Injection(weights=merged(method.backbone, method.factors()))
        close(method.head(method.backbone(images, weights)), logits, rtol=1e-4, atol=1e-4)
        # ΔW summed in a loop over tasks, put into timm's own projections.
        vit = small_backbone().vit
        b = method.expand.stacked()
        for block in range(DEPTH):
            for half in (0, 1):
                delta = sum(b[t, block, half] @ method.reduce[t, block] for t in range(3))
                rows = slice((1 + half) * DIM, (2 + half) * DIM)
                vit.get_parameter(f"blocks.{block}.attn.qkv.weight")[rows] += delta
        features = vit.forward_features(images)[:, 0]
        close(method.features(images), features, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(features, method.backbone(images), atol=1e-2)


def test_only_b_and_the_new_classifier_train() -> None:
    method, _ = learned((0, 1), (2, 3))
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    task = Task(2, (4, 5, 6), method.backbone)
    method.begin_task(task)
    design, train, memory = method.phases(task)
    trained = {id(p) for group in train.groups for p in group.params}
    new = (method.expand.current, method.head.weight.current, method.head.bias.current)
    assert trained == {id(p) for p in new}
    assert [phase.name for phase in (design, train, memory)] == ["design", "train", "memory"]
    learn_rest(method, task)
    after = method.state_dict()
    assert torch.equal(after["reduce"][:2], before["reduce"])
    assert torch.equal(after["expand.frozen"][1], before["expand.current"])
    for name in ("weight", "bias"):
        old = torch.cat((before[f"head.{name}.frozen"], before[f"head.{name}.current"]))
        assert torch.equal(after[f"head.{name}.frozen"], old)
    assert after["expand.current"].any()


def learn_rest(method: InfLoRA, task: Task) -> None:
    """The phases of a task that has begun."""
    method.begin_task = lambda _: None  # type: ignore[assignment,method-assign]
    learn(method, task)
    del method.begin_task


def test_a_new_task_starts_from_the_answers_of_the_old_ones() -> None:
    method, (task,) = learned((0, 1))
    before = method.predict(task.images).logits
    task_after = Task(1, (2,), method.backbone)
    method.begin_task(task_after)
    method._design(task_after)
    logits = method.predict(task.images).logits
    close(logits[:, :2], before)
    assert not logits[:, 2:].any()
