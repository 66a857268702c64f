"""Every formula of the paper that the code implements, against numbers made by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from fakes import DIM, Task, add_cell, small_backbone, train_step
from scipy.stats import multivariate_normal
from torch import Tensor, tensor

from hashprompt.engine.metrics import summarise
from hashprompt.methods.base import Batch
from hashprompt.methods.frames.hide_pipeline import contrastive_identity, contrastive_paper
from hashprompt.methods.hash.history import UsageHistory, most_used, penalty, update_factor
from hashprompt.methods.hash.method import Hash, HashConfig
from hashprompt.methods.hash.pool import PromptPool
from hashprompt.methods.hash.router import Routers, Routing, choose
from hashprompt.parts.cells import Cells
from hashprompt.parts.gaussians import JITTER, ClassGaussians, Discriminant, GaussianSampler
from hashprompt.parts.heads import TaskIdentityHead, masked_cross_entropy

close = torch.testing.assert_close


BACKBONE = small_backbone(4, lively=False)


def fake_task(index: int, classes: tuple[int, ...]) -> Task:
    return Task(index, classes, BACKBONE)


def make_hash(**options: Any) -> Hash:
    defaults = {"experts": 5, "prompt_length": 3, "layers": (1, 2), "clip": None}
    return Hash(HashConfig(**{**defaults, **options}), small_backbone(4, lively=False))


def train_steps(method: Hash, task: Task, steps: int = 1, lr: float = 0.01) -> None:
    """Steps of WTP as the engine does them."""
    phase = next(p for p in method.phases(task) if p.name == "wtp")
    groups = [{"params": g.params} for g in phase.groups]
    # Gradients of this tiny ViT are near Adam's usual ε, which would blur the comparison.
    adam = phase.optimizer == "adam"
    optimizer = torch.optim.Adam(groups, lr, eps=1e-14) if adam else torch.optim.SGD(groups, lr)
    for _ in range(steps):
        train_step(phase, Batch(task.images, task.labels), optimizer)


# Routing (Eq. 1–3, 7, 8). ------------------------------------------------------------------


def test_scores_are_token_means_of_projections_over_root_d() -> None:
    routers = Routers(dim=4, experts=3, decisions=1, init="uniform")
    routers.add(copy_last=True)
    tokens = torch.randn(2, 5, 4)
    expected = torch.zeros(2, 3)
    for b in range(2):
        for e in range(3):
            per_token = [
                sum(tokens[b, n, d] * routers.current[0, d, e] for d in range(4)) / 2
                for n in range(5)
            ]  # √4 = 2
            expected[b, e] = sum(per_token) / 5
    close(routers.scores(tokens, None), expected)


def test_each_image_is_scored_by_the_router_of_its_task_and_old_routers_stay() -> None:
    routers = Routers(dim=4, experts=3, decisions=1, init="uniform")
    for _ in range(3):
        routers.add(copy_last=False)
    assert routers.tasks == 3
    frozen = routers.frozen.clone()
    tokens = torch.randn(4, 5, 4)
    mixed = routers.scores(tokens, tensor([2, 0, 1, 0]))
    weights = [routers.frozen[0, 0], routers.frozen[1, 0], routers.current[0]]
    for row, task in enumerate([2, 0, 1, 0]):
        close(mixed[row], tokens[row].mean(0) @ weights[task] / 2)
    routers.add(copy_last=True)
    close(routers.frozen[-1], routers.current.detach())
    assert torch.equal(routers.frozen[:2], frozen)


def test_top_two_of_the_scores_are_mixed_by_softmax() -> None:
    scores = tensor([[[0.1, 0.9, 0.5, 0.3]]])
    routing = choose(scores, torch.zeros(1, 4), top_k=2)
    top = math.exp(0.9) / (math.exp(0.9) + math.exp(0.5))  # 0.598688
    assert routing.chosen.tolist() == [[[1, 2]]]
    close(routing.weights, tensor([[[0.0, top, 1 - top, 0.0]]]))
    uniform = choose(scores, torch.zeros(1, 4), top_k=2, mixing="uniform")
    close(uniform.weights, tensor([[[0.0, 0.5, 0.5, 0.0]]]))


def test_the_penalty_changes_choice_and_weights_or_the_choice_alone() -> None:
    scores, step = tensor([[[0.1, 0.9, 0.5, 0.3]]]), tensor([[0.0, 0.5, 0.0, 0.0]])
    both = choose(scores, step, top_k=2)  # penalised: 0.1 0.4 0.5 0.3
    assert both.chosen.tolist() == [[[2, 1]]]
    alpha = 1 / (1 + math.exp(-0.1))
    close(both.weights[0, 0, [2, 1]], tensor([alpha, 1 - alpha]))
    choice_only = choose(scores, step, top_k=2, penalty_on="select")
    alpha = 1 / (1 + math.exp(-0.4))
    close(choice_only.weights[0, 0, [1, 2]], tensor([alpha, 1 - alpha]))


def test_the_prompt_is_the_weighted_sum_of_the_chosen_experts() -> None:
    pool = PromptPool(experts=3, layers=(0, 2), length=2, dim=4)
    weights = tensor([[0.25, 0.0, 0.75], [0.0, 1.0, 0.0]])
    mixed = pool.mix(weights)
    assert set(mixed) == {0, 2}
    for i, layer in enumerate((0, 2)):
        close(mixed[layer][0], 0.25 * pool.prompts[0, i] + 0.75 * pool.prompts[2, i])
        close(mixed[layer][1], pool.prompts[1, i])
    close({layer: pool.mix_at(i, weights) for i, layer in enumerate((0, 2))}, mixed)
    sum(m.sum() for m in pool.mix(weights[:1]).values()).backward()
    assert pool.prompts.grad[1].abs().sum() == 0  # an expert nobody chose gets no gradient


def test_counts_add_two_per_image_and_join_the_history_at_the_end_of_the_task() -> None:
    history = UsageHistory(decisions=1, experts=4)
    history.record(tensor([[[1, 2]], [[1, 3]]]))
    assert history.counts().tolist() == [[0, 0, 0, 0]]
    assert history.counts(live=True).tolist() == [[0, 2, 1, 1]]
    history.commit()
    history.record(tensor([[[0, 1]]]))
    assert history.counts().tolist() == [[0, 2, 1, 1]]
    history.commit()
    assert history.by_task.tolist() == [[[0, 2, 1, 1]], [[1, 1, 0, 0]]]
    assert history.pending.sum() == 0


COUNTS = tensor([[10, 0, 20, 2]])  # mean 8, so relative use is 1.25, 0, 2.5, 0.25


def test_the_most_used_experts_are_protected_and_none_before_any_use() -> None:
    assert most_used(COUNTS, 2).tolist() == [[True, False, True, False]]
    assert not most_used(torch.zeros(1, 4, dtype=torch.int64), 2).any()
    assert most_used(tensor([[0, 0, 5, 0]]), 2).tolist() == [[False, False, True, False]]


HISTORY = (1.25, 0, 2.5, 0.25)  # COUNTS over their mean
PENALTIES = {
    "stepwise": [1, 0, 1, 0],
    "logarithmic": [math.log(1 + h) for h in HISTORY],
    "polynomial": [h**1.5 for h in HISTORY],
}
FACTORS = {
    "piecewise": [0.1, 1, 0.1, 1],
    "inverse": [1 / (1 + h) for h in HISTORY],
    "exponential": [math.exp(-h) for h in HISTORY],
}


@pytest.mark.parametrize("kind", PENALTIES)
def test_penalties_stepwise_logarithmic_polynomial(kind: Any) -> None:
    found = penalty(COUNTS, HashConfig(penalty=kind, delta=0.4, protected=2))
    close(found, 0.4 * tensor([PENALTIES[kind]]))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"penalty": "logarithmic"}, [math.log(11), 0, math.log(21), math.log(3)]),
        ({"penalty": "polynomial", "penalty_exponent": 2}, [100, 0, 400, 4]),
    ],
)
def test_printed_penalties_have_raw_counts_and_no_delta(options: Any, expected: Any) -> None:
    config = HashConfig(delta=0.4, history_scale="printed", **options)
    close(penalty(COUNTS, config), tensor([expected]).float())


@pytest.mark.parametrize("kind", FACTORS)
def test_update_factors_piecewise_inverse_exponential(kind: Any) -> None:
    found = update_factor(COUNTS, HashConfig(modulation=kind, alpha=0.1, protected=2))
    close(found, tensor([FACTORS[kind]]))


# Hash as a whole. --------------------------------------------------------------------------


def with_history(**options: Any) -> tuple[Hash, Task]:
    """A Hash whose second task is about to train: experts 0 and 1 were used most."""
    method = make_hash(**options)
    method.begin_task(fake_task(0, (0, 1)))
    shape = (method.history.pending.shape[0], 5)
    method.history.pending = tensor([9, 8, 1, 0, 2]).expand(shape).clone()
    method.end_task(fake_task(0, (0, 1)))
    task = fake_task(1, (2, 3))
    method.begin_task(task)
    return method, task


def movement(lr: float = 0.01, **options: Any) -> Tensor:
    """How far each expert moves in one step of the second task, (N,)."""
    method, task = with_history(hdr=False, top_k=5, **options)
    before = method.pool.prompts.detach().clone()
    train_steps(method, task, lr=lr)
    return (method.pool.prompts.detach() - before).abs().sum((1, 2, 3, 4))


def test_update_mode_moves_protected_experts_by_a_tenth_of_a_step() -> None:
    factor = movement(hgm=True) / movement(hgm=False)
    close(factor, tensor([0.1, 0.1, 1, 1, 1]), rtol=1e-3, atol=1e-4)


def test_scaling_the_gradient_has_no_effect_under_adam_but_has_under_sgd() -> None:
    adam = movement(hgm=True, hgm_mode="grad") / movement(hgm=False)
    close(adam, torch.ones(5), rtol=1e-3, atol=1e-3)
    sgd = movement(1e3, hgm=True, hgm_mode="sgd") / movement(1e3, hgm=False, hgm_mode="sgd")
    close(sgd, tensor([0.1, 0.1, 1, 1, 1]), rtol=1e-3, atol=1e-4)


def test_masked_inactive_experts_do_not_move_even_with_momentum() -> None:
    moved = {}
    for mask in (False, True):
        method, task = with_history(mask_inactive=mask, hgm=False)
        phase = next(p for p in method.phases(task) if p.name == "wtp")
        optimizer = torch.optim.Adam([method.pool.prompts], lr=0.01)
        for banned in ([0, 1, 2], [2, 3, 4]):  # first 3 and 4 are used, then 0 and 1
            method.penalties[1, 0] = torch.zeros(5).index_fill(0, tensor(banned), 100.0)
            before = method.pool.prompts.detach().clone()
            train_step(phase, Batch(task.images, task.labels), optimizer)
        change = (method.pool.prompts.detach() - before).abs().sum((1, 2, 3, 4))
        assert (change[:2] > 0).all()
        moved[mask] = float(change[2:].sum())
    assert moved[False] > 0  # Adam's momentum carries on
    assert moved[True] == 0


def test_the_first_task_has_no_penalty_and_later_tasks_keep_theirs() -> None:
    method, _ = with_history()
    expected = tensor([[0.0] * 5, [0.4, 0.4, 0, 0, 0]])
    close(method.penalties[:, 0], expected)
    method.history.pending = tensor([[0, 0, 50, 50, 0]])
    method.end_task(fake_task(1, (2, 3)))
    method.begin_task(fake_task(2, (4, 5)))
    close(method.penalties[:2, 0], expected)  # b_t is fixed when its task starts
    close(method.penalties[2, 0], tensor([0, 0, 0.4, 0.4, 0]))


@pytest.mark.parametrize(
    ("reading", "expected"),
    [("task", [0.4, 0.4, 0, 0, 0]), ("none", [0.0] * 5), ("current", [0, 0, 0.4, 0.4, 0])],
)
def test_the_penalty_at_test_follows_the_chosen_reading(reading: str, expected: list) -> None:
    method, _ = with_history(infer_penalty=reading)
    method.history.pending = tensor([[0, 0, 50, 50, 0]])
    method.end_task(fake_task(1, (2, 3)))
    close(method.penalty_of(tensor([1]))[0, 0], tensor(expected, dtype=torch.float32))


def test_live_history_moves_the_penalty_within_a_task() -> None:
    method, _ = with_history(history="step")
    method.history.pending = tensor([[0, 0, 50, 60, 0]])
    close(method.penalty_of(None)[0], tensor([0, 0, 0.4, 0.4, 0]))
    method.end_task(fake_task(1, (2, 3)))
    close(method.penalties[1, 0], tensor([0, 0, 0.4, 0.4, 0]))


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_counts_sum_to_k_per_image_step_and_decision(scope: str) -> None:
    method = make_hash(router_scope=scope)
    task = fake_task(0, (0, 1))
    method.begin_task(task)
    train_steps(method, task, steps=3)
    decisions = 1 if scope == "global" else 2
    assert method.history.pending.sum() == 2 * 12 * 3 * decisions


def test_a_router_per_layer_reads_the_tokens_that_enter_its_block() -> None:
    method = make_hash(router_scope="layer", router_next="fresh")
    method.begin_task(fake_task(0, (0, 1)))
    images = torch.randn(3, 3, 16, 16)
    tokens = method.backbone.embed(images)
    decisions: list[Routing] = []
    method.backbone.encode(tokens, method.inject(tokens, None, decisions))
    first, second = decisions
    close(first.scores[:, 0], method.routers.scores(tokens, None, 0))
    assert (second.scores[:, 0] - method.routers.scores(tokens, None, 1)).abs().max() > 1e-4


@pytest.mark.parametrize(("mode", "length"), [("per_half", 3), ("total", 1)])
def test_length_is_per_half_or_in_total(mode: str, length: int) -> None:
    assert make_hash(len_mode=mode).pool.prompts.shape == (5, 2, 2, length, DIM)


def test_a_new_router_is_a_copy_or_fresh_in_the_chosen_way() -> None:
    for following in ("copy", "fresh"):
        method, _ = with_history(router_next=following)
        same = torch.equal(method.routers.frozen[0], method.routers.current.detach())
        assert same == (following == "copy")
    method, _ = with_history(router_init="linear")
    assert method.routers.current.abs().max() <= 1 / math.sqrt(DIM)
    method, _ = with_history(router_init="orthogonal")
    weight = method.routers.current.detach()[0]
    close(weight.T @ weight, torch.eye(5), atol=1e-5, rtol=0)


def test_aligning_draws_as_many_batches_as_old_classes_and_moves_all_rows() -> None:
    method, task = with_history(batch_size=4)
    add_cell(method.prompted_stats, torch.randn(6, DIM))
    for _ in range(3):
        add_cell(method.prompted_stats, torch.randn(6, DIM))
    tap = next(p for p in method.phases(task) if p.name == "tap")
    batches = tap.draw()
    assert [len(b.labels) for b in batches] == [20, 20]  # 2 old classes, 5·batch_size rows
    before = method.head.weight.detach().clone()
    tap.step(batches[0])["tap"].backward()
    assert (method.head.weight.grad.abs().sum(1) > 0).all()
    assert torch.equal(before, method.head.weight.detach())


def test_mixed_tasks_in_a_batch_get_their_own_routers() -> None:
    method, _ = with_history(router_next="fresh")
    tokens = method.backbone.embed(torch.randn(4, 3, 16, 16))
    tasks = tensor([1, 0, 0, 1])
    with torch.no_grad():
        together = method.prompted(tokens, tasks)
        for i in range(4):
            close(method.prompted(tokens[i : i + 1], tasks[i : i + 1])[0], together[i])


# Losses. -----------------------------------------------------------------------------------


def test_masked_cross_entropy_looks_at_allowed_classes_alone() -> None:
    logits = tensor([[1.0, 2.0, 9.0]], requires_grad=True)
    loss = masked_cross_entropy(logits, tensor([0]), tensor([True, True, False]))
    close(loss, tensor(math.log(1 + math.e)))
    loss.backward()
    assert logits.grad[0, 2] == 0


def test_only_the_classes_of_the_task_compete_and_old_rows_stay() -> None:
    method, task = with_history(contrastive=0)
    torch.manual_seed(0)
    features, labels = torch.randn(3, method.backbone.dim, requires_grad=True), tensor([2, 3, 3])
    method.losses(features, labels, task)["ce"].backward()
    weight = method.head.weight.detach().clone().requires_grad_()
    bias, shown = method.head.bias.detach(), features.detach().clone().requires_grad_()
    rows = (shown @ weight.T + bias)[:, 2:]
    (torch.logsumexp(rows, 1) - rows[torch.arange(3), labels - 2]).mean().backward()
    close(features.grad, shown.grad)
    assert method.head.weight.grad is not None
    close(method.head.weight.grad, weight.grad)
    assert (method.head.weight.grad[:2] == 0).all()


def test_the_identity_form_of_the_contrastive_term() -> None:
    features, means = tensor([[1.0, 0.0], [0.0, 2.0]]), tensor([[1.0, 1.0]])
    rows = [[1.0, 1.0], [1.0, 0.0], [0.0, 2.0]]
    total = 0.0
    for i, a in enumerate(rows):
        similar = [math.exp((a[0] * b[0] + a[1] * b[1]) / 0.8) for b in rows]
        total -= math.log(similar[i] / sum(similar))
    none = torch.zeros(2, 1, dtype=torch.bool)
    close(contrastive_identity(features, means, none), tensor(total / 3))


def test_the_printed_form_of_the_contrastive_term() -> None:
    features, means = tensor([[1.0, 0.0], [0.0, 2.0]]), tensor([[1.0, 1.0], [3.0, 0.0]])
    total = 0.0
    for h in features.tolist():
        others = [*features.tolist(), *means.tolist()]
        z = sum(math.exp((h[0] * o[0] + h[1] * o[1]) / 0.8) for o in others)
        for m in means.tolist():
            total += math.log(math.exp((h[0] * m[0] + h[1] * m[1]) / 0.8) / z)
    none = torch.zeros(2, 2, dtype=torch.bool)
    close(contrastive_paper(features, means, none), tensor(total / 4))
    assert contrastive_paper(features, means[:0], none[:, :0]) == 0


def test_the_same_class_in_another_domain_does_not_repel() -> None:
    features, means = torch.randn(2, 3), torch.randn(2, 3)
    same = tensor([[True, False], [False, True]])
    rows = torch.cat((means, features))
    similarity = rows @ rows.T / 0.8
    similarity[2, 0] = similarity[3, 1] = similarity[0, 2] = similarity[1, 3] = -math.inf
    expected = -similarity.log_softmax(1).diagonal().mean()
    close(contrastive_identity(features, means, same), expected)
    left = (features @ torch.cat((features, means)).T / 0.8).clone()
    left[0, 2] = left[1, 3] = -math.inf
    log = left.log_softmax(1)
    close(contrastive_paper(features, means, same), (log[0, 3] + log[1, 2]) / 2)


def test_the_task_head_is_a_normed_residual_mlp() -> None:
    head = TaskIdentityHead(4)
    head.head.grow(3)
    x = torch.randn(2, 4)
    hidden = torch.nn.functional.gelu(x @ head.mlp[0].weight.T + head.mlp[0].bias)
    out = x + hidden @ head.mlp[2].weight.T + head.mlp[2].bias
    out = (out - out.mean(1, keepdim=True)) / (
        out.var(1, unbiased=False, keepdim=True) + 1e-5
    ).sqrt()
    close(head(x), out @ head.head.weight.T + head.head.bias)
    assert head.mlp[0].weight.shape == (8, 4)


# Statistics. -------------------------------------------------------------------------------


def correlated(n: int = 400) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(n, 6) @ torch.randn(6, 6) + torch.arange(6.0)


def test_covariance_statistics_equal_numpy() -> None:
    stats, x = ClassGaussians(6, "covariance"), correlated()
    add_cell(stats, x)
    close(stats.means[0], x.mean(0))
    expected = torch.from_numpy(np.cov(x.numpy().T)).float() + JITTER * torch.eye(6)
    close(stats.covariances()[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("storage", ["covariance", "variance", "multi-centroid", "low-rank"])
def test_pseudo_features_have_the_stored_mean_and_covariance(storage: Any) -> None:
    stats = ClassGaussians(6, storage, rank=3, centroids=4)
    add_cell(stats, correlated())
    add_cell(stats, -2 * correlated(300))
    torch.manual_seed(1)
    drawn, cells = GaussianSampler(stats).draw(40_000)
    for cell in (0, 1):
        rows = drawn[cells == cell]
        spread = stats.covariances()[cell].diagonal().sqrt()
        assert ((rows.mean(0) - stats.means[cell]).abs() / spread).max() < 0.03
        found = rows.T.cov()
        assert (found - stats.covariances()[cell]).norm() / found.norm() < 0.05
    diagonal = correlated().var(0)
    close(stats.covariances()[0].diagonal(), diagonal, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("storage", ["covariance", "variance", "multi-centroid", "low-rank"])
def test_a_class_of_one_image_still_has_a_gaussian(storage: Any) -> None:
    stats = ClassGaussians(6, storage)
    add_cell(stats, torch.ones(1, 6))
    drawn, _ = GaussianSampler(stats).draw(100)
    assert drawn.isfinite().all()
    assert (drawn - 1).abs().max() < 1


def test_low_rank_statistics_keep_the_leading_directions() -> None:
    stats, x = ClassGaussians(6, "low-rank", rank=6), correlated()
    add_cell(stats, x)
    close(stats.covariances()[0], x.T.cov() + JITTER * torch.eye(6), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shrinkage", [1.0, 0.7])
def test_the_discriminant_is_the_gaussian_log_density(shrinkage: float) -> None:
    stats = ClassGaussians(6, "covariance")
    add_cell(stats, correlated())
    add_cell(stats, correlated(200) * 0.5 + 3)
    covariances = stats.covariances()
    scores = Discriminant(stats.means, covariances, shrinkage, ridge=0.02).scores(correlated(7))
    shared = covariances.mean(0)
    ridge = 0.02 * shared.diagonal().mean() * torch.eye(6)
    for cell in (0, 1):
        matrix = (1 - shrinkage) * covariances[cell] + shrinkage * shared + ridge
        density = multivariate_normal(stats.means[cell].numpy(), matrix.numpy())
        expected = density.logpdf(correlated(7).numpy()) + 3 * math.log(2 * math.pi)
        close(scores[:, cell], torch.from_numpy(expected).float(), rtol=1e-3, atol=1e-3)


def test_cells_map_classes_and_tasks_whatever_the_sizes() -> None:
    cells = Cells()
    cells.add(0, (0, 1, 2))
    cells.add(1, (3,))
    cells.add(2, (4, 5))
    assert cells.task.tolist() == [0, 0, 0, 1, 2, 2]
    assert cells.of(tensor([5, 4]), 2).tolist() == [5, 4]
    domains = Cells()
    domains.add(0, (0, 1))
    domains.add(1, (0, 1))
    assert domains.of(tensor([1, 0]), 1).tolist() == [3, 2]
    assert domains.classes == 2
    scores = tensor([[0.1, 0.4, 0.3, 0.2]])
    close(domains.to_classes(scores), tensor([[0.3, 0.4]]))


# Metrics. ----------------------------------------------------------------------------------


def test_faa_caa_fm_and_bwt_on_a_matrix_made_by_hand() -> None:
    accuracy = [[90, 80, 85], [None, 70, 60], [None, None, 50]]
    metrics = summarise(accuracy)
    assert metrics["FAA"] == pytest.approx((85 + 60 + 50) / 3)
    assert metrics["CAA"] == pytest.approx((90 + 75 + 65) / 3)
    assert metrics["FM"] == pytest.approx(((90 - 85) + (70 - 60)) / 2)
    assert metrics["BWT"] == pytest.approx(((85 - 90) + (60 - 70)) / 2)


def test_forgetting_counts_from_the_best_earlier_value_and_may_be_negative() -> None:
    assert summarise([[50, 80, 70], [None, 60, 65], [None, None, 1]])["FM"] == pytest.approx(
        ((80 - 70) + (60 - 65)) / 2
    )


def test_a_joint_run_has_a_final_accuracy_alone() -> None:
    metrics = summarise([[None, 80], [None, 60]])
    assert metrics == {"FAA": 70, "CAA": None, "FM": None, "BWT": None}


def test_learning_rate_schedules() -> None:
    from hashprompt.methods.base import learning_rate_factor as factor

    assert [factor("step", e, 90) for e in (0, 29, 30, 60)] == pytest.approx([1, 1, 0.1, 0.01])
    assert [factor("cosine", e, 4) for e in (0, 1, 2)] == pytest.approx([1, 0.8535534, 0.5])
    assert factor("constant", 7, 9) == 1
