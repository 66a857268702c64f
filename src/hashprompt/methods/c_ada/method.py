"""C-ADA: adapters next to attention and MLP, widened by every task. A reconstruction.

Gao et al., ECCV 2024. The authors published no code; what the abstract leaves open (widths, rates,
where the branches read) is chosen here. Old units are frozen, yet the features of old classes move
with every unit that is added: only the orthogonality loss works against that.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.backbone.vit import Edit
from hashprompt.methods import base
from hashprompt.methods.base import Batch, ParamGroup, Phase, Prediction, TaskView
from hashprompt.methods.c_ada.config import CAdaConfig
from hashprompt.parts.adapters import TaskBranches, branches
from hashprompt.parts.heads import GrowingLinear, masked_cross_entropy
from hashprompt.parts.slots import uniform


class CAda(base.Method[CAdaConfig]):
    """Continual adapters, read behind a scale and a shift that the first task learns."""

    keeps = (
        "scale",
        "shift",
        *(f"{n}.{m}.frozen" for n in ("attn", "mlp") for m in ("down", "up")),
    )
    stores = "prompts: scale shift attn mlp"

    def __init__(self, config: CAdaConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        depth, dim = backbone.depth, backbone.dim
        self.scale = nn.Parameter(torch.ones(depth, dim))  # α, a row for each block
        self.shift = nn.Parameter(torch.zeros(depth, dim))  # β
        self.attn = WideningAdapters(depth, dim, config.attention_width)
        self.mlp = WideningAdapters(depth, dim, config.mlp_width)
        self.head = GrowingLinear(dim)

    def begin_task(self, task: TaskView) -> None:
        self.attn.add()
        self.mlp.add()
        self.head.grow(max(task.classes) + 1)

    def inject(self) -> Injection:
        """λ · ReLU((α ⊙ z + β) W_down) W_up next to attention and MLP of every block."""
        edits: dict[str, Edit] = {}
        for name, adapters in (("attn", self.attn), ("mlp", self.mlp)):
            down, up = adapters.joined()
            # Scale and shift are folded into the projection: (P, D + 1, T · h), a bias last.
            down = torch.cat((self.scale[..., None] * down, self.shift[:, None] @ down), dim=1)
            layers = [f"blocks.{block}.{name}" for block in range(self.backbone.depth)]
            no_bias = F.pad(up, (0, 0, 0, 1))
            edits |= branches(layers, down, no_bias, self.config.adapter_scale)
        return Injection(edits=edits)

    def phases(self, task: TaskView) -> list[Phase]:
        first = [self.scale, self.shift] if task.index == 0 else []
        # Without weight decay, so head rows of absent classes stay as they are.
        trained = (*first, *self.attn.current(), *self.mlp.current(), *self.head.parameters())
        group = ParamGroup(trained, self.config.lr)
        return [base.training_phase(self.config, lambda batch: self._step(batch, task), group)]

    def _step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        logits = self.logits(batch.inputs)
        losses = {"ce": masked_cross_entropy(logits, batch.labels, task.classes)}
        if task.index > 0:
            overlap = self.attn.overlap() + self.mlp.overlap()
            losses["orthogonality"] = self.config.orthogonality * overlap
        return losses

    def logits(self, images: Tensor) -> Tensor:
        """(B, C) over the classes seen."""
        return self.head(self.backbone(images, self.inject()))

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        return Prediction(self.logits(images))


class WideningAdapters(TaskBranches):
    """Σ_i ReLU(z W_down^i) W_up^i over tasks i, without biases.

    ReLU treats hidden units one by one, so the sum is one branch whose width is that of all tasks.

    Args:
        places: branches, P.
        dim: D, width of the tokens.
        width: h, hidden units that a task adds to each.
    """

    def __init__(self, places: int, dim: int, width: int) -> None:
        super().__init__(places, dim, width, uniform(dim**-0.5), biases=0)

    def joined(self) -> tuple[Tensor, Tensor]:
        """W_down (P, D, T · h) and W_up (P, T · h, D) of all tasks; only the newest train."""
        down = self.down.stacked().permute(1, 2, 0, 3).flatten(2)
        return down, self.up.stacked().transpose(0, 1).flatten(1, 2)

    def overlap(self) -> Tensor:
        """Σ ‖W_downᵀ W_down^i‖² + ‖W_up W_up^iᵀ‖² over places and older tasks i: a scalar."""
        down = torch.einsum("pdh,tpdk->tphk", self.down.current, self.down.frozen)
        up = torch.einsum("phd,tpkd->tphk", self.up.current, self.up.frozen)
        return down.square().sum() + up.square().sum()
