"""CODA-Prompt against slow arithmetic."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fakes import DIM, Task, small_backbone, train
from torch import Tensor

from hashprompt.methods.base import Batch
from hashprompt.methods.coda.method import Coda, CodaConfig, component_weights
from hashprompt.parts.slots import orthogonal_to, orthogonality_penalty

close = torch.testing.assert_close


def make_coda(**options: Any) -> Coda:
    defaults = {"layers": (1, 3), "components_per_task": 3, "prompt_length": 2}
    return Coda(CodaConfig(**{**defaults, **options}), small_backbone(4, lively=False))


def learned(tasks: int = 2, **options: Any) -> Coda:
    """A learner that has been trained on tasks of two classes each."""
    method = make_coda(**options)
    for index in range(tasks):
        task = Task(index, (2 * index, 2 * index + 1))
        method.begin_task(task)
        train(method, task)
    return method


def gram_schmidt(earlier: Tensor, fresh: Tensor) -> Tensor:
    """One vector after the other: take out what lies along every vector before it."""
    basis: list[Tensor] = []
    for vector in torch.cat((earlier, fresh)).double():
        for other in basis:
            vector = vector - (vector @ other) * other
        basis.append(vector / vector.norm())
    return torch.stack(basis[len(earlier) :])


# Growing. ------------------------------------------------------------------------------------


def test_new_vectors_are_those_of_gram_schmidt() -> None:
    earlier = torch.randn(2, 4, 9)  # not orthogonal, as after training
    torch.manual_seed(3)
    found = orthogonal_to(earlier, 3)
    torch.manual_seed(3)
    fresh = torch.randn(2, 3, 9)
    expected = torch.stack(
        [gram_schmidt(old, new) for old, new in zip(earlier, fresh, strict=True)]
    )
    close(found, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("taken", [0, 5, 7, 8, 11])
def test_vectors_beyond_the_room_in_space_are_random_unit_vectors(taken: int) -> None:
    earlier = torch.randn(1, taken, 8)
    found = orthogonal_to(earlier, 4)[0]
    close(found.norm(dim=1), torch.ones(4))
    room = min(4, max(0, 8 - taken))
    gram = found[:room] @ torch.cat((found[:room], earlier[0])).T
    close(gram, torch.eye(room, room + taken), rtol=0, atol=1e-5)
    assert found.unique(dim=0).shape == (4, 8)


def test_new_components_start_orthogonal_to_all_trained_ones() -> None:
    method = learned(2)
    method.begin_task(Task(2, (4, 5)))
    for slots in (method.components, method.keys, method.attention):
        vectors = slots.joined().detach().flatten(2)  # (blocks, 9, …)
        assert vectors.shape[:2] == (2, 9)
        cosines = F.normalize(vectors, dim=2) @ F.normalize(vectors, dim=2).mT
        assert (cosines[:, 6:] - torch.eye(9)[6:]).abs().max() < 1e-5
        assert cosines[:, :6, :6].tril(-1).abs().max() > 1e-3  # training turned the old ones


# Prompts. ------------------------------------------------------------------------------------


def slow_weight(query: Tensor, attention: Tensor, key: Tensor) -> Tensor:
    attended = query * attention
    return attended @ key / (attended.norm() * key.norm())


def test_a_weight_is_the_cosine_of_the_attended_query_and_the_key() -> None:
    query, attention, keys = torch.randn(4, DIM), torch.randn(2, 5, DIM), torch.randn(2, 5, DIM)
    found = component_weights(query, attention, keys)
    for b in range(4):
        for g in range(2):
            for m in range(5):
                close(found[b, g, m], slow_weight(query[b], attention[g, m], keys[g, m]))
    assert found.min() < 0  # no softmax
    close(component_weights(7 * query, attention, 3 * keys), found)


def test_an_attention_vector_of_zeros_does_no_harm() -> None:
    attention = torch.zeros(1, 1, DIM, requires_grad=True)
    weight = component_weights(torch.randn(2, DIM), attention, torch.randn(1, 1, DIM))
    weight.sum().backward()
    assert attention.grad is not None
    assert weight.abs().max() == 0
    assert attention.grad.isfinite().all()


def test_the_prompt_is_the_weighted_sum_of_all_components() -> None:
    method = learned(2)
    query = torch.randn(3, DIM)
    prefix = method.prompt(torch.zeros(3, 5, DIM), query, training=False).inject.prefix
    assert set(prefix) == {0, 2}
    parts = (method.components, method.keys, method.attention)
    for position, block in enumerate((0, 2)):
        for image in range(3):
            expected = torch.zeros(2, 2, DIM)
            for task in range(2):
                p, k, a = (s.stacked()[task, position] for s in parts)
                for m in range(3):
                    expected = expected + slow_weight(query[image], a[m], k[m]) * p[m]
            given = prefix[block]
            assert isinstance(given, Tensor)
            close(given[image], expected)


# Losses and sizes. ---------------------------------------------------------------------------


def test_the_orthogonality_penalty_is_a_mean_over_pairs_summed_over_blocks() -> None:
    vectors = torch.randn(2, 3, 7)
    expected = 0.0
    for group in vectors.double():
        for i in range(3):
            for j in range(3):
                expected += float((group[i] @ group[j] - float(i == j)) ** 2) / 9
    assert float(orthogonality_penalty(vectors)) == pytest.approx(expected, rel=1e-5)


def test_the_penalty_counts_keys_attention_and_components_of_all_tasks() -> None:
    method = learned(2, orthogonality=0.5)
    task = Task(1, (2, 3))
    step = method.phases(task)[0].step
    assert step is not None
    losses = step(Batch(task.images, task.labels))
    slots = (method.keys, method.attention, method.components)
    terms = [orthogonality_penalty(s.joined().flatten(2)) for s in slots]
    close(losses["orthogonality"], 0.5 * (terms[0] + terms[1] + terms[2]))
    assert set(learned(1).prompt(task.images, torch.randn(12, DIM), training=True).losses) == set()
