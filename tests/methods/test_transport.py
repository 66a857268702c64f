"""Optimal transport against problems solved by hand and by other programmes."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment, linprog
from torch import Tensor, tensor

from hashprompt.methods.evoprompt.transport import transport_plan

close = torch.testing.assert_close


def problem(n: int, m: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    cost = torch.rand(n, m, generator=generator, dtype=torch.float64)
    source, target = (torch.rand(k, generator=generator, dtype=torch.float64) for k in (n, m))
    return cost, source / source.sum(), target / target.sum()


def test_a_plan_by_hand() -> None:
    # The first place keeps what it may; only 0.2 must move, and pays for it.
    cost = tensor([[0.0, 1.0], [1.0, 0.0]])
    source, target = tensor([0.7, 0.3]), tensor([0.5, 0.5])
    plan = transport_plan(cost, source, target, "exact")
    close(plan, tensor([[0.5, 0.2], [0.0, 0.3]]))


@pytest.mark.parametrize(("n", "m"), [(12, 9), (5, 40), (60, 60), (1, 3)])
def test_the_exact_plan_costs_what_the_whole_programme_costs(n: int, m: int) -> None:
    cost, source, target = problem(n, m)
    plan = transport_plan(cost, source, target, "exact")
    close(plan.sum(1), source)
    close(plan.sum(0), target)
    assert (plan >= 0).all()
    sums = np.zeros((n + m, n * m))
    for i in range(n):
        for j in range(m):
            sums[[i, n + j], i * m + j] = 1
    best = linprog(cost.flatten().numpy(), A_eq=sums, b_eq=torch.cat((source, target)).numpy()).fun
    assert float((plan * cost).sum()) == pytest.approx(best, rel=1e-6)


def test_between_equal_masses_the_exact_plan_is_the_best_assignment() -> None:
    cost, _, _ = problem(200, 200)
    even = torch.full((200,), 1 / 200, dtype=torch.float64)
    plan = transport_plan(cost, even, even, "exact")
    rows, columns = linear_sum_assignment(cost.numpy())
    expected = torch.zeros(200, 200, dtype=torch.float64)
    expected[rows, columns] = 1 / 200
    close(plan, expected, atol=1e-9, rtol=0)


def test_the_sinkhorn_plan_has_the_marginals_and_nearly_the_cost() -> None:
    cost, source, target = problem(30, 20)
    exact = transport_plan(cost, source, target, "exact")
    gaps = []
    for blur in (0.1, 0.01):
        plan = transport_plan(cost, source, target, "sinkhorn", blur)
        close(plan.sum(0), target)
        assert float((plan.sum(1) - source).abs().sum()) < 2e-4
        gaps.append(float(((plan - exact) * cost).sum()))
    assert gaps[0] > gaps[1] > -1e-4
    assert gaps[1] < 0.01


def test_the_sinkhorn_plan_is_the_entropic_optimum() -> None:
    cost, source, target = problem(6, 5)
    plan = transport_plan(cost, source, target, "sinkhorn", blur=0.2)
    # At the optimum log P + cost/blur is a sum of a number per row and one per column.
    rest = plan.log() + cost / 0.2
    centred = rest - rest.mean(0) - rest.mean(1, keepdim=True) + rest.mean()
    close(centred, torch.zeros(6, 5, dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize("n", [16, 300])
def test_plans_are_those_of_python_optimal_transport(n: int) -> None:
    ot = pytest.importorskip("ot")
    cost, source, target = problem(n, n)
    plan = transport_plan(cost, source, target, "exact")
    close(plan, tensor(ot.emd(*(x.numpy() for x in (source, target, cost)))), atol=1e-9, rtol=0)
    plan = transport_plan(cost, source, target, "sinkhorn", blur=0.5)
    entropic = ot.sinkhorn(source, target, cost, 0.5, method="sinkhorn_log", stopThr=1e-12)
    close(plan, entropic, atol=1e-4 / n, rtol=1e-3)
