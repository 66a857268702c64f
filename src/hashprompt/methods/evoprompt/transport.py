"""Optimal transport: how to move one set of masses onto another at the least cost."""

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.sparse import csr_array
from torch import Tensor

from hashprompt.parts.precision import exact
from hashprompt.parts.variants import Solver

TINY = 1e-9


def transport_plan(
    cost: Tensor, source: Tensor, target: Tensor, solver: Solver, blur: float = 0.01
) -> Tensor:
    """Mass (n, m) that goes from each place of the source to each place of the target.

    Args:
        cost: (n, m) per unit of mass, of the order of 1.
        source: (n,) masses, sum 1.
        target: (m,) masses, sum 1.
        solver: `exact` is a linear programme, `sinkhorn` adds −blur · entropy to the cost.
        blur: smaller is nearer to exact, and slower.
    """
    if solver == "sinkhorn":
        return sinkhorn(exact(cost), exact(source), exact(target), blur).to(cost)
    plan = cheapest(*(exact(x).cpu().numpy() for x in (cost, source, target)))
    return torch.from_numpy(plan).to(cost)


def sinkhorn(
    cost: Tensor,
    source: Tensor,
    target: Tensor,
    blur: float,
    tolerance: float = 1e-4,
    most_rounds: int = 1000,
) -> Tensor:
    """Entropic plan in the log domain; columns sum to `target` exactly, rows nearly to `source`.

    Rounds end when the misplaced mass is below `tolerance`, or after `most_rounds`: a small blur
    needs thousands of them where masses differ and nodes are far apart.
    """
    scores = -cost / blur
    rows, columns = torch.zeros_like(source), torch.zeros_like(target)
    for _ in range(most_rounds):
        before = rows
        rows = source.log() - torch.logsumexp(scores + columns, 1)
        columns = target.log() - torch.logsumexp(scores + rows[:, None], 0)
        # The rows of the plan before this round summed to source · exp(before − rows).
        if (source * torch.expm1(before - rows)).abs().sum() < tolerance:
            break
    return (scores + rows[:, None] + columns).exp()


def cheapest(cost: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The cheapest plan, by a linear programme over few of its n · m entries.

    A plan uses fewer than n + m routes. The programme begins with some that can carry the mass,
    and opens more where the shadow prices say that they would save something, until none would.
    With 3840 × 3840 entries that takes seconds; all of them at once would not fit into memory.
    """
    scale = len(source)  # masses about 1: the solver's tolerance is absolute
    source, target = source * scale, target * scale
    is_open = np.zeros(cost.shape, dtype=bool)
    is_open[_staircase(source, target)] = True
    is_open[-1] = is_open[:, -1] = True  # with a hub the solver is ten times faster
    saving = cost
    while True:
        cheapest = min(8, cost.shape[1])
        routes = np.argpartition(saving, cheapest - 1, axis=1)[:, :cheapest]
        np.put_along_axis(is_open, routes, True, axis=1)
        start, end = is_open.nonzero()
        mass, prices = _cheapest_flow(cost[start, end], start, end, source, target)
        saving = cost - prices[: len(source), None] - prices[len(source) :]
        if saving.min() > -1e-6:
            plan = np.zeros(cost.shape)
            plan[start, end] = mass / scale
            return plan


def _cheapest_flow(
    cost: np.ndarray, start: np.ndarray, end: np.ndarray, source: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mass on each of the routes start -> end, and the shadow prices (n + m,) of the places."""
    routes = np.arange(len(start))
    places = np.concatenate((start, len(source) + end))
    shape = (len(source) + len(target), len(routes))
    sums = csr_array((np.ones(len(places)), (places, np.tile(routes, 2))), shape=shape)
    found = linprog(cost, A_eq=sums, b_eq=np.concatenate((source, target)), method="highs")
    if found.status != 0:
        raise RuntimeError(f"no transport plan: {found.message}")
    return found.x.clip(min=0), found.eqlin.marginals


def _staircase(source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Routes of a plan that always exists: lay both masses end to end and match what overlaps."""
    ends = source.cumsum(), target.cumsum()
    cuts = np.sort(np.concatenate(([0.0], *ends)))
    middles = (cuts[1:] + cuts[:-1]) / 2
    start, end = (np.searchsorted(each, middles).clip(max=len(each) - 1) for each in ends)
    return start, end
