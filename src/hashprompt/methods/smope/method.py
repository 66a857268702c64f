"""SMoPE: one prompt for all tasks, whose tokens are experts of the attention heads.

Le et al., ICLR 2026. Every pair of a prefix key and its value is an expert of one head; an image
uses the few whose keys fit it best. Experts that earlier tasks used much are held back while a
task is trained, and their keys stand in for the images that used them.
"""

from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, ParamGroup, Phase, TaskView, blocks_of
from hashprompt.methods.frames.classifier_alignment import alignment_phase
from hashprompt.methods.frames.prompt_tuning import PromptOutput, PromptTuning
from hashprompt.methods.smope.config import SmopeConfig
from hashprompt.parts.gaussians import ClassGaussians
from hashprompt.parts.heads import masked_cross_entropy

UNUSED = 2.0  # at test, the penalty of experts that no task used: more than the span


class Choice(NamedTuple):
    """What the heads of a block decided for a batch."""

    scores: Tensor  # (B, H, N) of all experts, before the attention's scale
    chosen: Tensor  # (B, H, K)


Use = Literal["all", "train", "test"]


class Smope(PromptTuning[SmopeConfig]):
    """One sparse prompt, trained on every task; no query, so one pass per image."""

    needs_query = False
    keeps = ("stats.",)
    stores = "statistics: stats"

    def __init__(self, config: SmopeConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        self.blocks = blocks_of(config.layers, backbone)
        self.heads = backbone.heads
        shape = (len(self.blocks), self.heads, config.experts)
        self.prompts = nn.Parameter(torch.rand(len(self.blocks), 2, config.experts, backbone.dim))
        self.stats = ClassGaussians(backbone.dim, config.statistics)
        # (P, H, N) how often images of finished tasks chose each expert
        self.counts: Tensor = nn.Buffer(torch.zeros(shape, dtype=torch.int64))
        # (P, H, N) whether that was ever above the average of its head
        self.frequent: Tensor = nn.Buffer(torch.zeros(shape, dtype=torch.bool))
        # (P, H, N, D/H) when the last task was finished
        self.old_keys: Tensor = nn.Buffer(torch.zeros(*shape, backbone.dim // self.heads))

    def keys(self) -> Tensor:
        """The experts' keys, (P, H, N, D/H)."""
        return self.prompts[:, 0].unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def begin_task(self, task: TaskView) -> None:
        super().begin_task(task)
        if task.index:
            used = (self.counts > 0).sum(-1, keepdim=True).clamp(min=1)
            mean = self.counts.sum(-1, keepdim=True) / used
            self.frequent = self.frequent | (self.counts >= mean)
            self.old_keys = self.keys().detach().clone()

    # Which experts an image uses. ----------------------------------------------------------

    def prompt(self, tokens: Tensor, query: Tensor, training: bool) -> PromptOutput:
        return PromptOutput(self._inject(len(tokens), "train" if training else "test", []), {})

    def _inject(self, count: int, use: Use, choices: list[Choice]) -> Injection:
        """The prompt for `count` images; what each block chooses is appended to `choices`."""
        size = (count, -1, -1, -1)
        prefix = {b: p.expand(size) for b, p in zip(self.blocks, self.prompts, strict=True)}
        gates = {b: partial(self._attend, i, use, choices) for i, b in enumerate(self.blocks)}
        return Injection(prefix=prefix, gates=gates)

    def _attend(self, position: int, use: Use, choices: list[Choice], scores: Tensor) -> Tensor:
        """What turns the scores (B, H, Q, N) of the prefix into those of SMoPE.

        An expert has one score for all queries, their mean, and those not chosen have none.
        """
        mean = scores.mean(2)  # (B, H, N)
        one = mean[:, :, None] - scores
        if use == "all":
            return one
        # (H, N) how much each expert is held back, in shares of the span of an image's scores
        unused, frequent = self.counts[position] == 0, self.frequent[position]
        held_back = self.config.noise * frequent if use == "train" else UNUSED * unused
        chosen = (mean - held_back * span(mean)).topk(self.config.top_k)[1]
        choices.append(Choice(mean * (self.old_keys.shape[-1] ** 0.5), chosen))
        return one.masked_fill(~marked(mean, chosen)[:, :, None], -torch.inf)

    # Training. -----------------------------------------------------------------------------

    def prompt_parameters(self) -> list[nn.Parameter]:
        return [self.prompts]

    def phases(self, task: TaskView) -> list[Phase]:
        config, (train,) = self.config, super().phases(task)
        phases = [
            train,
            Phase("usage", work=lambda: self._count(task)),
            Phase("statistics", work=lambda: self._describe(task)),
        ]
        warm_up = int(config.warm_up * config.epochs)
        if task.index == 0 and warm_up:
            step = partial(self._step, task=task, use="all")
            phases.insert(0, replace(train, name="warm-up", step=step, epochs=warm_up))
        if task.index and config.align_epochs:
            align = alignment_phase(
                "align",
                self.stats,
                torch.arange(len(self.head.bias), device=self.device),
                ParamGroup(self.head.parameters(), config.align_lr),
                lambda features, labels: F.cross_entropy(self.head(features), labels),
                samples=config.align_samples or config.batch_size,
                batches=len(self.head.bias) - len(task.classes),  # one per old class
                epochs=config.align_epochs,
                optimizer="adam",
            )
            phases.append(align)
        return phases

    def _step(self, batch: Batch, task: TaskView, use: Use = "train") -> dict[str, Tensor]:
        choices: list[Choice] = []
        tokens = self.backbone.embed(batch.inputs)
        features = self.backbone.encode(tokens, self._inject(len(tokens), use, choices))
        ce = masked_cross_entropy(self.head(features), batch.labels, self.allowed(task))
        losses, config = {"ce": ce}, self.config
        if use == "train" and config.router_weight:
            apart = [router_loss(*choice, config.noise) for choice in choices]
            losses["router"] = config.router_weight * torch.stack(apart).sum()
        if task.index and config.prototype_weight:
            loss = prototype_loss(self.keys(), self.old_keys, self.frequent, config.top_k)
            losses["prototypes"] = config.prototype_weight * loss
        return losses

    def _count(self, task: TaskView) -> None:
        """Add how often each expert is among the best for an image of the task."""

        def best(images: Tensor) -> Tensor:
            choices: list[Choice] = []
            tokens = self.backbone.embed(images)
            self.backbone.encode(tokens, self._inject(len(tokens), "test", choices))
            scores = torch.stack([choice.scores for choice in choices], dim=1)
            return marked(scores, scores.topk(self.config.top_k)[1])  # (B, P, H, N)

        self.counts = self.counts + task.map(best, view="train").sum(0).to(self.counts)

    def _describe(self, task: TaskView) -> None:
        self.stats.add(task.map(self.features_of), task.labels, task.classes)


def span(scores: Tensor) -> Tensor:
    """Distance between the best and the worst score, (…, 1); a mere scale, so without gradient."""
    low, high = scores.detach().aminmax(dim=-1, keepdim=True)
    return high - low


def marked(scores: Tensor, chosen: Tensor) -> Tensor:
    """Mask of the chosen (…, K) among all (…, N)."""
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, chosen, True)


def chosen_loss(scores: Tensor, chosen: Tensor) -> Tensor:
    """Σ over the chosen (…, K) of their cross-entropy among all (…, N)."""
    return -scores.log_softmax(-1).gather(-1, chosen).sum(-1)


def router_loss(scores: Tensor, chosen: Tensor, margin: float) -> Tensor:
    """Chosen experts should win by a margin of the span; summed over heads, mean over images.

    Args:
        scores: (B, H, N).
        chosen: (B, H, K).
        margin: ε, what the others get on top.
    """
    others = ~marked(scores, chosen)
    return chosen_loss(scores + margin * span(scores) * others, chosen).mean(0).sum()


def prototype_loss(keys: Tensor, old_keys: Tensor, frequent: Tensor, top_k: int) -> Tensor:
    """Old keys, seen as images that used them, should choose the experts they chose before.

    Args:
        keys: (P, H, N, D/H) of the experts now.
        old_keys: (P, H, N, D/H) before the task.
        frequent: (P, H, N) which of the old keys to ask.
        top_k: experts they choose.

    Returns:
        The mean over the old keys of a head, summed over heads and blocks.
    """
    before = (old_keys @ old_keys.mT).topk(top_k)[1]
    each = chosen_loss(old_keys @ keys.mT, before) * frequent
    return (each.sum(-1) / frequent.sum(-1).clamp(min=1)).sum()
