"""Forgetting and merging classes, and tasks without prompts: what is left is what it should be."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small import DIM, backbone, images
from torch import Tensor

from hashprompt.methods import METHODS
from hashprompt.methods.averaged_prompt.relabelling import relabel

TASKS = ((0, 1, 2), (3,), (1, 4))  # class 3 is alone in its task, class 1 came twice
EACH = 9  # images of a class in a task
NAMES = ("hash", "hide", "norga", "gaussian-head")


def features_of(task: int, label: int, kind: str) -> Tensor:
    """(9, D) of the images of a class."""
    seed = 100 * task + 10 * label + (kind == "plain")
    return 3 * label + torch.randn(EACH, DIM, generator=torch.manual_seed(seed))


def learned(name: str, without: int | None = None, looked: tuple[int, ...] = (), **options: Any):
    """A method after three tasks with random prompts; `without` a class in all statistics."""
    registered = METHODS[name]
    settings = {"tii": "discriminant", "align": "discriminant", "ridge": 1.0, **options}
    if name != "gaussian-head":
        settings |= {"layers": (1, 2)}
    method: Any = registered.load()(registered.config(**settings), backbone())
    for index, classes in enumerate(TASKS):
        torch.manual_seed(index)
        method.begin_task(SimpleNamespace(index=index, classes=classes))
        for parameter in method.parameters():
            parameter.data.uniform_(-0.5, 0.5)
        for kind in ("plain", "prompted")[: 1 + method.has_prompts]:
            shown = "plain" if index in looked else kind
            stats = method.plain_stats if kind == "plain" else method.prompted_stats
            described = [c for c in classes if c != without]
            rows = [features_of(index, c, shown) for c in described]
            labels = torch.tensor(described).repeat_interleave(EACH)
            if described:
                stats.add(torch.cat(rows), labels, described)
        seen = SimpleNamespace(
            index=index, labels=torch.zeros(4), map=lambda see: see(images(4)[0])
        )
        method.end_task(seen)
    if without is not None:
        kept = method.cells.label != without
        method.cells.task, method.cells.label = method.cells.task[kept], method.cells.label[kept]
    return method.eval()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("forgotten", [0, 1, 3, 4])
@torch.no_grad()
def test_forgetting_answers_as_if_the_statistics_never_had_the_class(
    name: str, forgotten: int
) -> None:
    """The other one keeps the row of the class in its head and, of class 3, an unused task."""
    options = {"voters": ("plain", "head")} if name != "gaussian-head" else {}
    method = learned(name, **options)
    ids = [c - (c > forgotten) if c != forgotten else None for c in range(5)]
    relabel(method, ids, [EACH] * 5)
    pixels, plain = images(12)
    found = method.predict(pixels, plain)
    never = learned(name, without=forgotten, **options)
    kept = [c for c in range(5) if c != forgotten]
    never.head.weight = torch.nn.Parameter(never.head.weight[kept])
    never.head.bias = torch.nn.Parameter(never.head.bias[kept])
    never.cells.label = torch.tensor([ids[c] for c in never.cells.label.tolist()])
    expected = never.predict(pixels, plain)
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-6)
    assert found.logits.shape == (12, 4)
    assert torch.equal(found.first_guess, expected.first_guess)


def test_a_task_without_classes_leaves_nothing() -> None:
    method = learned("hash")
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    method.history.by_task = torch.arange(3)[:, None, None].expand_as(method.history.by_task)
    relabel(method, [0, 1, 2, None, 3], [EACH] * 5)
    assert method.cells.task.tolist() == [0, 0, 0, 1, 1]
    assert method.cells.label.tolist() == [0, 1, 2, 1, 3]
    assert torch.equal(method.routers.frozen, before["routers.frozen"][:1])
    assert torch.equal(method.routers.current, before["routers.current"])
    assert torch.equal(method.penalties, before["penalties"][[0, 2]])
    assert method.usage()[1] == [2] * 15  # of the third task
    relabel(method, [0, None, 1, None], [EACH] * 4)  # now the newest task goes
    assert torch.equal(method.routers.current, before["routers.frozen"][0])
    assert len(method.routers.frozen) == 0
    assert len(method.state_dict()["prompted_stats.means"]) == 2


def test_the_prompt_of_the_newest_task_stays_when_an_older_one_goes() -> None:
    method = learned("hide", momentum=0.3)
    before = method.prompts.stacked().detach()
    relabel(method, [0, 1, 2, None, 3], [EACH] * 5)
    torch.testing.assert_close(method.prompts.stacked().detach(), before[[0, 2]])


@pytest.mark.parametrize("statistics", ["covariance", "multi-centroid"])
@torch.no_grad()
def test_gaussians_of_merged_classes_stay_side_by_side(statistics: str) -> None:
    method = learned("hash", statistics=statistics, centroids=2)
    before = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    relabel(method, [0, 1, 0, 2, 0], [EACH] * 5)  # 0 and 2 of the first task, 4 of the third
    assert method.cells.task.tolist() == [0, 0, 0, 1, 2, 2]
    assert method.cells.label.tolist() == [0, 1, 0, 2, 1, 0]
    for name in ("plain_stats.means", "prompted_stats.means", "prompted_stats.spread"):
        assert torch.equal(method.state_dict()[name], before[name])
    assert method.head.weight.shape == (3, DIM)
    pixels, _ = images(2)
    plain = torch.stack([features_of(0, c, "plain").mean(0) for c in (0, 2)])
    scores = method.discriminant("base").scores(plain)
    expected = scores[:, [0, 2, 5]].max(1).values  # the nearest of the class's Gaussians
    torch.testing.assert_close(method.cells.to_classes(scores)[:, 0], expected)
    assert method.predict(pixels, plain).logits.shape == (2, 3)


def test_rows_of_the_head_are_averaged_by_photos() -> None:
    method = learned("hash")
    weight = method.head.weight.detach().clone()
    relabel(method, [0, 0, 1, 2, 3], [1, 7, 3, 4, 6])
    expected = (1 * weight[0] + 7 * weight[1]) / 8
    torch.testing.assert_close(method.head.weight[0], expected)
    assert torch.equal(method.head.weight[1:], weight[2:])


# Tasks without prompts. ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hash", "hide", "norga"])
@torch.no_grad()
def test_a_task_without_prompts_is_answered_by_plain_features(name: str) -> None:
    pixels, plain = images(12)
    method = learned(name, looked=(0, 1, 2))
    assert method.plain_tasks().tolist() == [True] * 3
    found = method.predict(pixels, plain).logits
    expected = method.cells.to_classes(method.discriminant("base").scores(plain))
    torch.testing.assert_close(found, expected)
    assert not method.backbone.passes["prompted"]


@torch.no_grad()
def test_tasks_with_and_without_prompts_mix_in_a_batch() -> None:
    pixels, _ = images(12)
    plain = torch.cat([features_of(0, 0, "plain")[:6], features_of(1, 3, "plain")[:6]])
    method = learned("hash", looked=(1,))
    assert method.plain_tasks().tolist() == [False, True, False]
    found = method.predict(pixels, plain)
    assert found.task.tolist() == [0] * 6 + [1] * 6
    tokens = method.backbone.embed(pixels)
    features = torch.cat([method.prompted(tokens[:6], found.task[:6]), plain[6:]])
    expected = method.cells.to_classes(method.discriminant("prompted").scores(features))
    torch.testing.assert_close(found.logits, expected)
    for row in range(12):  # and alone
        alone = method.predict(pixels[row : row + 1], plain[row : row + 1]).logits
        torch.testing.assert_close(alone, found.logits[row : row + 1], rtol=1e-4, atol=1e-4)


def test_without_epochs_the_plain_gaussians_serve_for_both() -> None:
    registered = METHODS["hash"]
    config = registered.config(tii="discriminant", align="discriminant", epochs=0, voters=("head",))
    method: Any = registered.load()(config, backbone())
    plain = torch.cat([features_of(0, c, "plain") for c in (0, 1)])
    task = SimpleNamespace(
        index=0,
        classes=(0, 1),
        labels=torch.arange(2).repeat_interleave(EACH),
        features=lambda: plain,
    )
    method.begin_task(task)
    phases = method.phases(task)
    assert [phase.name for phase in phases] == ["tii-statistics", "statistics", "tap"]
    for phase in phases[:2]:
        phase.work()
    assert torch.equal(method.prompted_stats.means, method.plain_stats.means)
    assert torch.equal(method.prompted_stats.spread, method.plain_stats.spread)
    assert method.plain_tasks().tolist() == [True]
    assert len(phases[2].draw()) == 2  # batches: as many as there are cells
