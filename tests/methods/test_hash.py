"""Hash: what its readings change, what the report says of its routing, and the contracts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fakes import Task, learn, small_backbone
from running import TinyRun
from torch import tensor

from hashprompt.checks.contracts import CONTRACTS
from hashprompt.checks.example import Example
from hashprompt.methods.hash.method import Hash, HashConfig
from hashprompt.methods.hash.router import Routing
from hashprompt.methods.hash.routing_report import (
    describe_routing,
    difficulties,
    rank_correlation,
    routing_measures,
)
from hashprompt.runs import benchmark

SMALL: dict[str, Any] = {
    **{"layers": (1, 2), "experts": 4, "prompt_length": 3, "batch_size": 4},
    **{"tii": "discriminant", "align": "discriminant", "lr": 5.0},
}


def make(**options: Any) -> tuple[Hash, list[Task]]:
    backbone = small_backbone()
    method = Hash(HashConfig(**{**SMALL, **options}), backbone)
    return method, [Task(t, (2 * t, 2 * t + 1), backbone) for t in range(3)]


# Readings. -----------------------------------------------------------------------------------


def test_the_polynomial_penalty_has_the_exponent_of_its_option() -> None:
    method, (task, _, _) = make(penalty="polynomial", penalty_exponent=2.0, delta=0.3)
    learn(method, task)
    counts = method.history.by_task[0].double()
    expected = 0.3 * (4 * counts / counts.sum()) ** 2
    torch.testing.assert_close(method.penalty().double(), expected)


# The report of routing. ----------------------------------------------------------------------


def routing_of(weights: list[list[float]], scores: list[list[float]] | None = None) -> Routing:
    alpha = tensor(weights)[:, None]
    given = alpha if scores is None else tensor(scores)[:, None]
    return Routing(given, alpha.topk(2, -1).indices, alpha)


def test_a_constant_router_varies_nowhere_and_its_favourite_has_every_image() -> None:
    constant = routing_of([[0.7, 0.3, 0.0, 0.0]] * 6)
    found = routing_measures(constant, tensor([0, 0, 0, 1, 1, 1]), 0.4)
    assert found["routing_varies"] == pytest.approx(0, abs=1e-7)
    assert found["routing_by_class"] == 0
    assert found["favourite_share"] == found["favourites_share"] == 1
    assert found["usage_entropy"] == pytest.approx(0.5)  # two of four, evenly


def test_the_same_experts_in_other_shares_are_the_favourites_of_all_images() -> None:
    rows = [[0.9, 0.1, 0.0, 0.0], [0.2, 0.8, 0.0, 0.0]] * 3
    found = routing_measures(routing_of(rows), tensor([0, 1] * 3), 0.4)
    assert found["routing_varies"] > 0.1
    assert found["favourites_share"] == 1
    found = routing_measures(routing_of([*rows, [0.5, 0.0, 0.5, 0.0]]), tensor([0] * 7), 0.4)
    assert found["favourite_share"] == 1
    assert found["favourites_share"] == pytest.approx(13 / 14)


def test_routing_that_follows_the_class_varies_only_between_classes() -> None:
    rows = [[0.6, 0.4, 0.0, 0.0]] * 3 + [[0.0, 0.0, 0.6, 0.4]] * 3
    found = routing_measures(routing_of(rows), tensor([0, 0, 0, 1, 1, 1]), 0.4)
    assert found["routing_varies"] == pytest.approx(0.5)
    assert found["routing_by_class"] == pytest.approx(1)
    assert found["favourite_share"] == 0.5
    assert found["usage_entropy"] == pytest.approx(1)


def test_routing_is_measured_as_loops_do() -> None:
    rng = np.random.default_rng(1)
    alpha = rng.dirichlet(np.ones(5), 8)
    scores, labels = rng.normal(size=(8, 5)), np.array([0, 0, 1, 1, 1, 2, 2, 2])
    found = routing_measures(routing_of(alpha.tolist(), scores.tolist()), tensor(labels), 0.4)
    mean = alpha.mean(0)
    variance = np.mean([np.sum((a - mean) ** 2) for a in alpha])
    between = np.mean([np.sum((alpha[labels == y].mean(0) - mean) ** 2) for y in labels])
    assert found["routing_varies"] == pytest.approx(
        variance / np.mean([np.sum(a**2) for a in alpha]), rel=1e-5
    )
    assert found["routing_by_class"] == pytest.approx(between / variance, rel=1e-5)
    spread = np.mean([s.std(ddof=1) for s in scores])
    assert found["delta_over_spread"] == pytest.approx(0.4 / spread, rel=1e-5)


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_images_of_the_task_are_routed_as_in_training(scope: str) -> None:
    method, (task, _, _) = make(router_scope=scope)
    learn(method, task)
    found = describe_routing(method, task)
    with torch.no_grad():
        scores = method.routers.scores(method.backbone.embed(task.images), None)
    top = scores.topk(2, -1).indices
    if scope == "global":
        share = torch.bincount(top.flatten(), minlength=4).max() / len(top)
        assert found["favourite_share"] == pytest.approx(float(share))
    assert found["delta_over_spread"] > 0
    assert -1 <= found["entropy_by_difficulty"] <= 1


def test_difficulty_is_the_distance_from_the_class_mean_in_frozen_features() -> None:
    _, (task, _, _) = make()
    features, labels = task.features().numpy(), task.labels.numpy()
    means = np.stack([features[labels == label].mean(0) for label in labels])
    expected = np.linalg.norm(features - means, axis=1)
    np.testing.assert_allclose(difficulties(task).numpy(), expected, rtol=1e-5)
    assert rank_correlation(tensor([1.0, 2, 3]), tensor([1.0, 10, 100])) == pytest.approx(1)
    assert rank_correlation(tensor([1.0, 2, 3]), tensor([2.0, 1, 0])) == pytest.approx(-1)
    assert rank_correlation(tensor([1.0, 1, 1]), tensor([2.0, 1, 0])) == 0


# The contracts under other readings. ---------------------------------------------------------

VARIANTS: dict[str, dict[str, Any]] = {
    "a router per layer": {"router_scope": "layer", "history": "step", "penalty_on": "select"},
    "smooth forms": {
        **{"penalty": "logarithmic", "modulation": "exponential", "router_next": "fresh"},
        **{"mask_inactive": True, "len_mode": "total", "mixing": "uniform"},
    },
    "low-rank covariances": {
        **{"statistics": "low-rank", "tii": "discriminant", "align": "discriminant"},
        **{"hgm_mode": "sgd", "infer_penalty": "current", "tii_target": "class"},
    },
}


@pytest.fixture(scope="module", params=VARIANTS)
def example(request: pytest.FixtureRequest) -> Example:
    return Example("hash", "paper", "class", options=VARIANTS[request.param])


@pytest.mark.xdist_group("hash-readings")
@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_contract(example: Example, contract: Callable[[Example], None]) -> None:
    contract(example)


def test_a_pool_of_one_prompt_is_learned_and_evaluated(tiny_run: TinyRun, tmp_path: Path) -> None:
    """Its scores have no spread; nothing of it may be a division by zero."""
    run = tiny_run(tmp_path / "run", experts=1, top_k=1, protected=1)
    assert benchmark.evaluate(run.folder, quiet=True)["average"] == run.metrics["FAA"]
    stored = json.loads((run.folder / "result.json").read_text())
    for measures in stored["diagnostics"]:
        assert all(np.isfinite(value) for value in measures.values())


def test_null_layers_are_all_blocks(tiny_flags: list[str], tmp_path: Path, cli: Any) -> None:
    outcome = cli("run", *tiny_flags, "--set", "layers=null", "--out", tmp_path / "run")
    assert outcome.code == 0, outcome.said
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    defaults = HashConfig()
    each = defaults.experts * 2 * defaults.prompt_length * 128  # keys and values of nano's width
    assert stored["parameters"]["prompts"] == 6 * each
