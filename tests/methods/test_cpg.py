"""CPG: gating, projected updates, null spaces."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from fakes import DEPTH, DIM, Task, learn, small_backbone
from scipy.stats import norm
from torch import Tensor, nn, tensor

from hashprompt.methods.base import Batch
from hashprompt.methods.cpg.method import CPG, CPGConfig, imbalance, knee, null_projector

close = torch.testing.assert_close
EXPERTS = 6


def make_cpg(**options: Any) -> CPG:
    defaults = {"experts": EXPERTS, "top_k": 2, "prompt_length": 3}
    method = CPG(CPGConfig(**{**defaults, **options}), small_backbone())
    nn.init.normal_(method.gates)
    return method


def low_rank(dim: int, rank: int) -> Tensor:
    """(rank, dim) inputs with equal singular values."""
    return 3 * torch.linalg.qr(torch.randn(dim, rank)).Q.T


# Gating and prompts. -----------------------------------------------------------------------


def test_gates_are_softmax_then_the_largest_then_softmax_again() -> None:
    method, query = make_cpg(), torch.randn(4, DIM)
    weights = method.mix(1, query)
    for i, q in enumerate(query.tolist()):
        gate = method.gates[1].tolist()
        scores = [math.exp(sum(q[d] * gate[d][e] for d in range(DIM))) for e in range(EXPERTS)]
        shares = [s / sum(scores) for s in scores]
        top = sorted(range(EXPERTS), key=lambda e: -shares[e])[:2]
        total = sum(math.exp(shares[e]) for e in top)
        expected = [math.exp(shares[e]) / total if e in top else 0 for e in range(EXPERTS)]
        assert weights[i].tolist() == pytest.approx(expected, abs=1e-5)


def test_prompts_join_the_attention_of_their_block_and_leave_again() -> None:
    method, images = make_cpg(), torch.randn(3, 3, 16, 16)
    vit = method.backbone.vit
    x = method.backbone.embed(images)
    queries = []
    for index, block in enumerate(vit.blocks):
        queries.append(x[:, 0])
        weights = method.mix(index, x[:, 0])
        own = [sum(w[e] * method.experts[index, e] for e in range(EXPERTS)) for w in weights]
        x = block(torch.cat((x, torch.stack(own)), dim=1))[:, : x.shape[1]]
    encoded = method.encode(images)
    close(encoded.features, vit.norm(x)[:, 0])
    close(encoded.queries, torch.stack(queries, 1))


def test_an_untouched_gate_still_tells_experts_apart() -> None:
    method = CPG(CPGConfig(), small_backbone())
    scores = torch.randn(50, DIM) @ method.gates[0]
    assert scores.abs().max() < 0.1  # nearly the zeros of the public code
    assert all(len(row.unique()) == len(row) for row in scores)


# The loss. ---------------------------------------------------------------------------------


def test_imbalance_is_the_squared_coefficient_of_variation() -> None:
    # mean 3, deviations -2 -1 0 3: variance 14 / 3
    close(imbalance(tensor([[1.0, 2, 3, 6], [5, 5, 5, 5]])), tensor([14 / 27, 0.0]))


def test_the_loss_is_the_tempered_cross_entropy_of_the_tasks_own_head_and_the_balance() -> None:
    method = make_cpg(temperature=7.0, balance=0.3)
    learn(method, Task(0, (0, 1)))
    task = Task(1, (2, 3))
    method.begin_task(task)
    losses = method.phases(task)[0].step(Batch(task.images, task.labels))  # type: ignore[misc]
    features, _, weights = method.encode(task.images)
    own = (features @ method.head.weight[2:].T + method.head.bias[2:]) / 7
    close(losses["ce"], -own.log_softmax(1)[torch.arange(12), task.labels - 2].mean())
    importance = weights.sum(0).detach().numpy()
    cv = [np.var(row, ddof=1) / np.mean(row) ** 2 for row in importance]
    assert losses["balance"].item() == pytest.approx(0.3 * np.mean(cv), rel=1e-5)


def test_the_rate_falls_to_a_tenth_at_the_milestones() -> None:
    method = make_cpg(epochs=10, repeats=2, milestones=(5, 8))
    phase = method.phases(Task(0, (0, 1)))[0]
    assert phase.epochs == 20
    assert callable(phase.schedule)
    factors = [phase.schedule(step, 20) for step in range(20)]
    assert factors == pytest.approx([1] * 8 + [0.1] * 6 + [0.01] * 6)


# Null spaces. ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([9, 9, 9, 0, 0, 0], 3),  # an exact step
        ([9, 8, 7, 1, 0.5, 0.1], 3),  # second differences 0, -5, 5.5, 0.1
        ([100, 9, 9, 9, 0, 0], 1),  # a first value that dwarfs the rest is all that is kept
        ([5, 4, 3, 2, 1, 0.9], 4),  # 0, 0, 0, 0.9
    ],
)
def test_the_knee_is_the_middle_of_the_largest_second_difference(
    values: list[float], expected: int
) -> None:
    assert knee(tensor(values, dtype=torch.float32)) == expected


def test_a_long_spectrum_is_smoothed() -> None:
    # A step behind index 59 becomes a normal distribution of width 10, whose second difference is
    # largest one width further.
    values = torch.cat((torch.full((60,), 5.0), torch.zeros(140)))
    smooth = 5 * norm.sf((np.arange(200) - 59.5) / 10)
    expected = 1 + int(np.diff(smooth, 2).argmax())
    assert abs(knee(values) - expected) <= 1
    assert expected in (69, 70)


def test_the_projector_is_normalised_and_sees_nothing_of_the_inputs() -> None:
    torch.manual_seed(0)
    inputs = low_rank(12, 5)
    projector = null_projector(inputs.T @ inputs)
    close(projector, projector.T)
    close(projector.norm(), tensor(1.0))
    close(projector @ projector, projector / math.sqrt(7))  # 7 directions are free
    assert (inputs @ projector).abs().max() < 1e-5


# Updates. ----------------------------------------------------------------------------------


def moved(method: CPG, task: Any, **how: int) -> tuple[Tensor, Tensor]:
    """How far gates and experts move while a task is learned."""
    gates, experts = method.gates.detach().clone(), method.experts.detach().clone()
    learn(method, task, **how)
    return method.gates.detach() - gates, method.experts.detach() - experts


def test_gates_and_experts_move_only_where_old_inputs_do_not_see_it() -> None:
    method = make_cpg(plasticity=0.0)
    queries = [low_rank(DIM, 5) for _ in range(DEPTH)]
    weights = [low_rank(EXPERTS, 2) for _ in range(DEPTH)]
    method.query_gram = torch.stack([q.T @ q for q in queries])
    method.weight_gram = torch.stack([g.T @ g for g in weights])
    gates, experts = moved(method, Task(0, (0, 1)), epochs=3)
    for block in range(DEPTH):
        assert gates[block].abs().max() > 1e-4
        assert experts[block].abs().max() > 1e-4
        assert (queries[block] @ gates[block]).abs().max() < 1e-6
        assert (weights[block] @ experts[block].flatten(1)).abs().max() < 1e-6


def test_it_is_the_step_of_adam_that_is_projected() -> None:
    free, bound = make_cpg(), make_cpg(plasticity=0.25)
    bound.load_state_dict(free.state_dict())
    seen = [low_rank(DIM, 5) for _ in range(DEPTH)]
    bound.query_gram = torch.stack([q.T @ q for q in seen])
    bound.weight_gram = torch.diag(tensor([1.0, 1, 1, 0, 0, 0])).expand(DEPTH, -1, -1)
    on_gates, on_experts = bound.projectors()
    # Three free directions, so the projector is divided by √3.
    expected = torch.diag(tensor([0, 0, 0, 1.0, 1, 1])) * 0.75 / math.sqrt(3) + torch.eye(6) / 4
    close(on_experts[0], expected)
    gates, experts = moved(free, Task(0, (0, 1)), epochs=1)
    bound_gates, bound_experts = moved(bound, Task(0, (0, 1)), epochs=1)
    close(bound_gates, on_gates @ gates, atol=1e-6, rtol=1e-4)
    close(
        bound_experts,
        torch.einsum("bij,bjld->bild", on_experts, experts),
        atol=1e-6,
        rtol=1e-4,
    )


def test_what_gates_saw_adds_up_over_tasks() -> None:
    method = make_cpg()
    queries = torch.zeros(DEPTH, DIM, DIM)
    weights = torch.zeros(DEPTH, EXPERTS, EXPERTS)
    for index, classes in enumerate([(0, 1), (2, 3)]):
        task = Task(index, classes)
        learn(method, task)
        with torch.no_grad():
            encoded = method.encode(task.images)
        for q, g in zip(encoded.queries, encoded.weights, strict=True):
            for block in range(DEPTH):
                queries[block] += torch.outer(q[block], q[block])
                weights[block] += torch.outer(g[block], g[block])
    close(method.query_gram, queries, atol=1e-4, rtol=1e-4)
    close(method.weight_gram, weights, atol=1e-4, rtol=1e-4)


def test_projectors_follow_what_was_learned_last() -> None:
    method = make_cpg()
    learn(method, Task(0, (0, 1)))
    first = method.projectors()[0].clone()
    learn(method, Task(1, (2, 3)))
    assert not torch.equal(method.projectors()[0], first)
