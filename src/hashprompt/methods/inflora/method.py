"""InfLoRA: interference-free low-rank adaptation.

Liang & Li, CVPR 2024. Every task adds B_t A_t to the key and value projections of all blocks. A_t
is not trained but designed: it reads the directions in which the task's inputs are strong, among
those that inputs of older tasks do not have. So whatever B_t becomes, old images hardly see it.
"""

import math

import torch
from torch import Tensor, nn

from hashprompt.backbone import Backbone, Injection
from hashprompt.methods.base import Batch, Method, Phase, Prediction, TaskView
from hashprompt.methods.frames.prompt_tuning import training_phase
from hashprompt.methods.inflora.config import InfLoRAConfig
from hashprompt.methods.inflora.dual_gpm import DualGPM, attention_moments
from hashprompt.parts.growing import grow_buffer
from hashprompt.parts.heads import masked_cross_entropy
from hashprompt.parts.lora import Factors, keys_and_values, low_rank
from hashprompt.parts.slots import TaskClassifiers, TaskSlots


class InfLoRA(Method):
    """Designed A_t, trained B_t and classifier; a memory of the directions in use."""

    keeps = ("reduce", "expand.frozen", "head.weight.frozen", "head.bias.frozen")
    stores = "prompts: reduce expand; statistics: memory"
    config: InfLoRAConfig

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
        train = training_phase(
            self.config,
            lambda batch: self._step(batch, task),
            [self.expand.current],
            [self.head.weight.current, self.head.bias.current],
            self.config.weight_decay,
        )
        return [
            Phase("design", work=lambda: self._design(task)),
            train,
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

    def moments(self, task: TaskView) -> Tensor:
        """R, of what attention reads of the task's images in each block, (blocks, D, D)."""
        inject = Injection(edits=low_rank(self.factors()))
        images = (batch.inputs for batch in task.batches(self.config.batch_size))
        return attention_moments(self.backbone, inject, images)

    def _design(self, task: TaskView) -> None:
        """A_t: the strongest free directions of the task's inputs, over √3."""
        directions = self.memory.leading_free(self.moments(task), self.reduce.shape[2])
        self.reduce[-1] = directions / math.sqrt(3)

    def _step(self, batch: Batch, task: TaskView) -> dict[str, Tensor]:
        logits = self.head(self.features(batch.inputs))
        return {"ce": masked_cross_entropy(logits, batch.labels, task.classes)}

    def _remember(self, task: TaskView) -> None:
        """Later tasks leave alone what this one reads after its training."""
        self.memory.update(self.moments(task), self.config.share(task.index))

    def predict(self, images: Tensor, plain: Tensor | None = None) -> Prediction:
        return Prediction(self.head(self.features(images)))
