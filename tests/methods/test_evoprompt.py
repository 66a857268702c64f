"""EvoPrompt: what is written, composed, attributed, aligned and fused, against slow code."""

from typing import Any

import torch
from fakes import DIM, Task, cls_token, small_backbone, train
from torch import Tensor, tensor

from hashprompt.methods.evoprompt.method import (
    EvoPrompt,
    EvoPromptConfig,
    compose,
    fused,
    min_max,
    plans,
)

close = torch.testing.assert_close
OPTIONS = {"prompt_length": 2, "hidden": 3, "layers": (1, 3)}


class Task(Task):
    """A tiny task with plain features."""

    def features(self) -> Tensor:
        generator = torch.Generator().manual_seed(100 + self.index)
        return torch.randn(len(self.labels), DIM, generator=generator)


FIRST, SECOND = Task(0, (0, 1)), Task(1, (2, 3, 4))


def work(method: EvoPrompt, task: Task, *names: str) -> None:
    """Do phases that are computations."""
    for phase in method.phases(task):
        if phase.name in names:
            assert phase.work is not None
            phase.work()


def begun(**options: Any) -> EvoPrompt:
    """One task learned, the second one begun and trained a little."""
    method = EvoPrompt(EvoPromptConfig(**{**OPTIONS, **options}), small_backbone(4))
    for task in (FIRST, SECOND):
        method.begin_task(task)
        work(method, task, "prototypes")
        train(method, task)
        if task is FIRST:
            work(method, task, "fuse")
    return method


def written(method: EvoPrompt, query: Tensor) -> dict[int, tuple[Tensor, Tensor]]:
    """Hidden and output nodes of both blocks for one query, weight by weight."""
    found = {}
    for k, block in enumerate((0, 2)):
        hidden = [max(0.0, float(sum(row * query))) for row in method.memory.inner[k]]
        output = [
            sum(w * h for w, h in zip(row, hidden, strict=True)) for row in method.memory.outer[k]
        ]
        found[block] = (tensor(hidden), torch.stack(output))
    return found


def slow_logits(method: EvoPrompt, image: Tensor) -> Tensor:
    query = cls_token(method.backbone, image, {}, norm=False)
    prompts = {b: nodes[1].reshape(2, DIM) for b, nodes in written(method, query).items()}
    return method.head(cls_token(method.backbone, image, prompts, norm=True))


def test_tokens_are_written_from_the_plain_cls_before_the_norm_and_travel_on() -> None:
    method = begun()
    with torch.no_grad():
        logits = method.predict(SECOND.images, plain=torch.full((18, DIM), torch.nan)).logits
        for i, image in enumerate(SECOND.images):
            close(logits[i], slow_logits(method, image), rtol=1e-4, atol=1e-4)


def test_rows_of_new_classes_are_averages_of_old_rows_in_each_piece() -> None:
    generator = torch.Generator().manual_seed(0)
    new, old, rows = (torch.randn(n, 8, generator=generator) for n in (2, 3, 3))
    expected = torch.zeros(2, 8)
    for n in range(2):
        for piece in (slice(0, 4), slice(4, 8)):
            a = new[n, piece]
            cosines = [a @ o[piece] / a.norm() / o[piece].norm() for o in old]
            shares = [torch.exp(c / 0.05) for c in cosines]
            for share, row in zip(shares, rows, strict=True):
                expected[n, piece] += share / sum(shares) * row[piece]
    close(compose(new, old, rows, subspace=4, temperature=0.05), expected)


def test_the_head_is_composed_from_prototypes_before_the_second_task() -> None:
    method = begun()
    means = [
        torch.stack([t.features()[t.labels == c].mean(0) for c in t.classes])
        for t in (FIRST, SECOND)
    ]
    close(method.prototypes, torch.cat(means))
    again = EvoPrompt(EvoPromptConfig(**OPTIONS), small_backbone(4))
    again.begin_task(FIRST)
    work(again, FIRST, "prototypes")
    started = again.head.weight.detach().clone()
    again.begin_task(SECOND)
    work(again, SECOND, "prototypes")
    close(again.head.weight[2:].detach(), compose(means[1], means[0], started, 4, 0.05))
    assert torch.equal(again.head.weight[:2], started)


def test_attribution_is_the_mean_activation_over_images_that_are_right() -> None:
    method = begun()
    with torch.no_grad():
        right = [
            image
            for image, label in zip(SECOND.images, SECOND.labels.tolist(), strict=True)
            if int(slow_logits(method, image).argmax()) == label
        ]
        assert 0 < len(right) < len(SECOND.images)
        expected = [torch.zeros(2, 3), torch.zeros(2, 2 * DIM)]
        for image in right:
            query = cls_token(method.backbone, image, {}, norm=False)
            for k, nodes in enumerate(written(method, query).values()):
                for total, values in zip(expected, nodes, strict=True):
                    total[k] += values.clamp(min=0) / len(right)
    for found, wanted in zip(method.attributions(SECOND), expected, strict=True):
        close(found, wanted, rtol=1e-4, atol=1e-5)


def test_without_an_image_that_is_right_no_node_matters() -> None:
    method = begun()
    method.head.bias.data[0] = 1e6
    assert not any(nodes.any() for nodes in method.attributions(SECOND))


def test_attributions_are_brought_to_the_unit_interval_block_by_block() -> None:
    values = tensor([[1.0, 3.0, 2.0], [0.0, 0.0, 10.0], [4.0, 4.0, 4.0]])
    close(min_max(values), tensor([[0.0, 1.0, 0.5], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))


def test_fusion_by_hand() -> None:
    reference = torch.zeros(1, 3, 2)
    working = tensor([[[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]])
    fresh, known = tensor([[0.0, 5.0, 10.0]]), tensor([[2.0, 4.0, 2.0]])
    # fresh 0, ½, 1 and known 0, 1, 0: w = ½ + ½ · (0, −½, 1) = ½, ¼, 1
    close(
        fused(reference, working, fresh, known, share=0.5),
        tensor([[[0.5, 1.0], [0.25, 0.5], [1.0, 2.0]]]),
    )
    close(fused(working, working, fresh, known, share=0.5), working)


def test_transport_of_a_permuted_memory_onto_itself_recovers_the_permutation() -> None:
    method = begun()
    attributions = method.attributions(SECOND)
    fresh = [nodes.clone() for nodes in attributions]
    inner, outer = method.reference.tensors().values()
    orders = []
    for k in range(2):
        hidden, output = torch.arange(3).roll(1 + k), torch.randperm(2 * DIM)
        method.memory.inner.data[k] = inner[k][hidden]
        method.memory.outer.data[k] = outer[k][output][:, hidden]
        working = method.memory.inner.data[k], method.memory.outer.data[k]
        found = plans(*working, inner[k], outer[k])
        for plan, order in zip(found, (hidden, output), strict=True):
            close(plan, torch.eye(len(order))[order], atol=1e-5, rtol=0)
        orders.append((hidden.argsort(), output.argsort()))
    method.align(*attributions)
    close(method.memory.inner.data, inner, atol=1e-5, rtol=0)
    close(method.memory.outer.data, outer, atol=1e-5, rtol=0)
    for k, (hidden, output) in enumerate(orders):  # attributions went the same way
        close(attributions[0][k], fresh[0][k][hidden])
        close(attributions[1][k], fresh[1][k][output])


def test_aligned_nodes_are_averages_of_working_nodes() -> None:
    method = begun()
    inner, outer = method.memory.inner.detach().clone(), method.memory.outer.detach().clone()
    method.align(*method.attributions(SECOND))
    for k in range(2):
        reference = method.reference.tensors()
        hidden, output = plans(inner[k], outer[k], reference["inner"][k], reference["outer"][k])
        assert (hidden >= 0).all()
        close(hidden.sum(0), torch.ones(3))
        close(output.sum(0), torch.ones(2 * DIM))
        for j in range(3):
            close(method.memory.inner.data[k, j], sum(hidden[i, j] * inner[k, i] for i in range(3)))
        for j in range(2 * DIM):
            row = sum(output[i, j] * outer[k, i] for i in range(2 * DIM))
            close(method.memory.outer.data[k, j], row @ hidden, rtol=1e-4, atol=1e-5)


def test_fusing_stores_the_largest_attribution_and_drops_the_reference() -> None:
    method, aligned = begun(), begun()
    hidden, output = aligned.attributions(SECOND)
    aligned.align(hidden, output)
    known, reference = method.known_hidden.clone(), method.reference.tensors()["inner"]
    work(method, SECOND, "fuse")
    close(method.memory.inner.data, fused(reference, aligned.memory.inner, hidden, known, 0.5))
    close(method.known_hidden, torch.maximum(known, hidden))
    assert not method.reference.taken


def test_the_first_task_is_kept_as_it_was_trained() -> None:
    method = EvoPrompt(EvoPromptConfig(**OPTIONS), small_backbone(4))
    method.begin_task(FIRST)
    work(method, FIRST, "prototypes")
    before, fresh = method.memory.outer.detach().clone(), method.attributions(FIRST)[1]
    work(method, FIRST, "fuse")
    assert torch.equal(method.memory.outer, before)
    assert torch.equal(method.known_output, fresh)


def test_a_class_of_several_domains_gets_the_mean_of_its_outputs() -> None:
    method = EvoPrompt(EvoPromptConfig(**OPTIONS), small_backbone(4))
    tasks = [Task(i, (0, 1, 2)) for i in range(2)]
    for task in tasks:
        method.begin_task(task)
        work(method, task, "prototypes")
    method.head.weight.data.normal_()
    assert method.allowed(tasks[1]).tolist() == [False] * 3 + [True] * 3
    with torch.no_grad():
        logits = method.predict(tasks[0].images).logits
        close(logits[0], slow_logits(method, tasks[0].images[0]).reshape(2, 3).mean(0))
    before = method.head.weight.detach().clone()
    train(method, tasks[1])
    assert torch.equal(method.head.weight[:3], before[:3])
    assert not torch.equal(method.head.weight[3:], before[3:])
