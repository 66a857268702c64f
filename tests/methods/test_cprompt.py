"""CPrompt: its four losses, its keys and its choice of prompts, against slow code."""

import math
from typing import Any

import torch
from fakes import DIM, Task, cls_token, small_backbone
from torch import Tensor, tensor

from hashprompt.methods.base import Batch
from hashprompt.methods.cprompt.method import CPrompt, CPromptConfig, classifier_consistency
from hashprompt.parts.slots import ClassRows

close = torch.testing.assert_close
CLASSES = [(0, 1), (2, 3, 4), (5, 6)]  # tasks of different size
OPTIONS = {"layers": (1, 3), "prompt_length": 2, "smoothing": 1.5, "margin": 0.1}


def learned(tasks: int = 3, **options: Any) -> CPrompt:
    """After some tasks, with random numbers where training would have left others."""
    method = CPrompt(CPromptConfig(**{**OPTIONS, **options}), small_backbone(4))
    for index in range(tasks):
        method.begin_task(Task(index, CLASSES[index]))
        for parameter in method.parameters():
            parameter.data.normal_(0, 0.5)
    return method


def feature(method: CPrompt, image: Tensor, task: int) -> Tensor:
    prompt = method.prompts.stacked()[task]
    return cls_token(method.backbone, image, {0: prompt[0], 2: prompt[1]}, norm=False)


def answers(method: CPrompt, task: int, feature: Tensor) -> list[Tensor]:
    """Logits of the classifier of a task, one dot product after another."""
    rows = [i for i, t in enumerate(method.cells.task.tolist()) if t == task]
    weight, bias = method.classifiers.weight.joined(), method.classifiers.bias.joined()
    return [sum(weight[row] * feature) + bias[row] for row in rows]


def log_share(logits: list[Tensor], chosen: int) -> Tensor:
    """log softmax of one of the logits."""
    return logits[chosen] - torch.logsumexp(torch.stack(logits), 0)


def slow_losses(method: CPrompt, task: Task, drawn: Tensor) -> dict[str, Tensor]:
    """Each loss image by image."""
    t, first, count = task.index, min(task.classes), len(task.labels)
    losses = {name: torch.zeros(()) for name in ("auxiliary", "ccl", "keys", "pcl")}
    keys = method.keys.joined()
    for image, label, other in zip(task.images, task.labels.tolist(), drawn.tolist(), strict=True):
        f = feature(method, image, t)
        own = method.auxiliary.weight.current @ f + method.auxiliary.bias.current
        losses["auxiliary"] -= log_share(list(own), label - first) / count

        best_new = max(answers(method, t, f))
        for k in range(t):
            old = answers(method, k, f)
            tau = 1.0 if best_new > max(old) + 0.1 else 1.5
            total = sum(torch.exp(z / tau) for z in old)
            for c, z in enumerate(old):
                share = torch.exp(z / tau) / total
                losses["ccl"] -= share * log_share(old, c) / t / count

        query = cls_token(method.backbone, image, {}, norm=False)
        cosines = [sum(query * key) / query.norm() / key.norm() for key in keys]
        losses["keys"] -= log_share(cosines, label) / count

        any_prompts = feature(method, image, other)
        losses["pcl"] -= log_share(answers(method, t, any_prompts), label - first) / count
    return losses


def test_the_four_losses_are_those_of_slow_code() -> None:
    method, task = learned(), Task(2, CLASSES[2], per_class=5)
    step = method.phases(task)[0].step
    assert step is not None
    torch.manual_seed(5)
    losses = step(Batch(task.images, task.labels))
    torch.manual_seed(5)
    drawn = torch.randint(3, (10,))
    assert len(drawn.unique()) == 3
    with torch.no_grad():
        expected = slow_losses(method, task, drawn)
    assert losses.keys() == expected.keys()
    for name, value in losses.items():
        close(value.detach(), expected[name], rtol=1e-4, atol=1e-5, msg=name)


def test_the_first_task_has_no_old_classifier_to_agree_with() -> None:
    method, task = learned(tasks=1), Task(0, CLASSES[0])
    losses = method._step(Batch(task.images, task.labels), task)
    assert losses.keys() == {"auxiliary", "keys", "pcl"}


def test_only_old_classifiers_that_are_not_behind_are_smoothed() -> None:
    # Task 0 has two outputs, task 1 (old) two, task 2 (new) one.
    tasks = tensor([0, 0, 1, 1, 2])
    logits = tensor([[1.0, 0.0, 3.0, 0.0, 2.0]], requires_grad=True)
    classifier_consistency(logits, tasks, smoothing=2.0, margin=0.5).backward()
    gradient = logits.grad
    assert gradient is not None
    assert gradient[0, [0, 1, 4]].tolist() == [0, 0, 0]  # 2 > 1 + 0.5: nothing to do
    # d/dz of cross-entropy is softmax(z) − target, here halved by the mean over two tasks.
    sharp, smooth = 1 / (1 + math.exp(-3)), 1 / (1 + math.exp(-1.5))
    close(gradient[0, 2:4], tensor([sharp - smooth, smooth - sharp]) / 2)
    # With a larger margin the lead of 1 is not enough.
    again = logits.detach().requires_grad_()
    classifier_consistency(again, tasks, smoothing=2.0, margin=1.5).backward()
    assert again.grad is not None
    assert again.grad[0, 0] > 0 > again.grad[0, 1]


def test_new_keys_are_orthogonal_to_each_other_and_to_the_keys_before() -> None:
    method = learned(tasks=2)  # five keys that are not orthogonal any more
    method.begin_task(Task(2, (5, 6)))
    fresh, earlier = method.keys.current.detach(), method.keys.frozen
    close(fresh @ fresh.T, torch.eye(2), atol=1e-5, rtol=0)
    close(fresh @ earlier.T, torch.zeros(2, 5), atol=1e-5, rtol=0)


def test_with_more_classes_than_dimensions_keys_are_random_directions() -> None:
    method = CPrompt(CPromptConfig(**OPTIONS), small_backbone(4))
    method.begin_task(Task(0, tuple(range(DIM - 1))))
    method.begin_task(Task(1, tuple(range(DIM - 1, DIM + 4))))
    keys = method.keys.joined().detach()
    close(keys.norm(dim=1), torch.ones(DIM + 4))
    close(keys[:DIM] @ keys[:DIM].T, torch.eye(DIM), atol=1e-5, rtol=0)  # while there is room
    assert len(torch.unique(keys, dim=0)) == DIM + 4


def test_rows_of_classes_stay_in_the_order_of_their_arrival() -> None:
    rows, arrived = ClassRows(2), torch.arange(12.0).reshape(6, 2)
    for part in arrived.split((2, 3, 1)):
        rows.add(part)
    assert torch.equal(rows.joined(), arrived)
    assert torch.equal(rows.current, arrived[5:])


def test_prompts_start_as_those_of_the_task_before_and_classifiers_afresh() -> None:
    method = learned(tasks=1)
    last, row = method.prompts.current.detach().clone(), method.classifiers.weight.current[0]
    method.begin_task(Task(1, CLASSES[1]))
    assert torch.equal(method.prompts.current, last)
    bound = math.sqrt(3 / DIM)
    weight = method.classifiers.weight.current
    assert weight.shape == (3, DIM)
    assert 0.8 * bound < weight.abs().max() <= bound
    assert torch.equal(method.classifiers.weight.frozen[0], row)
    assert not method.classifiers.bias.current.any()


@torch.no_grad()
def test_the_best_class_key_decides_whose_prompts_an_image_gets() -> None:
    method = learned()
    pixels = torch.cat([Task(i, CLASSES[i]).images for i in range(3)])
    # Keys that are the queries of some images, so that the choice differs from image to image.
    keys = torch.stack([cls_token(method.backbone, p, {}, norm=False) for p in pixels[::6]])
    method.keys.frozen, method.keys.current.data = keys[:5], keys[5:]
    prediction = method.predict(pixels, plain=torch.full((len(pixels), DIM), torch.nan))
    chosen = []
    for i, image in enumerate(pixels):
        query = cls_token(method.backbone, image, {}, norm=False)
        cosines = [float(query @ key / key.norm()) for key in method.keys.joined()]
        best = cosines.index(max(cosines))
        task = next(t for t, classes in enumerate(CLASSES) if best in classes)
        f = feature(method, image, task)
        logits = torch.stack([z for t in range(3) for z in answers(method, t, f)])
        close(prediction.logits[i], logits, rtol=1e-4, atol=1e-4)
        assert prediction.task is not None
        assert prediction.first_guess is not None
        assert (prediction.task[i], prediction.first_guess[i]) == (task, best)
        chosen.append(task)
    assert set(chosen) == {0, 1, 2}
