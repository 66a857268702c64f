"""Hash: history-aware prompt sharing (arXiv 2601.20894).

A pool of prompts shared by all tasks, one router per task that picks and mixes two of them for
each image, and a modulator with a memory: experts that earlier tasks used most get a routing
penalty (HDR) and smaller updates (HGM).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from hashprompt.backbone import Backbone
from hashprompt.methods.base import Batch, Losses, Phase, StepResult, TaskView
from hashprompt.methods.hash import history as usage
from hashprompt.methods.hash.config import HashConfig
from hashprompt.methods.hash.router import Routing, spread, unevenness
from hashprompt.methods.hash.routing_report import describe_routing, routing_remark
from hashprompt.methods.hash.shared_pool import SharedPool
from hashprompt.methods.phase import Optimizer
from hashprompt.parts.growing import grow_buffer
from hashprompt.parts.precision import add_exactly, exact


class Hash(SharedPool):
    """Shared prompt pool, task routers, history-aware modulation."""

    keeps = (*SharedPool.keeps, "penalties", "history.by_task")

    def __init__(self, config: HashConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.history = usage.UsageHistory(self.decisions, config.experts)
        self.register_buffer("penalties", torch.zeros(0, self.decisions, config.experts))
        self.register_buffer("meter", torch.zeros(2, 6))
        self.penalties: Tensor  # (T, S, N) b_t, what each task was trained with
        self.meter: Tensor  # exact sums over training images, see diagnostics()
        self._routing: dict[str, float] = {}  # of the task just learned

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        grow_buffer(self, "penalties", self._penalty()[None])
        self.meter.zero_()

    def end_task(self, task: TaskView) -> None:
        config, self._routing = self.config, {}
        if self.trains_prompts and config.experts > 1:
            form = (config.delta if config.hdr else 0.0, config.delta_unit)
            self._routing = describe_routing(self.decisions_about(task), task.labels, *form)
        super().end_task(task)
        if self.config.history == "step":
            self.penalties[task.index] = self._penalty()
        self.history.commit()

    def keep_tasks(self, tasks: Tensor) -> None:
        super().keep_tasks(tasks)
        self.history.select(tasks)
        self.penalties = self.penalties[tasks]

    def trained_tasks(self) -> Tensor:
        return self.history.by_task.sum((1, 2)) > 0

    # HDR. ----------------------------------------------------------------------------------

    def _penalty(self) -> Tensor:
        """ψ(H) as of now, (S, N)."""
        counts = self.history.counts(live=self.config.history == "step")
        if not self.config.hdr:
            return torch.zeros_like(counts, dtype=torch.float32)
        config, raw = self.config, self.config.history_scale == "raw"
        return usage.penalty(counts, config.penalty, config.delta, config.protected, raw)

    def penalty_for(self, task: Tensor | None) -> Tensor:
        if task is None:
            return self._penalty() if self.config.history == "step" else self.penalties[-1]
        if self.config.infer_penalty == "task":
            return self.penalties[task]
        today = self._penalty() * (self.config.infer_penalty == "current")
        return today.expand(task.shape[0], -1, -1)

    # HGM. ----------------------------------------------------------------------------------

    def prompt_phases(self, task: TaskView) -> list[Phase]:
        optimizer: Optimizer = "sgd" if self.config.hgm_mode == "sgd" else "adam"
        return [
            replace(phase, update=self._modulated, optimizer=optimizer)
            if phase.name == "wtp"
            else phase
            for phase in super().prompt_phases(task)
        ]

    def _wtp_step(self, batch: Batch, task: TaskView) -> StepResult:
        tokens, decisions = self.backbone.embed(batch.inputs), list[Routing]()
        injection = self.inject(tokens, None, batch.plain, decisions)
        losses = self.wtp_losses(self.backbone.encode(tokens, injection), batch.labels, task)
        routing = Routing(*(torch.cat(each, dim=1) for each in zip(*decisions, strict=True)))
        if self.config.distil and len(self.old_pool):
            moved = self.distillation(tokens, batch.plain, task.index)
            losses["distil"] = self.config.distil * moved
        if self.config.even_use:
            losses["even_use"] = self.config.even_use * unevenness(routing.scores)
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
            spread(scores).mean(),
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
        if not count:  # nothing was trained
            return self._routing
        found = {name: value / count for name, value in zip(names, sums, strict=True)}
        if self.config.experts == 1:  # nothing to route
            found = {name: found[name] for name in ("loss", "contrastive")}
        return found | self._routing

    def remark(self) -> str | None:
        return routing_remark(self._routing)

    def usage(self) -> list[list[int]]:
        return self.history.by_task.sum(1).tolist()
