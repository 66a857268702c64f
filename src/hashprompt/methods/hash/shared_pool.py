"""A pool of prompts that all tasks share, and a router per task that picks and mixes them.

What the paper adds to it, a memory of the experts' use, is in `hash.py`. What keeps statistics of
old classes true while the pool moves is here, and is ours: they follow the features (`drift`), the
pool in use follows the trained one part of the way (`deploy`), features are held where they
were (`distil`), and those under the prompts of the first task stay for good (`base`).
"""

from dataclasses import replace
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Phase, TaskView, blocks_of
from hashprompt.methods.frames.hide_pipeline import PromptPipeline
from hashprompt.methods.hash.config import HashConfig
from hashprompt.methods.hash.pool import PromptPool
from hashprompt.methods.hash.router import Routers, Routing, choose, router_scores, spread
from hashprompt.methods.hash.router_input import RouterInput
from hashprompt.parts.cut_mix import cut_mix
from hashprompt.parts.drift import Drift, ridge_for_other_classes
from hashprompt.parts.gaussians import ClassGaussians
from hashprompt.parts.pooled_gaussians import PooledGaussians

RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, torch.inf)  # to choose the damping from
CUT_MIX = 1.0  # α: windows of all sizes are as likely


class Snapshot(NamedTuple):
    """Prompts as they were."""

    prompts: Tensor  # (N, …) of the pool
    router: Tensor | None  # (S, D, N); None where routers of old tasks are kept anyhow


class SharedPool(PromptPipeline):
    """The pipeline with shared prompts and routers."""

    stores: ClassVar = {
        **PromptPipeline.stores,
        **dict.fromkeys(("pool", "trained", "old_pool", "first_pool"), "prompts"),
        **dict.fromkeys(("router_input", "old_router", "first_router"), "routers"),
        "first_stats": "statistics",
    }
    keeps = (*PromptPipeline.keeps, "routers.frozen", "first_")
    config: HashConfig

    def __init__(self, config: HashConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks = blocks_of(config.layers, backbone)
        length = config.prompt_length // (1 if config.len_mode == "per_half" else 2)
        self.decisions = 1 if config.router_scope == "global" else len(blocks)  # S
        self.pool = PromptPool(config.experts, blocks, length, backbone.dim)
        self.routers = Routers(backbone.dim, config.experts, self.decisions, config.router_init)
        self.router_input = RouterInput(config.router_input, backbone.dim)
        if config.drift != "ignore":
            self.register_buffer("before", torch.zeros(0, 0, backbone.dim))
            self.before: Tensor  # (N, R, D) features under old routers before the pool moves
            self.keeps = tuple(name for name in self.keeps if name != "prompted_stats.")
        if config.damped:
            self.register_buffer("trained", self.pool.prompts.detach().clone())
            self.trained: Tensor  # the pool in training, while another one is in use
        if config.distil and self.one_router:
            self.register_buffer("old_router", self.routers.current.detach()[:0].clone())
            self.old_router: Tensor  # the router before the task, while it is learned
        if config.base == "first":
            self.register_buffer("first_pool", self.pool.prompts.detach()[:0].clone())
            self.register_buffer("first_router", self.routers.current.detach()[:0].clone())
            self.first_pool: Tensor  # pool and router as the first task left them
            self.first_router: Tensor
            self.first_stats = self.new_gaussians()  # of features under these
        if config.damped or config.distil:
            self.register_buffer("old_pool", self.pool.prompts.detach()[:0].clone())
            self.register_buffer("old_spread", torch.ones(()))
            self.old_pool: Tensor  # the pool in use before the task, while it is learned
            self.old_spread: Tensor  # mean variance of old features

    @property
    def one_router(self) -> bool:
        """Whether one router serves all tasks: then features do not depend on the task."""
        return self.config.router_next == "same"

    def has_prompts_for(self, task: TaskView) -> bool:
        """With one router, what earlier tasks have learned serves tasks that train nothing, too."""
        learned = self.one_router and not self.plain_tasks()[: task.index].all()
        return super().has_prompts_for(task) or learned

    @property
    def _may_answer_at_once(self) -> bool:
        """With one router, answers may stand on prompted features alone."""
        config = self.config
        read_off = config.tii == config.align == "discriminant" and config.base == "plain"
        silent = "plain" not in config.voters and config.router_input != "plain"
        return self.one_router and read_off and silent

    @property
    def asks_plain(self) -> bool:
        return not (self._may_answer_at_once and self.all_prompted)

    def asks_plain_of(self, task: TaskView) -> bool:
        prompted = self.has_prompts_for(task) and not self.plain_tasks()[: task.index].any()
        return not (self._may_answer_at_once and prompted)

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        if not self.one_router or not self.routers.started:
            self.routers.add(copy_last=self.config.router_next == "copy")

    def end_task(self, task: TaskView) -> None:
        super().end_task(task)
        stats, follow = self.prompted_stats, self.config.drift != "ignore"
        if isinstance(stats, PooledGaussians) and follow and self.one_router and self.all_prompted:
            stats.merge()  # all classes move alike from now on
        for name in {"old_pool", "old_router"} & self._buffers.keys():
            setattr(self, name, getattr(self, name)[:0])

    def keep_tasks(self, tasks: Tensor) -> None:
        super().keep_tasks(tasks)
        if not self.one_router:
            self.routers.select(tasks)

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.pool.prompts, self.routers.current]

    def trained_tasks(self) -> Tensor:
        """Which of the finished tasks (T,) moved the pool."""
        raise NotImplementedError

    # Routing. ------------------------------------------------------------------------------

    def penalty_for(self, task: Tensor | None) -> Tensor:
        """What is taken off the scores of a pass: (S, N) in training, (B, S, N) at test."""
        raise NotImplementedError

    def inject(
        self,
        tokens: Tensor,
        task: Tensor | None,
        plain: Tensor | None = None,
        decisions: list[Routing] | None = None,
        before: Snapshot | None = None,
    ) -> Injection:
        """The mixed prompts of embedded images (B, N, D).

        Args:
            task: (B,) router of each image, None for the current one.
            plain: (B, D) plain features; made here if the router reads them and they are not known.
            decisions: the routing of every decision is appended to it, as the pass makes them.
            before: of the prompts as they were then.
        """
        plain = self._plain(tokens) if plain is None else plain
        prompts, router = before or (None, None)

        def route(position: int, entering: Tensor) -> Tensor:
            routing = self._route(self.router_input(entering, plain), task, position, router)
            if decisions is not None:
                decisions.append(routing)
            return routing.weights

        if self.config.router_scope == "global":
            return Injection(prefix=self.pool.mix(route(0, tokens), prompts))

        def at(position: int, entering: Tensor) -> Tensor:
            return self.pool.mix_at(position, route(position, entering)[:, 0], prompts)

        layers = enumerate(self.pool.layers)
        return Injection(prefix={layer: partial(at, position) for position, layer in layers})

    def _route(
        self, tokens: Tensor, task: Tensor | None, decision: int, router: Tensor | None = None
    ) -> Routing:
        """Choose and weight the experts of each image.

        Args:
            tokens: (B, N, D) embedded patches (or the tokens that enter a block).
            task: (B,) router of each image, None for the current one.
            decision: which of the S decisions.
            router: (S, D, N) in the place of that.
        """
        if router is None and self.one_router:
            router = self.routers.current
        if router is not None:
            scores = router_scores(tokens, router[decision])[:, None]
        else:
            scores = self.routers.scores(tokens, task, decision)[:, None]
        penalty = self.penalty_for(task)[..., decision : decision + 1, :]
        config = self.config
        if config.delta_unit == "spread":
            penalty = penalty * spread(scores.detach())[..., None]
        form = (config.penalty_on, config.mixing, config.mixing_temperature)
        return choose(scores, penalty, config.top_k, *form)

    def prompted(self, tokens: Tensor, task: Tensor | None, plain: Tensor | None = None) -> Tensor:
        return self.backbone.encode(tokens, self.inject(tokens, task, plain))

    @torch.no_grad()
    def decisions_about(self, task: TaskView) -> Routing:
        """How the current router decides about the images of its task, for the record."""
        if self.config.router_input == "plain":
            plain = task.features()
            return self._route(self.router_input(plain[:, None], plain), None, 0)

        def each(images: Tensor) -> Tensor:
            tokens, decisions = self.backbone.embed(images), list[Routing]()
            injection = self.inject(tokens, None, None, decisions)
            if self.config.router_scope == "layer":  # later decisions are made in the pass
                self.backbone.encode(tokens, injection)
            told = (torch.stack((d.scores, d.weights, d.is_chosen()), 2) for d in decisions)
            return torch.cat(list(told), 1)

        scores, weights, chosen = task.map(each).unbind(2)  # each (N, S, experts)
        return Routing(scores, chosen.topk(self.config.top_k, -1).indices, weights)

    def _plain(self, tokens: Tensor) -> Tensor | None:
        """Plain features (B, D) of embedded images, if the router reads them."""
        if self.config.router_input != "plain":
            return None
        with torch.no_grad():
            return self.backbone.encode(tokens)

    # Features that stay. -------------------------------------------------------------------

    @property
    def base_stats(self) -> ClassGaussians:
        return self.first_stats if self.config.base == "first" else self.plain_stats

    def base_features(self, tokens: Tensor, plain: Tensor) -> Tensor:
        has_first = self.config.base == "first" and len(self.first_pool)
        return self._under_first(tokens, plain) if has_first else plain

    def _under_first(self, tokens: Tensor, plain: Tensor | None = None) -> Tensor:
        """Features (B, D) of embedded images with the prompts as the first task left them."""
        before = Snapshot(self.first_pool, self.first_router)
        task = torch.zeros(tokens.shape[0], dtype=torch.int64, device=tokens.device)
        return self.backbone.encode(tokens, self.inject(tokens, task, plain, before=before))

    def _keep_first(self, task: TaskView) -> None:
        """Prompts as the first task leaves them."""
        self.first_pool = self.pool.prompts.detach().clone()
        self.first_router = self.routers.current.detach().clone()

    def phases(self, task: TaskView) -> list[Phase]:
        phases = super().phases(task)
        if self.config.base == "first":
            after = [phase.name for phase in phases].index("statistics") + 1
            describe = Phase("base-statistics", work=partial(self._describe_base, task))
            phases.insert(after, describe)
        return phases

    def _describe_base(self, task: TaskView) -> None:
        """Append the Gaussians of base features; plain ones, if the first task had no prompts."""
        if not len(self.first_pool) or task.index == 0:
            same = self.prompted_stats if len(self.first_pool) else self.plain_stats
            self.first_stats.append(same, len(self.first_stats))
            return
        embed = self.backbone.embed
        features = task.map(lambda images: self._under_first(embed(images)))
        self.first_stats.add(features, task.labels, task.classes)

    # Statistics that stay true. ------------------------------------------------------------

    def prompt_phases(self, task: TaskView) -> list[Phase]:
        (phase,) = super().prompt_phases(task)
        phase = replace(phase, plain=self.config.router_input == "plain")
        config, first = self.config, bool(self.plain_tasks()[: task.index].all())
        if not first and len(task.classes) < config.fewest_classes:
            return []
        trained = 1 + int(self.trained_tasks().sum())
        scale = trained**-config.lr_decay * (config.first_lr_scale if first else 1)
        if scale != 1:
            groups = [replace(g, lr=scale * g.lr) for g in phase.groups]
            phase = replace(phase, groups=groups)
        follows, damped = config.drift != "ignore" and not first, config.damped
        around = {
            "router-input": (first and self.router_input.needs_statistics, self._fit_router_input),
            "drift-before": (follows, self._remember),
            "old-pool": (not first and (damped or config.distil > 0), self._take_up),
            "wtp": (True, None),
            "deploy": (damped, self._deploy),
            "drift-after": (follows, self._follow),
            "base": (config.base == "first" and task.index == 0, self._keep_first),
        }
        return [
            phase if work is None else Phase(name, work=partial(work, task))
            for name, (wanted, work) in around.items()
            if wanted
        ]

    def _take_up(self, task: TaskView) -> None:
        """Keep the pool in use, and go on training the one that was trained."""
        self.old_pool = self.pool.prompts.detach().clone()
        if "old_router" in self._buffers:
            self.old_router = self.routers.current.detach().clone()
        if self.config.distil:
            spread = self.prompted_stats.covariances().diagonal(dim1=-2, dim2=-1).mean()
            self.old_spread = spread.to(self.old_spread).clamp(min=1e-12)
        if self.config.damped:
            self.pool.prompts.data = self.trained.clone()

    def _deploy(self, task: TaskView) -> None:
        """Let the pool in use follow the one just trained, a part of the way."""
        self.trained = self.pool.prompts.detach().clone()
        if len(self.old_pool):
            step = self._deployed_share(task) * (self.trained - self.old_pool)
            self.pool.prompts.data = self.old_pool + step

    def _deployed_share(self, task: TaskView) -> float:
        """Of the way from the pool in use to the trained one."""
        if self.config.deploy != "average":
            return self.config.deploy
        finished = self.cells.task[self.cells.task < task.index]
        return len(task.classes) / (len(task.classes) + int(self.trained_tasks()[finished].sum()))

    def distillation(self, tokens: Tensor, plain: Tensor | None, tasks: int) -> Tensor:
        """How far features under a random old router have moved, over the variance of old ones.

        Args:
            tokens: (B, N, D) embedded images of the new task.
            plain: (B, D) their plain features, if the router reads them.
            tasks: number of old ones.
        """
        router = torch.randint(tasks, (1,), device=tokens.device).expand(len(tokens))
        before = Snapshot(self.old_pool, self.old_router if self.one_router else None)
        with torch.no_grad():
            target = self.backbone.encode(tokens, self.inject(tokens, router, plain, before=before))
        moved = self.prompted(tokens, router, plain) - target
        return moved.square().mean() / self.old_spread

    def _fit_router_input(self, task: TaskView) -> None:
        if self.config.router_input == "plain":
            self.router_input.fit(task.features())
            return
        embed, basis = self.backbone.embed, self.router_input.basis
        self.router_input.fit(task.map(lambda images: basis(embed(images), None)).to(self.device))

    def _under_old_routers(self, task: TaskView) -> Tensor:
        """Features of the new images, and of mixtures of them, under all old routers, (M, R, D)."""
        routers = 1 if self.one_router else task.index

        def each(images: Tensor) -> Tensor:
            tokens = self.backbone.embed(images)
            plain, tasks = self._plain(tokens), torch.arange(routers, device=tokens.device)
            seen = [self.prompted(tokens, t.expand(len(tokens)), plain) for t in tasks]
            return torch.stack(seen, 1)

        seen = [task.map(each)]
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(task.index)  # the same mixtures before and after the pool moves
            for _ in range(self.config.drift_views):
                batches = task.batches(self.config.batch_size, "train")
                seen += [each(cut_mix(batch.inputs, CUT_MIX)[0]).to(seen[0]) for batch in batches]
        return torch.cat(seen)

    def _remember(self, task: TaskView) -> None:
        self.before = self._under_old_routers(task).to(self.device)

    def _follow(self, task: TaskView) -> None:
        """Move the Gaussians of every old class as the new images moved under its router."""
        after = self._under_old_routers(task).to(self.device)
        ridge = self.config.drift_ridge if self.config.drift == "affine" else torch.inf
        if self.config.drift == "affine" and self.config.drift_ridge_by == "classes":
            labels = task.labels.to(self.device)
            last = self.before[: len(labels), -1], after[: len(labels), -1], labels
            ridge = ridge_for_other_classes(*last, (self.config.drift_ridge, *RIDGES))
        pairs = zip(self.before.unbind(1), after.unbind(1), strict=True)
        of_task = self.cells.task
        old = (of_task < task.index) & ~self.plain_tasks()[of_task]
        for router, (before, now) in enumerate(pairs):
            cells = (old if self.one_router else old & (of_task == router)).nonzero()[:, 0]
            self.prompted_stats.move(cells.tolist(), Drift(before, now, ridge))
        self.before = self.before[:0, :0]
