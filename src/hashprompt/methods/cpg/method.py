"""CPG: a consistent mixture-of-experts prompt generator.

In every block a gate mixes a few of the block's experts into prompt tokens. From the second task on
gates and experts move only where the inputs of old tasks do not see it, so that old images keep
their prompts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from scipy.ndimage import gaussian_filter1d
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods import base
from hashprompt.methods.base import Batch, ParamGroup, Phase, Prediction, TaskView
from hashprompt.methods.cpg.config import CPGConfig
from hashprompt.methods.frames.classifier_alignment import keep_other_rows
from hashprompt.parts.heads import GrowingLinear, masked_cross_entropy
from hashprompt.parts.precision import exact

# The public code starts gates at zero. Then experts that no image ever chose stay tied for ever,
# and rounding, which differs from batch to batch, would choose among them.
GATE_START = 1e-3


class Encoding(NamedTuple):
    """Images under their prompts."""

    features: Tensor  # (B, D)
    queries: Tensor  # (B, blocks, D) class token that entered each block
    weights: Tensor  # (B, blocks, N) of the experts, zero where not chosen


class CPG(base.Method[CPGConfig]):
    """Gated experts in every block, updated in the null space of old tasks."""

    stores = "prompts: experts; routers: gates; statistics: query_gram weight_gram"
    keeps = ("head.",)

    def __init__(self, config: CPGConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks, dim, experts = backbone.depth, backbone.dim, config.experts
        prompts = torch.empty(blocks, experts, config.prompt_length, dim).uniform_(-1, 1)
        self.gates = nn.Parameter(GATE_START * torch.randn(blocks, dim, experts))  # W_g
        self.experts = nn.Parameter(prompts)
        self.head = GrowingLinear(dim)
        # QᵀQ over the images of all tasks: what gates saw
        self.query_gram: Tensor = nn.Buffer(torch.zeros(blocks, dim, dim))
        # GᵀG: what weighted the experts
        self.weight_gram: Tensor = nn.Buffer(torch.zeros(blocks, experts, experts))
        self._projectors: tuple[Tensor, Tensor] | None = None  # derived, so never saved

    def begin_task(self, task: TaskView) -> None:
        self.head.grow(max(task.classes) + 1)

    # Prompts. ------------------------------------------------------------------------------

    def mix(self, block: int, query: Tensor) -> Tensor:
        """Weights (B, N) of a block's experts from the class tokens (B, D) that enter it.

        Softmax over all experts, the largest few of it, and softmax over these again.
        """
        with torch.autocast(query.device.type, enabled=False):  # rounded scores would tie
            shares = (query.float() @ self.gates[block]).softmax(1)
            top, chosen = shares.topk(self.config.top_k)
            return torch.zeros_like(shares).scatter(1, chosen, top.softmax(1))

    def encode(self, images: Tensor) -> Encoding:
        """Features of images (B, 3, S, S), and what their prompts were made of."""
        queries, weights = [], []

        def prompt(block: int, tokens: Tensor) -> Tensor:
            queries.append(tokens[:, 0])
            weights.append(self.mix(block, tokens[:, 0]))
            return torch.einsum("bn,nld->bld", weights[-1], self.experts[block]).to(tokens.dtype)

        blocks = range(self.backbone.depth)
        tokens = {block: partial(prompt, block) for block in blocks}
        features = self.backbone(images, Injection(tokens=tokens, keep_tokens=False))
        return Encoding(features, torch.stack(queries, 1), torch.stack(weights, 1))

    # Training. -----------------------------------------------------------------------------

    def phases(self, task: TaskView) -> list[Phase]:
        config = self.config

        def tenths(step: float, _: float) -> float:
            epoch = 1 + step // config.repeats
            return 0.1 ** sum(epoch >= milestone for milestone in config.milestones)

        train = base.training_phase(
            config,
            lambda batch: self._step(batch, task),
            ParamGroup(self.parameters(), config.lr, config.weight_decay),
            epochs=config.epochs * config.repeats,
            schedule=tenths,
            update=lambda _: self._in_null_space(task),
        )
        return [train, Phase("null-space", work=lambda: self._remember(task))]

    def _step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        features, _, weights = self.encode(batch.inputs)
        logits = self.head(features) / self.config.temperature
        return {
            "ce": masked_cross_entropy(logits, batch.labels, task.classes),
            "balance": self.config.balance * imbalance(weights.sum(0)).mean(),
        }

    @contextmanager
    def _in_null_space(self, task: TaskView) -> Iterator[None]:
        """Project the step that Adam took; it would rotate a projected gradient out again."""
        gates, experts = self.gates.detach().clone(), self.experts.detach().clone()
        # Weight decay would move the heads of old tasks, at Adam's full rate.
        with keep_other_rows(self.head, task.classes)(None):
            yield
        with torch.no_grad():
            if self.weight_gram.any():
                on_gates, on_experts = self.projectors()
                self.gates.copy_(gates + on_gates @ (self.gates - gates))
                change = (self.experts - experts).flatten(2)
                self.experts.copy_(experts + (on_experts @ change).view_as(self.experts))

    def projectors(self) -> tuple[Tensor, Tensor]:
        """What multiplies the updates: of gates (blocks, D, D), of experts (blocks, N, N)."""
        if self._projectors is None:
            free = self.config.plasticity
            on_gates = torch.stack([null_projector(gram) for gram in self.query_gram])
            on_experts = torch.stack([null_projector(gram) for gram in self.weight_gram])
            eye = torch.eye(self.config.experts, device=on_experts.device)
            self._projectors = on_gates, (1 - free) * on_experts + free * eye
        return self._projectors

    def _remember(self, task: TaskView) -> None:
        """Add what the gates and experts of each block get from the images of the task."""
        queries = task.map(lambda images: self.encode(images).queries)
        for block, query in enumerate(queries.unbind(1)):
            with torch.no_grad():
                weights = self.mix(block, query)
            self.query_gram[block] += query.T @ query
            self.weight_gram[block] += weights.T @ weights
        self._projectors = None

    # Prediction. ---------------------------------------------------------------------------

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        return Prediction(self.head(self.encode(images).features))


def imbalance(importance: Tensor) -> Tensor:
    """CV² = variance / mean² over the experts, for each block.

    The public code adds the CV² of how many images chose each expert; a count has no gradient, so
    that term trains nothing and is left out.

    Args:
        importance: (blocks, N) sums of the weights that images gave to experts.
    """
    return importance.var(1) / importance.mean(1).square()


def knee(values: Tensor) -> int:
    """Where a falling spectrum (n,) goes flat: the middle of its largest second difference.

    A long spectrum is smoothed before, and 1.5 % at either end are left out.
    """
    curve, left_out = exact(values).cpu().numpy(), 0
    if len(curve) >= 128:
        curve, left_out = gaussian_filter1d(curve, sigma=10), int(0.015 * len(curve))
    second = curve[:-2] - 2 * curve[1:-1] + curve[2:]
    return 1 + left_out + int(second[left_out : len(second) - left_out].argmax())


def null_projector(gram: Tensor) -> Tensor:
    """P = N Nᵀ / ‖N Nᵀ‖_F, where N holds the directions from the knee of the spectrum on.

    Args:
        gram: (n, n) XᵀX of the inputs X that should see no change; n is at least 3.
    """
    # Not `eigh`: in float32 it fails on the many equal zeros of experts that were never chosen.
    _, values, directions = torch.linalg.svd(gram)  # falling
    rest = directions[knee(values) :]
    projector = rest.T @ rest
    return projector / projector.norm()
