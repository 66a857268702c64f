"""DyTox: a shared encoder, and one block that looks at the patches with the token of each task.

Douillard et al., CVPR 2022. Theirs is a small transformer from scratch; here all blocks of the ViT
but the last are the encoder, and the last is the task-attention block (TAB). It has learned to ask
with the class token of each image, so a task's token is added to that (`keep_cls`); theirs stands
alone.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods import base
from hashprompt.methods.base import Batch, Losses, ParamGroup, Phase, TaskView
from hashprompt.methods.dytox.config import DyToxConfig
from hashprompt.methods.frames.rehearsal import Rehearsal, with_stored
from hashprompt.parts.cells import Cells
from hashprompt.parts.growing import grow_parameter
from hashprompt.parts.heads import GrowingLinear, distillation
from hashprompt.parts.memory import herding_order
from hashprompt.parts.trained_weights import Snapshot


class DyTox(Rehearsal[DyToxConfig]):
    """(1 − λ) BCE + λ KD + divergence; then the same images of all classes for all but the encoder.

    A head has the classes of its task as outputs, a cell each. The best cell of a class counts:
    class-incremental streams have one, others one for every domain.
    """

    stores = (
        "backbone: teacher; prompts: tokens; head: norm_scale norm_shift divergence divergence_norm"
    )

    def __init__(self, config: DyToxConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)  # a row of its head is a cell
        empty = torch.zeros(0, backbone.dim)
        self.tokens = nn.Parameter(empty.clone())  # θ, (T, D)
        self.norm_scale = nn.Parameter(empty.clone())  # of the norm before each head, (T, D)
        self.norm_shift = nn.Parameter(empty.clone())
        self.cells = Cells()
        self.divergence = GrowingLinear(backbone.dim)  # old, or which class of the task
        self.divergence_norm = nn.LayerNorm(backbone.dim)
        self.teacher = Snapshot(self.network())
        last = backbone.depth - 1
        self.encoder, self.tab = range(last), range(last, last + 1)

    def begin_task(self, task: TaskView) -> None:
        dim = self.backbone.dim
        if len(self.tokens):
            self.teacher.take(self.network())
            self.divergence, self.divergence_norm = GrowingLinear(dim), nn.LayerNorm(dim)
            self.divergence.grow(len(task.classes) + 1)
        self.cells.add(len(self.tokens), task.classes)
        self.head.grow(len(self.cells.label))
        grow_parameter(self, "tokens", nn.init.trunc_normal_(torch.empty(1, dim), std=0.02))
        grow_parameter(self, "norm_scale", torch.ones(1, dim))
        grow_parameter(self, "norm_shift", torch.zeros(1, dim))

    # The network. --------------------------------------------------------------------------

    def network(self) -> dict[str, Tensor]:
        per_task = {name: getattr(self, name) for name in ("tokens", "norm_scale", "norm_shift")}
        return {**super().network(), **per_task}

    def embeddings(
        self, images: Tensor, network: Mapping[str, Tensor], frozen_encoder: bool = False
    ) -> Tensor:
        """Output of the TAB for the token of each task, (B, T, D)."""
        inject = Injection(weights={name: network[name] for name in self.vit.names})
        encode = self.backbone.encode
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen_encoder):
            x = self.backbone.embed(images, inject)
            x = encode(x, inject, norm=False, read="all", blocks=self.encoder)
        cls, patches = x[:, :1], x[:, 1:]
        start = cls if self.config.keep_cls else torch.zeros_like(cls)
        sequences = (torch.cat((start + token, patches), 1) for token in network["tokens"])
        seen = [encode(each, inject, norm=False, blocks=self.tab) for each in sequences]
        return torch.stack(seen, dim=1)

    def answers(self, embeddings: Tensor, network: Mapping[str, Tensor]) -> Tensor:
        """Logits of all cells (B, M) from the embedding of their task, (B, T, D)."""
        logits = []
        for task, seen in enumerate(embeddings.unbind(1)):
            scale, shift = network["norm_scale"][task], network["norm_shift"][task]
            own = (self.cells.task == task).nonzero()[:, 0]
            normed = F.layer_norm(seen, scale.shape, scale, shift)
            logits.append(F.linear(normed, network["head.weight"][own], network["head.bias"][own]))
        return torch.cat(logits, dim=1)

    def logits(self, images: Tensor, network: Mapping[str, Tensor] | None = None) -> Tensor:
        network = network or self.network()
        return self.cells.to_classes(self.answers(self.embeddings(images, network), network))

    # Learning. -----------------------------------------------------------------------------

    def phases(self, task: TaskView) -> list[Phase]:
        heads = [self.tokens, self.norm_scale, self.norm_shift, *self.head.parameters()]
        divergence = [*self.divergence.parameters(), *self.divergence_norm.parameters()]
        [train] = super().phases(task)
        vit, head = train.groups
        # Without weight decay, which would move the tokens and heads of old tasks.
        train = replace(train, groups=(vit, ParamGroup((*heads, *divergence), head.lr)))
        keep = Phase("memory", work=lambda: self.keep_images(task))
        if not self.teacher.taken:
            return [train, keep]
        block = f"blocks.{self.tab.start}."
        tab = [value for name, value in self.vit.tensors().items() if name.startswith(block)]
        config = self.config
        rate = config.rate() * config.finetuning_lr / config.lr
        finetune = base.training_phase(
            config,
            lambda batch: self.finetuning_losses(batch, task),
            ParamGroup(tab, rate),
            ParamGroup(heads, rate * config.head_lr_scale),
            name="finetune",
            epochs=config.finetuning_epochs,
            draw=self.memory_batches,
        )
        return [train, keep, finetune]

    def losses(self, batch: Batch, task: TaskView) -> Losses:
        count = self.config.replays(len(batch.labels))
        images, labels = with_stored(batch, self.memory, count, task)
        network = self.with_old_heads_frozen()
        embeddings = self.embeddings(images, network)
        cells = self.answers(embeddings, network)
        bce = one_hot_bce(self.cells.to_classes(cells), labels)
        if not self.teacher.taken:
            return {"bce": bce}
        teacher = self.teacher.tensors()
        with torch.no_grad():
            taught = self.answers(self.embeddings(images, teacher), teacher)
        old = taught.shape[1]
        share = old / cells.shape[1]  # λ
        # The mean over cells too, as in the cross-entropy.
        kd = distillation(cells[:, :old], taught, temperature=1.0) / old
        # The newest token must separate the classes of its task from each other and from old ones.
        diverse = self.divergence(self.divergence_norm(embeddings[:, -1]))
        is_new = torch.arange(len(labels), device=labels.device) < len(batch.labels)
        place = self.cells.of(labels, len(self.tokens) - 1) - old + 1
        divergence = one_hot_bce(diverse, place.where(is_new, 0))
        return {
            "bce": (1 - share) * bce,
            "kd": share * kd,
            "divergence": self.config.divergence * divergence,
        }

    def with_old_heads_frozen(self) -> dict[str, Tensor]:
        """The network; tokens and heads of old tasks have no gradient."""
        network = self.network()
        tasks = len(self.tokens) - 1
        cells = int((self.cells.task < tasks).sum())
        for name in network.keys() - set(self.vit.names):
            value, old = network[name], cells if name.startswith("head.") else tasks
            network[name] = torch.cat((value[:old].detach(), value[old:]))
        return network

    def keep_images(self, task: TaskView) -> None:
        """Those that herding on the embeddings of all tokens finds."""
        network = self.network()
        features = task.map(lambda images: self.embeddings(images, network).flatten(1))
        order = herding_order(features, task.labels)
        self.memory.keep(task.labels, task.raw, task.index, order)

    def finetuning_losses(self, batch: Batch, task: TaskView) -> Losses:
        images, network = task.see(self.memory.rows(batch.inputs).images), self.network()
        cells = self.answers(self.embeddings(images, network, frozen_encoder=True), network)
        return {"bce": one_hot_bce(self.cells.to_classes(cells), batch.labels)}


def one_hot_bce(logits: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of logits (B, C), the mean over images and classes; labels (B,)."""
    wanted = F.one_hot(labels, logits.shape[1]).to(logits)
    return F.binary_cross_entropy_with_logits(logits, wanted)
