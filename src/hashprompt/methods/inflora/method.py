"""InfLoRA: interference-free low-rank adaptation.

Liang & Li, CVPR 2024. Every task adds B_t A_t to the key and value projections of all blocks. A_t
is not trained but designed: it reads the directions in which the task's inputs are strong, among
those that inputs of older tasks do not have. So whatever B_t becomes, old images hardly see it.
"""

import math
from functools import partial

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, Method, Phase, Prediction, TaskView
from hashprompt.methods.frames.prompt_tuning import tuning_phase
from hashprompt.methods.inflora.config import InfLoRAConfig
from hashprompt.parts.growing import grow_buffer
from hashprompt.parts.heads import masked_cross_entropy
from hashprompt.parts.lora import Factors, keys_and_values, low_rank
from hashprompt.parts.precision import exact
from hashprompt.parts.slots import TaskClassifiers, TaskSlots


class InfLoRA(Method[InfLoRAConfig]):
    """Designed A_t, trained B_t and classifier; a memory of the directions in use."""

    keeps = ("reduce", "expand.frozen", "head.weight.frozen", "head.bias.frozen")
    stores = "prompts: reduce expand; statistics: memory"

    def __init__(self, config: InfLoRAConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        blocks, dim = backbone.depth, backbone.dim
        rank = min(config.rank, dim)
        # A of every task, the same for keys and values
        self.reduce: Tensor = nn.Buffer(torch.zeros(0, blocks, rank, dim))
        self.expand = TaskSlots((blocks, 2, dim, rank), torch.zero_)  # B, for keys and for values
        self.memory = DualGPM(blocks, dim)
        self.head = TaskClassifiers(dim)

    def begin_task(self, task: TaskView) -> None:
        grow_buffer(self, "reduce", self.reduce.new_zeros(1, *self.reduce.shape[1:]))
        self.expand.add(copy_last=False)
        self.head.add(len(task.classes))
        # Classifiers of two tasks are never trained against each other, so what is left of a random
        # start would decide between them.
        nn.init.zeros_(self.head.weight.current)

    def phases(self, task: TaskView) -> list[Phase]:
        factors, head = [self.expand.current], self.head.current()
        return [
            Phase("design", work=lambda: self._design(task)),
            tuning_phase(self.config, lambda batch: self._step(batch, task), factors, head),
            Phase("memory", work=lambda: self._remember(task)),
        ]

    def factors(self) -> dict[str, Factors]:
        """The sum of B_t A_t over all tasks, of each block's joint qkv projection."""
        a = self.reduce.transpose(0, 1).flatten(1, 2)  # (blocks, T r, D)
        b = self.expand.stacked().movedim(0, -2).flatten(-2)  # (blocks, 2, D, T r)
        blocks = range(self.backbone.depth)
        return {f"blocks.{i}.attn.qkv": (a[i], keys_and_values(b[i])) for i in blocks}

    def features(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, D), with the changes of all tasks."""
        return self.backbone(images, Injection(edits=low_rank(self.factors())))

    @torch.no_grad()
    def moments(self, task: TaskView) -> Tensor:
        """R = Σ z zᵀ over all tokens z that the attention of each block reads, (blocks, D, D)."""
        sums = [torch.zeros(())] * self.backbone.depth

        def record(block: int, _: Tensor, z: Tensor) -> Tensor:
            tokens = z.flatten(0, 1).float()
            sums[block] = sums[block].to(tokens) + tokens.T @ tokens
            return z

        recorders = {f"blocks.{i}.norm1": partial(record, i) for i in range(self.backbone.depth)}
        inject = Injection(edits={**low_rank(self.factors()), **recorders})
        for batch in task.batches(self.config.batch_size):
            self.backbone(batch.inputs, inject)
        return torch.stack(sums)

    def _design(self, task: TaskView) -> None:
        """A_t: the strongest free directions of the task's inputs, over √3."""
        directions = self.memory.leading_free(self.moments(task), self.reduce.shape[2])
        self.reduce[-1] = directions / math.sqrt(3)

    def _step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        logits = self.head(self.features(batch.inputs))
        return {"ce": masked_cross_entropy(logits, batch.labels, task.classes)}

    def _remember(self, task: TaskView) -> None:
        """Store the input directions of this task, which later tasks must not change."""
        self.memory.update(self.moments(task), self.config.share(task.index))

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        return Prediction(self.head(self.features(images)))


# DualGPM (Liang & Li, CVPR 2023): the directions of a layer's inputs that old tasks use. The
# smaller of two spaces is stored: a basis of the used directions (an update *removes* them) or,
# once these are more than half, of the free ones (an update *retains* them).


class DualGPM(nn.Module):
    """A basis for each layer; at the start all directions are free.

    Args:
        layers: L, how many there are.
        dim: D, width of their inputs.
    """

    def __init__(self, layers: int, dim: int) -> None:
        super().__init__()
        # (Σ ranks, D) orthonormal rows of each layer, one layer after another
        self.basis: Tensor = nn.Buffer(torch.zeros(0, dim))
        self.ranks: Tensor = nn.Buffer(torch.zeros(layers, dtype=torch.long))  # (L,)
        # (L,) whether the rows are the free directions
        self.retains: Tensor = nn.Buffer(torch.zeros(layers, dtype=torch.bool))

    def bases(self) -> list[Tensor]:
        """The rows (rank, D) of each layer."""
        return list(self.basis.split(self.ranks.tolist()))

    def projectors(self) -> Tensor:
        """Projections onto the free directions, (L, D, D), as exact as the device allows."""
        spans = torch.stack([exact(rows).T @ exact(rows) for rows in self.bases()])
        eye = torch.eye(spans.shape[-1]).to(spans)
        return torch.where(self.retains.to(spans.device)[:, None, None], spans, eye - spans)

    def leading_free(self, moments: Tensor, count: int) -> Tensor:
        """Free directions in which new inputs are strongest, (L, count, D).

        Orthonormal rows, or shorter ones where fewer directions are free and used.

        Args:
            moments: (L, D, D) Σ z zᵀ over the new inputs z, of any scale.
        """
        free = self.projectors()
        strongest = torch.linalg.svd(free @ exact(moments))[0][..., :count].mT
        # Beyond the rank of the product its singular vectors are arbitrary: keep them free too.
        return (strongest @ free).to(moments)

    def update(self, moments: Tensor, share: float) -> None:
        """Let directions be in use until these hold a share of the energy of new inputs.

        Args:
            moments: (L, D, D) as in `leading_free`.
            share: ε of ‖R‖², R being the moments.
        """
        new = []
        for layer, free in enumerate(self.projectors()):
            moment, rows = exact(moments[layer]), exact(self.bases()[layer])
            left, values, _ = torch.linalg.svd(free @ moment)
            energies = values.square() / moment.square().sum()
            held = 1 - energies.sum() + energies.cumsum(0) - energies  # before each direction
            used = left[:, : int((held < share).sum())].T
            if self.retains[layer]:
                remaining = rows - rows @ used.T @ used
                rows = torch.linalg.svd(remaining)[2][: max(len(rows) - len(used), 0)]
            else:
                rows = torch.cat((rows, used))
                if len(rows) > rows.shape[1] / 2:
                    rows, self.retains[layer] = torch.linalg.svd(rows)[2][len(rows) :], True
            new.append(rows)
        self.ranks = torch.tensor([len(rows) for rows in new]).to(self.ranks)
        self.basis = torch.cat(new).to(self.basis)
