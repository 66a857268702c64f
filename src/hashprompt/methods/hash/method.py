"""Hash: history-aware prompt sharing (CVPR 2026, arXiv 2601.20894).

A pool of prompts shared by all tasks, one router per task that chooses and mixes k of them for each
image, and a modulator with a memory of their use: the experts that earlier tasks used most get a
routing penalty (HDR) and smaller updates (HGM). Task inference, statistics and the final head are
those of HiDe-Prompt.

Algorithm 1 of the paper nests three losses in one loop of epochs. They follow one another here, as
in HiDe-Prompt: task inference (TII) reads frozen features only, and the final head (TAP) is trained
on Gaussians of features that exist once the prompts are trained (WTP).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, Phase, StepResult, TaskView, blocks_of
from hashprompt.methods.frames.hide_pipeline import PromptPipeline
from hashprompt.methods.hash.config import HashConfig
from hashprompt.methods.hash.history import UsageHistory, penalty, update_factor
from hashprompt.methods.hash.pool import PromptPool
from hashprompt.methods.hash.router import Routers, Routing, choose
from hashprompt.methods.hash.routing_report import describe_routing
from hashprompt.methods.kinds import Optimizer
from hashprompt.parts.growing import grow_buffer


class Hash(PromptPipeline[HashConfig]):
    """Shared prompt pool P, one router R_t per task, history-aware modulation by counts H."""

    stores = "prompts: pool"
    keeps = (*PromptPipeline.keeps, "routers.frozen", "penalties", "history.by_task")

    def __init__(self, config: HashConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks = blocks_of(config.layers, backbone)
        length = config.prompt_length // (1 if config.len_mode == "per_half" else 2)
        decisions = 1 if config.router_scope == "global" else len(blocks)  # S
        self.pool = PromptPool(config.experts, blocks, length, backbone.dim)  # P
        self.routers = Routers(backbone.dim, config.experts, decisions, config.router_init)  # R_t
        self.history = UsageHistory(decisions, config.experts)  # H
        # (T, S, N) ψ(H) that each task was trained with
        self.penalties: Tensor = nn.Buffer(torch.zeros(0, decisions, config.experts))

    # Shared prompt pool with dynamic allocation. -------------------------------------------

    def route(self, tokens: Tensor, task: Tensor | None, decision: int = 0) -> Routing:
        """Choose and weight the experts of each image (equations 1, 2 and 7).

        Args:
            tokens: (B, N, D) embedded patches, or the tokens that enter a block.
            task: (B,) router of each image; None for the task in training.
            decision: which of the S decisions.
        """
        scores = self.routers.scores(tokens, task, decision)[:, None]  # s = mean(x W_r) / √d
        return choose(  # α = softmax over the top-k of s̃ = s − ψ(H)
            scores,
            penalty=self.penalty_of(task)[..., decision : decision + 1, :],
            top_k=self.config.top_k,
            penalty_on=self.config.penalty_on,
            mixing=self.config.mixing,
        )

    def inject(
        self, tokens: Tensor, task: Tensor | None, routed: list[Routing] | None = None
    ) -> Injection:
        """p̃ = Σ_k α_k p_k (equation 3), before the keys and values of each prompted block.

        Args:
            tokens: (B, N, D).
            task: (B,) router of each image; None for the task in training.
            routed: every routing decision is appended to it, as the pass makes them.
        """

        def weights(decision: int, entering: Tensor) -> Tensor:
            routing = self.route(entering, task, decision)
            if routed is not None:
                routed.append(routing)
            return routing.weights

        if self.config.router_scope == "global":
            return Injection(prefix=self.pool.mix(weights(0, tokens)[:, 0]))

        def prefix(position: int, entering: Tensor) -> Tensor:
            return self.pool.mix_at(position, weights(position, entering)[:, 0])

        layers = enumerate(self.pool.layers)
        return Injection(prefix={layer: partial(prefix, position) for position, layer in layers})

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.pool.prompts, self.routers.current]

    # History-aware modulator. --------------------------------------------------------------

    def counts(self) -> Tensor:
        """H (S, N): of finished tasks, or with those of the task in training."""
        return self.history.counts(live=self.config.history == "step")

    def penalty(self) -> Tensor:
        """HDR: ψ(H) as of now, (S, N) (equations 7 and 8)."""
        return penalty(self.counts(), self.config)

    def penalty_of(self, task: Tensor | None) -> Tensor:
        """What is taken off the scores: (S, N) in training, (B, S, N) at test."""
        if task is None:
            return self.penalty() if self.config.history == "step" else self.penalties[-1]
        if self.config.infer_penalty == "task":
            return self.penalties[task]
        today = self.penalty() * (self.config.infer_penalty == "current")
        return today.expand(task.shape[0], -1, -1)

    def update_factor(self, used_before: Tensor) -> Tensor:
        """HGM: γ(H) of every expert, (N, S) (equations 9 and 10).

        Args:
            used_before: (S, N) activations before the step whose update this is.
        """
        factor = update_factor(self.counts(), self.config)
        if self.config.mask_inactive:
            factor = factor * (self.history.pending > used_before)  # of all devices
        return factor.T

    @contextmanager
    def modulated(self, used_before: Tensor) -> Iterator[None]:
        """HGM around a step of the optimiser: p ← p + γ(H) Δp."""
        prompts, factor = self.pool.prompts, self.update_factor(used_before)[..., None, None, None]
        if self.config.hgm_mode != "update":
            assert prompts.grad is not None
            prompts.grad *= factor
            yield
            return
        # Adam's step does not depend on the size of the gradient, so γ must scale the step.
        before = prompts.detach().clone()
        yield
        with torch.no_grad():
            prompts.copy_(before + factor * (prompts - before))

    # Learning a task. ----------------------------------------------------------------------

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.routers.add(copy_last=self.config.router_next == "copy")
        grow_buffer(self, "penalties", self.penalty()[None])

    def prompt_phase(self, task: TaskView) -> Phase:
        optimizer: Optimizer = "sgd" if self.config.hgm_mode == "sgd" else "adam"
        return replace(super().prompt_phase(task), update=self.modulated, optimizer=optimizer)

    def step(self, batch: Batch, task: TaskView) -> StepResult:
        tokens, routed = self.backbone.embed(batch.inputs), list[Routing]()
        features = self.backbone.encode(tokens, self.inject(tokens, None, routed))
        losses = self.losses(features, batch.labels, task)
        used_before = self.history.pending.clone()
        self.history.record(torch.cat([routing.chosen for routing in routed], dim=1))
        return StepResult(losses, used_before)

    def end_task(self, task: TaskView) -> None:
        if self.config.history == "step":
            self.penalties[task.index] = self.penalty()
        self.history.commit()

    # What the run reports. -----------------------------------------------------------------

    def accumulators(self) -> list[Tensor]:
        return [self.history.pending]

    def diagnostics(self, task: TaskView) -> dict[str, float]:
        return describe_routing(self, task)

    def usage(self) -> list[list[int]]:
        return self.history.by_task.sum(1).tolist()
