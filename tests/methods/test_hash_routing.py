"""What Hash's routers read, how their scores become prompts, and what a run says about it."""

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from by_hand import Task, learn, small_backbone
from hashprompt.methods.hash.router_input import RouterInput
from pydantic import ValidationError
from running import TinyRun
from torch import tensor

from hashprompt.checks.contracts import CONTRACTS
from hashprompt.checks.example import Example
from hashprompt.engine.callbacks import Callback
from hashprompt.methods.hash.method import Hash, HashConfig
from hashprompt.methods.hash.router import Routing, choose, unevenness
from hashprompt.methods.hash.routing_report import describe_routing, routing_remark
from hashprompt.runs import benchmark
from hashprompt.runs.plan import plan_of

SMALL: dict[str, Any] = {
    **{"layers": (1, 2), "experts": 4, "prompt_length": 3, "batch_size": 4},
    **{"tii": "discriminant", "align": "discriminant"},
}

# What a router reads. ----------------------------------------------------------------------


def test_centred_input_has_no_average_and_a_spread_of_one() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.normal(3.0, 2.0, (7, 5, 4))
    means = np.stack([image.mean(0) for image in tokens])
    reader = RouterInput("centred", 4)
    reader.fit(reader.basis(tensor(tokens).float(), None))
    spread = math.sqrt(np.mean([np.var(means[:, d]) for d in range(4)]))
    expected = (means - means.mean(0)) / spread
    found = reader(tensor(tokens).float(), None)
    assert found.shape == (7, 1, 4)
    np.testing.assert_allclose(found[:, 0].numpy(), expected, rtol=1e-4, atol=1e-5)
    assert found.pow(2).mean().item() == pytest.approx(1, rel=1e-4)


def test_centred_input_is_the_same_for_a_backbone_of_other_scale_and_average() -> None:
    tokens, read = torch.randn(9, 5, 4), []
    for seen in (tokens, 30 * tokens + 100 * torch.arange(4)):
        reader = RouterInput("centred", 4)
        reader.fit(reader.basis(seen, None))
        read.append(reader(seen, None))
    torch.testing.assert_close(read[0], read[1], rtol=1e-3, atol=1e-3)


def test_normed_input_has_the_norm_of_root_d_and_raw_input_is_the_tokens() -> None:
    tokens = 50 * torch.randn(6, 5, 4)
    normed = RouterInput("normed", 4)(tokens, None)
    torch.testing.assert_close(normed.norm(dim=2), torch.full((6, 1), 2.0))
    directions = torch.nn.functional.cosine_similarity(normed[:, 0], tokens.mean(1))
    torch.testing.assert_close(directions, torch.ones(6))
    assert RouterInput("raw", 4)(tokens, None) is tokens


def test_plain_input_reads_the_feature_and_not_the_tokens() -> None:
    reader, plain = RouterInput("plain", 4), torch.randn(6, 4) + 5
    reader.fit(plain)
    tokens = torch.randn(6, 5, 4)
    assert torch.equal(reader(tokens, plain), reader(tokens + 1, plain))
    torch.testing.assert_close(
        reader(tokens, plain)[:, 0].mean(0), torch.zeros(4), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("reads", ["centred", "plain"])
def test_statistics_are_those_of_the_first_task(reads: str) -> None:
    backbone = small_backbone()
    method = Hash(HashConfig(**SMALL, router_input=reads), backbone)
    tasks = [Task(t, (2 * t, 2 * t + 1), backbone) for t in range(2)]
    learn(method, tasks[0])
    centre = method.router_input.centre.clone()
    images = tasks[0].images
    with torch.no_grad():
        seen = backbone(images) if reads == "plain" else backbone.embed(images).mean(1)
    torch.testing.assert_close(centre, seen.mean(0))
    learn(method, tasks[1])
    assert torch.equal(method.router_input.centre, centre)


def test_one_decision_per_block_has_no_statistics_to_centre_with() -> None:
    with pytest.raises(ValidationError, match="use normed or raw with router_scope=layer"):
        HashConfig(router_scope="layer", router_input="centred")


# From scores to prompts. -------------------------------------------------------------------


def test_temperature_divides_the_scores_that_are_mixed() -> None:
    scores = tensor([[[0.1, 0.9, 0.5]]])
    weights = choose(scores, torch.zeros(1, 3), top_k=2, temperature=0.2).weights
    top = 1 / (1 + math.exp((0.5 - 0.9) / 0.2))
    torch.testing.assert_close(weights, tensor([[[0.0, top, 1 - top]]]))


def test_delta_in_units_of_the_spread_does_not_depend_on_the_scale_of_the_scores() -> None:
    backbone = small_backbone()
    method = Hash(HashConfig(**SMALL, delta=0.7, delta_unit="spread"), backbone)
    task = Task(0, (0, 1), backbone)
    learn(method, task)
    learn(method, Task(1, (2, 3), backbone))
    tokens = backbone.embed(task.images)
    with torch.no_grad():
        routing = method._route(tokens, None, 0)
        hidden = method.penalties[-1] > 0
        for image, scores in enumerate(routing.scores[:, 0].double().numpy()):
            off = 0.7 * scores.std(ddof=1) * hidden[0].numpy()
            best = np.argsort(off - scores)[:2]
            assert set(routing.chosen[image, 0].tolist()) == set(best.tolist())
        larger = method._route(100 * tokens, None, 0)
    assert hidden.any()
    assert torch.equal(larger.chosen, routing.chosen)


def test_unevenness_is_the_squared_variation_of_the_experts_importance() -> None:
    scores = torch.randn(6, 1, 4, dtype=torch.float64)
    importance = np.zeros(4)
    for image in scores[:, 0].numpy():
        importance += np.exp(image) / np.exp(image).sum()
    expected = importance.var() / importance.mean() ** 2
    assert unevenness(scores).item() == pytest.approx(expected)
    assert unevenness(torch.zeros(3, 1, 5)).item() == pytest.approx(0, abs=1e-6)
    one = 100 * torch.nn.functional.one_hot(torch.zeros(3, 1, dtype=torch.long), 5).float()
    assert unevenness(one).item() == pytest.approx(4)


# What a run says. --------------------------------------------------------------------------


def routing_of(weights: list[list[float]], scores: list[list[float]] | None = None) -> Routing:
    alpha = tensor(weights)[:, None]
    given = alpha if scores is None else tensor(scores)[:, None]
    return Routing(given, alpha.topk(2, -1).indices, alpha)


def test_a_constant_router_varies_nowhere_and_its_favourite_has_every_image() -> None:
    found = describe_routing(
        routing_of([[0.7, 0.3, 0.0, 0.0]] * 6), tensor([0, 0, 0, 1, 1, 1]), 0.4
    )
    assert found["routing_varies"] == pytest.approx(0, abs=1e-7)
    assert found["routing_by_class"] == 0
    assert found["favourite_share"] == found["favourites_share"] == 1
    assert found["usage_entropy"] == pytest.approx(0.5)  # two of four, evenly
    assert "one prompt" in str(routing_remark(found))


def test_the_same_experts_in_other_shares_are_told_too() -> None:
    rows = [[0.9, 0.1, 0.0, 0.0], [0.2, 0.8, 0.0, 0.0]] * 3
    found = describe_routing(routing_of(rows), tensor([0, 1] * 3), 0.4)
    assert found["routing_varies"] > 0.1
    assert found["favourites_share"] == 1
    assert "shares that differ" in str(routing_remark(found))
    found = describe_routing(routing_of([*rows, [0.5, 0.0, 0.5, 0.0]]), tensor([0] * 7), 0.4)
    assert found["favourite_share"] == 1
    assert found["favourites_share"] == pytest.approx(13 / 14)
    assert routing_remark(found) is None


def test_a_penalty_in_units_of_the_spread_is_told_as_it_is() -> None:
    routing = routing_of([[0.9, 0.1, 0.0, 0.0]] * 2, [[5.0, 3.0, 1.0, 0.0]] * 2)
    assert describe_routing(routing, tensor([0, 0]), 0.4, "spread")["delta_over_spread"] == 0.4
    assert describe_routing(routing, tensor([0, 0]), 0.0)["delta_over_spread"] == 0


def test_what_is_told_of_choices_is_what_was_chosen_where_weights_are_lost() -> None:
    backbone = small_backbone()
    method = Hash(HashConfig(**SMALL, mixing_temperature=1e-5), backbone)
    task = Task(0, (0, 1), backbone)
    learn(method, task)
    told = method.decisions_about(task)
    assert (told.weights > 0).sum(-1).min() == 1  # softmax leaves nothing of the second expert
    with torch.no_grad():
        chosen = method._route(backbone.embed(task.images), None, 0).chosen
    assert torch.equal(told.chosen.sort(-1).values, chosen.sort(-1).values)


def test_routing_that_follows_the_class_varies_between_classes_alone() -> None:
    rows = [[0.6, 0.4, 0.0, 0.0]] * 3 + [[0.0, 0.0, 0.6, 0.4]] * 3
    found = describe_routing(routing_of(rows), tensor([0, 0, 0, 1, 1, 1]), 0.4)
    assert found["routing_varies"] == pytest.approx(0.5)
    assert found["routing_by_class"] == pytest.approx(1)
    assert found["favourite_share"] == 0.5
    assert found["usage_entropy"] == pytest.approx(1)
    assert routing_remark(found) is None


def test_routing_is_described_as_loops_do() -> None:
    rng = np.random.default_rng(1)
    alpha = rng.dirichlet(np.ones(5), 8)
    scores, labels = rng.normal(size=(8, 5)), np.array([0, 0, 1, 1, 1, 2, 2, 2])
    found = describe_routing(routing_of(alpha.tolist(), scores.tolist()), tensor(labels), 0.4)
    mean = alpha.mean(0)
    variance = np.mean([np.sum((a - mean) ** 2) for a in alpha])
    between = np.mean([np.sum((alpha[labels == y].mean(0) - mean) ** 2) for y in labels])
    assert found["routing_varies"] == pytest.approx(
        variance / np.mean([np.sum(a**2) for a in alpha]), rel=1e-5
    )
    assert found["routing_by_class"] == pytest.approx(between / variance, rel=1e-5)
    spread = np.mean([s.std(ddof=1) for s in scores])
    assert found["delta_over_spread"] == pytest.approx(0.4 / spread, rel=1e-5)


def test_plain_features_of_training_images_come_from_the_cache(
    tiny_run: TinyRun, tmp_path: Path
) -> None:
    """Reading them costs a pass an image for its Gaussians, and none in training."""
    tiny_run(tmp_path / "first")  # fills the cache
    raw, plain = (tiny_run(tmp_path / reads, router_input=reads) for reads in ("raw", "plain"))
    extra = Counter(plain.data["passes"])
    extra.subtract(raw.data["passes"])
    described = [t["images"] for t in plain.data["timings"] if t["phase"] == "statistics"]
    assert {kind: n for kind, n in extra.items() if n} == {"plain": sum(described)}


class Heard(Callback):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def on_message(self, text: str) -> None:
        self.messages.append(text)


def test_a_remark_is_said_once_and_kept_for_every_task(
    tiny_run: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hash, "remark", lambda self: "look <here>")
    heard = Heard()
    planned = plan_of(tiny_run(tmp_path / "first").data["config"])
    result = benchmark.execute(planned, tmp_path / "run", quiet=True, callbacks=[heard])
    assert heard.messages == ["Task 1: look <here>"]
    assert result.data["remarks"] == [{"task": t, "text": "look <here>"} for t in range(3)]
    assert "After task 1, 2, 3: look &lt;here&gt;" in result.report().read_text()


# The contracts, with other routers and with a pool that moves more carefully. ------------------

VARIANTS: dict[str, dict[str, Any]] = {
    reads: {
        **{"router_input": reads, "even_use": 0.05, "delta_unit": "spread"},
        **{"hdr": True, "hgm": True},
    }
    for reads in ("centred", "plain")
}
VARIANTS["one router"] = {"router_next": "same", "router_input": "plain", "distil": 0.5}
VARIANTS["one prompt, averaged"] = {
    **{"router_next": "same", "experts": 1, "top_k": 1, "protected": 1},
    **{"deploy": "average", "drift_views": 1, "voters": ()},
}
VARIANTS["one covariance"] = {
    **VARIANTS["one prompt, averaged"],
    **{"statistics": "pooled", "shrinkage": 1.0},
}
VARIANTS["first base"] = {"base": "first", "compete": "all"}
VARIANTS["careful"] = {
    **{"deploy": 0.5, "distil": 0.5, "drift_ridge_by": "classes", "drift_views": 1},
    "statistics": "pooled",  # a covariance for each task, since each has a router
}


@pytest.fixture(scope="module", params=VARIANTS)
def example(request: pytest.FixtureRequest) -> Example:
    return Example("hash", "pool", "class", options=VARIANTS[request.param])


@pytest.mark.xdist_group("hash-routing")
@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_contract(example: Example, contract: Callable[[Example], None]) -> None:
    contract(example)


def test_a_pool_of_one_prompt_is_learned_and_asked_again(tiny_run: TinyRun, tmp_path: Path) -> None:
    """Its scores have no spread; nothing of it may be a division by zero."""
    one = {"experts": 1, "top_k": 1, "protected": 1, "delta_unit": "spread"}
    run = tiny_run(tmp_path / "run", **one)
    assert benchmark.evaluate(run.folder, quiet=True)["average"] == run.metrics["FAA"]
    stored = json.loads((run.folder / "result.json").read_text())
    for told in stored["diagnostics"]:
        assert not {"score_std", "routing_entropy", "delta_over_spread"} & told.keys()
    assert stored["remarks"] == []  # a router of one expert is constant, and may be


def test_null_layers_are_all_blocks(tiny_flags: list[str], tmp_path: Path, cli: Any) -> None:
    outcome = cli("run", *tiny_flags, "--set", "layers=null", "--out", tmp_path / "run")
    assert outcome.code == 0, outcome.said
    stored = json.loads((tmp_path / "run" / "result.json").read_text())
    defaults = HashConfig()
    each = defaults.experts * 2 * defaults.prompt_length * 128  # keys and values of nano's width
    assert stored["parameters"]["prompts"] == 6 * each
