"""Hash: history-aware prompt sharing (arXiv 2601.20894).

A pool of prompts shared by all tasks, one router per task that picks and mixes two of them for
each image, and a modulator with a memory: experts that earlier tasks used most get a routing
penalty (HDR) and smaller updates (HGM).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import (
    Batch,
    Losses,
    Phase,
    StepResult,
    TaskView,
    blocks_of,
)
from hashprompt.methods.configs.hash import INFO, HashConfig
from hashprompt.methods.pipeline import PromptPipeline
from hashprompt.parts import history as usage
from hashprompt.parts.drift import Drift
from hashprompt.parts.growing import grow_buffer
from hashprompt.parts.pool import PromptPool
from hashprompt.parts.precision import add_exactly, exact
from hashprompt.parts.router import Routers, Routing, choose


class Hash(PromptPipeline):
    """Shared prompt pool, task routers, history-aware modulation."""

    info = INFO
    stores: ClassVar = {**PromptPipeline.stores, "pool": "prompts"}
    keeps = (*PromptPipeline.keeps, "routers.frozen", "penalties", "history.by_task")
    config: HashConfig

    def __init__(self, config: HashConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks = blocks_of(config.layers, backbone)
        length = config.prompt_length // (1 if config.len_mode == "per_half" else 2)
        decisions = 1 if config.router_scope == "global" else len(blocks)
        self.pool = PromptPool(config.experts, blocks, length, backbone.dim)
        self.routers = Routers(backbone.dim, config.experts, decisions, config.router_init)
        self.history = usage.UsageHistory(decisions, config.experts)
        self.register_buffer("penalties", torch.zeros(0, decisions, config.experts))
        self.register_buffer("meter", torch.zeros(2, 6))
        self.penalties: Tensor  # (T, S, N) b_t, what each task was trained with
        self.meter: Tensor  # exact sums over training images, see diagnostics()
        if config.drift != "ignore":
            self.register_buffer("before", torch.zeros(0, 0, backbone.dim))
            self.before: Tensor  # (N, T − 1, D) features under old routers before the pool moves
            self.keeps = tuple(name for name in self.keeps if name != "prompted_stats.")

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        self.routers.add(copy_last=self.config.router_next == "copy")
        grow_buffer(self, "penalties", self._penalty()[None])
        self.meter.zero_()

    def end_task(self, task: TaskView) -> None:
        super().end_task(task)
        if self.config.history == "step":
            self.penalties[task.index] = self._penalty()
        self.history.commit()

    # Routing. ------------------------------------------------------------------------------

    def inject(
        self, tokens: Tensor, task: Tensor | None, decisions: list[Routing] | None = None
    ) -> Injection:
        """The mixed prompts of embedded images (B, N, D).

        Args:
            task: (B,) router of each image, None for the current one.
            decisions: the routing of every decision is appended to it, as the pass makes them.
        """

        def route(position: int, entering: Tensor) -> Tensor:
            routing = self._route(entering, task, position)
            if decisions is not None:
                decisions.append(routing)
            return routing.weights

        if self.config.router_scope == "global":
            return Injection(prefix=self.pool.mix(route(0, tokens)))

        def at(position: int, entering: Tensor) -> Tensor:
            return self.pool.mix_at(position, route(position, entering)[:, 0])

        layers = enumerate(self.pool.layers)
        return Injection(prefix={layer: partial(at, position) for position, layer in layers})

    def _route(self, tokens: Tensor, task: Tensor | None, decision: int) -> Routing:
        """Choose and weight the experts of each image.

        Args:
            tokens: (B, N, D) embedded patches (or the tokens that enter a block).
            task: (B,) router of each image, None for the current one.
            decision: which of the S decisions.
        """
        scores = self.routers.scores(tokens, task, decision)[:, None]
        penalty = self._penalty_for(task)[..., decision : decision + 1, :]
        config = self.config
        return choose(scores, penalty, config.top_k, config.penalty_on, config.mixing)

    def _penalty(self) -> Tensor:
        """ψ(H) as of now, (S, N)."""
        counts = self.history.counts(live=self.config.history == "step")
        if not self.config.hdr:
            return torch.zeros_like(counts, dtype=torch.float32)
        config, raw = self.config, self.config.history_scale == "raw"
        return usage.penalty(counts, config.penalty, config.delta, config.protected, raw)

    def _penalty_for(self, task: Tensor | None) -> Tensor:
        """Penalty of a pass: (S, N) in training, (B, S, N) at test."""
        if task is None:
            return self._penalty() if self.config.history == "step" else self.penalties[-1]
        if self.config.infer_penalty == "task":
            return self.penalties[task]
        today = self._penalty() * (self.config.infer_penalty == "current")
        return today.expand(task.shape[0], -1, -1)

    # Training. -----------------------------------------------------------------------------

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.pool.prompts, self.routers.current]

    def prompt_phases(self, task: TaskView) -> list[Phase]:
        (phase,) = super().prompt_phases(task)
        phase = replace(phase, update=self._modulated)
        if self.config.hgm_mode == "sgd":
            phase = replace(phase, optimizer="sgd")
        if self.config.drift == "ignore" or task.index == 0:
            return [phase]
        return [
            Phase("drift-before", work=lambda: self._remember(task)),
            phase,
            Phase("drift-after", work=lambda: self._follow(task)),
        ]

    def _under_old_routers(self, task: TaskView) -> Tensor:
        """Features of the new images under the routers of all old tasks, (N, T − 1, D)."""

        def each(images: Tensor) -> Tensor:
            tokens = self.backbone.embed(images)
            routers = torch.arange(task.index, device=tokens.device)
            return torch.stack([self.prompted(tokens, r.expand(len(tokens))) for r in routers], 1)

        return task.map(each)

    def _remember(self, task: TaskView) -> None:
        self.before = self._under_old_routers(task).to(self.device)

    def _follow(self, task: TaskView) -> None:
        """Move the Gaussians of every old class as the new images moved under its router."""
        after = self._under_old_routers(task).to(self.device)
        ridge = self.config.drift_ridge if self.config.drift == "affine" else torch.inf
        for old in range(task.index):
            drift = Drift(self.before[:, old], after[:, old], ridge)
            for cell in (self.cells.task == old).nonzero()[:, 0].tolist():
                self.prompted_stats.move(cell, drift)
        self.before = self.before[:0, :0]

    def _wtp_step(self, batch: Batch, task: TaskView) -> StepResult:
        tokens, decisions = self.backbone.embed(batch.inputs), list[Routing]()
        features = self.backbone.encode(tokens, self.inject(tokens, None, decisions))
        losses = self.wtp_losses(features, batch.labels, task)
        routing = Routing(*(torch.cat(each, dim=1) for each in zip(*decisions, strict=True)))
        self._measure(losses, routing)
        counted = self.history.pending.clone()
        self.history.record(routing.chosen)
        return StepResult(losses, counted)

    def update_factor(self, counted: Tensor) -> Tensor:
        """γ of every expert as of now, (N, S).

        Args:
            counted: (S, N) activations before the step whose update this is.
        """
        config = self.config
        counts = self.history.counts(live=config.history == "step")
        factor = torch.ones_like(counts, dtype=torch.float32)
        if config.hgm:
            raw = config.history_scale == "raw"
            form = (config.modulation, config.alpha, config.beta, config.protected)
            factor = usage.update_factor(counts, *form, raw)
        if config.mask_inactive:
            factor = factor * (self.history.pending > counted)  # of all devices
        return factor.T

    @contextmanager
    def _modulated(self, counted: Tensor) -> Iterator[None]:
        """HGM around an optimiser's step; `counted` as in :meth:`update_factor`."""
        prompts, factor = self.pool.prompts, self.update_factor(counted)[..., None, None, None]
        if self.config.hgm_mode != "update":
            assert prompts.grad is not None
            prompts.grad *= factor
            yield
            return
        # Adam's step does not depend on the size of the gradient, so γ must scale the step.
        before = prompts.detach().clone()
        yield
        prompts.data = before + factor * (prompts.data - before)

    # What the run reports. -----------------------------------------------------------------

    @torch.no_grad()
    def _measure(self, losses: Losses, routing: Routing) -> None:
        scores, weights, chosen = routing.scores, routing.weights, routing.chosen
        counts = self.history.counts(live=self.config.history == "step")
        mask = usage.protected(counts, self.config.protected).expand(len(chosen), -1, -1)
        means = [
            torch.special.entr(weights).sum(-1).mean(),
            scores.std(-1).mean(),
            mask.gather(-1, chosen).float().mean(),
            losses["ce"],
            losses.get("contrastive", torch.zeros(())),
        ]
        one = torch.ones((), device=scores.device)
        every = torch.stack([m.to(scores.device) for m in [one, *means]]).float()
        self.meter = add_exactly(self.meter, len(scores) * every)

    def accumulators(self) -> list[Tensor]:
        return [self.history.pending, self.meter]

    def diagnostics(self) -> dict[str, float]:
        names = ("routing_entropy", "score_std", "share_protected", "loss", "contrastive")
        count, *sums = exact(self.meter).view(-1, 6).sum(0).tolist()
        return {name: value / max(count, 1) for name, value in zip(names, sums, strict=True)}

    def usage(self) -> list[list[int]]:
        return self.history.by_task.sum(1).tolist()
